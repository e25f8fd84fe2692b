/*
 * The one form of every multi-step operation: a const table of steps walked by one driver.
 * Building walks down; a failure or a cancel turns round and undoes; destroying is unwinding the
 * flow that was built. Each step is its own function; `start` returns
 *
 *	FLOW_NEXT   done at once
 *	FLOW_WAIT   an op or a call is in flight; flow_resume() or the flow's op settles the step
 *	FLOW_AGAIN  (from finish only) call start again: a short read, a retry. Nothing is left
 *	            behind at this point: a flow that was turned round meanwhile does not start it
 *	-errno      failed and left nothing behind
 *
 * `undo` returns FLOW_NEXT or FLOW_WAIT and cannot fail. `finish` may be NULL: res < 0 fails, else
 * next. A step that succeeded in spite of a cancel is undone like any other.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/flow_stats.h"
#include "engine/base/io.h"
#include "engine/base/timer.h"

enum { FLOW_NEXT = 0, FLOW_WAIT = 1, FLOW_AGAIN = 2 };

struct flow;

struct flow_step {
	const char *name;
	int (*start)(struct flow *f);
	int (*finish)(struct flow *f, int res);
	int (*undo)(struct flow *f);
	/* 0: none. Over it the step is asked to end, as by a cancel, once: -ETIMEDOUT. */
	uint32_t limit_ms;
};

/*
 * What one driver serves: a shard. Flows without a host have no limits, no faults, no journal and
 * no statistics, and need their `cancel` set.
 */
struct flow_host {
	struct io *io;
	struct timers *timers;
	/*
	 * May be NULL; the write-ahead log will live behind it. Told of the step at f->at, in
	 * f->direction: settled 0 before its side effect, then once 1 when it took effect (or,
	 * going down, was undone), -errno when it failed and left nothing.
	 */
	void (*journal)(struct flow_host *host, const struct flow *f, int settled);
	/*
	 * NULL, or for debug builds and tests "table.step:ERRNO": the step fails with it and is not
	 * started; "table.step!:ERRNO": it fails after it succeeded, and is undone.
	 */
	const char *fault;
	struct flow_stats *stats;
};

struct flow {
	struct io_op op; /* the one operation in flight, for steps that are one op */
	struct flow_host *host;
	const char *table; /* "container": the prefix of step names in faults and errors */
	const struct flow_step *steps;
	uint8_t at, count; /* steps below `at` are complete */
	int8_t direction;  /* +1 building, -1 unwinding, 0 idle */
	bool waiting;
	int error;		 /* why it turned round */
	const char *failed_step; /* "spawn", of `table`; NULL when no step failed (a cancel) */
	uint64_t step_ns;	 /* when the step in flight began */
	struct timer limit;
	/*
	 * Asks the step in flight to end; NULL: io_cancel(op). It may call flow_resume(); the flow
	 * may be gone when it returns.
	 */
	void (*cancel)(struct flow *f);
	void (*done)(struct flow *f, int error); /* may free the flow */
};

/* Zeroed flow in; `done` and, if needed, `cancel` are set by the caller after it. */
void flow_init(struct flow *f, struct flow_host *host, const char *table,
	       const struct flow_step *steps, uint8_t count);
/* Calls f->done(f, 0) when every step is complete, f->done(f, -errno) when all was undone. */
void flow_build(struct flow *f);
/* Only after a successful build. Calls f->done(f, 0). */
void flow_unwind(struct flow *f);
/* Ask a building flow to turn round; done(f, -ECANCELED) comes unless it won the race. */
void flow_cancel(struct flow *f);
/* Settle a FLOW_WAIT step whose work was not f->op: res as an op's. Not from inside start/undo. */
void flow_resume(struct flow *f, int res);
/* The step in flight or NULL: for logs, `dsec ps` and the debugger. */
const char *flow_step_name(const struct flow *f);
/* -EINVAL for a fault that is not of the form above: to be refused when the engine starts. */
int flow_fault_check(const char *fault);
