/*
 * What is said of a call: a pure function of what happened to it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Why the engine ended it. */
enum call_end { CALL_END_NONE, CALL_END_CPU, CALL_END_WALL, CALL_END_OUTPUT, CALL_END_CANCEL };

struct call_facts {
	bool started;
	bool not_found; /* not started: its program is not there, or may not be run: 127, 126 */
	bool oom;	/* a memory limit killed */
	bool box_died;	/* its PID 1 went, unasked */
	bool output_over;
	enum call_end end;
	int status;		       /* of wait(2) */
	uint64_t cpu_us, cpu_limit_us; /* limit 0: none */
};

struct verdict {
	uint32_t verdict, reason; /* enum dsec_verdict, enum dsec_reason */
	int32_t exit_code, signal;
};

struct verdict verdict_of(const struct call_facts *facts);
