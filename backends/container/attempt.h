/*
 * One fallible system call of the launcher: it names its step, and a test build can make the nth
 * call of a step fail (DSEC_LAUNCH_FAULT=step:errno[:nth], errno a number) instead of being made.
 */
#pragma once

#include <stdint.h>

#include "backends/container/launch.h"

struct fault {
	uint32_t step;	/* LAUNCH_STEP_NONE: no fault */
	uint32_t after; /* calls of the step still to be let through */
	int error;
};

/* Written by one side at a time: the worker, or the child it waits for. */
struct attempt {
	uint32_t step; /* of the latest call */
	struct fault *fault;
};

#ifdef DSEC_FAULTS
static inline int attempt_fails(struct attempt *attempt)
{
	struct fault *fault = attempt->fault;

	if (fault->step != attempt->step || fault->after-- > 0)
		return 0;
	fault->step = LAUNCH_STEP_NONE;
	return 1;
}
#else
#define attempt_fails(attempt) 0
#endif

#define LAUNCH_TRY(attempt, number, call)                                                          \
	((attempt)->step = (number),                                                               \
	 attempt_fails(attempt) ? (long)-(attempt)->fault->error : (long)(call))
