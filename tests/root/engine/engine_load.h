/*
 * Load on an engine: threads that make a sandbox, run a command in it and end it, over and over,
 * each on a connection of its own. What they see is sorted.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/root/engine/engine_harness.h"

enum { LOAD_THREADS_MAX = 8 };

struct load {
	struct engine *engine;
	unsigned thread_count;
	pthread_t threads[LOAD_THREADS_MAX];
	_Atomic bool stop;
	/*
	 * Requests that ended: well; by a lost worker; with their PID 1 or program; because what
	 * the worker started was stopped; in no known way.
	 */
	_Atomic uint64_t done, lost, killed, late, strange, disconnected;
	/* Of the time a command took, from asking to the result. */
	_Atomic uint64_t longest_us;
};

bool load_start(struct load *load, struct engine *e, unsigned threads);
void load_end(struct load *load);
uint64_t load_done(const struct load *load);
/* In whatever way. */
uint64_t load_ended(const struct load *load);
