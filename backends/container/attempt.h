/*
 * One fallible system call of the launcher names its step, so that whoever stops at a failure knows
 * where it was. Tests let each of them fail, from outside: tests/root/launch/saboteur.h.
 */
#pragma once

#include <stdint.h>

/* Written by one side at a time: the worker, or the child it waits for. */
struct attempt {
	uint32_t step; /* of the latest call */
};

#define LAUNCH_TRY(attempt, number, call) ((attempt)->step = (number), (long)(call))
