/*
 * What a thread did, beside letting time pass: to tell slow work from a thread that was preempted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct effort {
	int64_t sleeps;
	uint64_t cpu_ns;
};

/* Of the calling thread, until now. Two system calls. */
void effort_read(struct effort *ret);
/* Whether it slept in the kernel, or used cpu_ns or more of a CPU, since `then`. */
bool effort_since(const struct effort *then, uint64_t cpu_ns);
