/*
 * The one form of every multi-step operation: a const table of steps walked by one driver.
 * Building walks down; a failure or a cancel turns round and undoes; destroying is unwinding the
 * flow that was built. Each step is its own function; `start` returns
 *
 *	FLOW_NEXT   done at once
 *	FLOW_WAIT   an op or a call is in flight; flow_resume() or the flow's op settles the step
 *	FLOW_AGAIN  (from finish only) call start again: a short read, a retry
 *	-errno      failed and left nothing behind
 *
 * `undo` returns FLOW_NEXT or FLOW_WAIT and cannot fail. `finish` may be NULL: res < 0 fails, else
 * next. A step that succeeded in spite of a cancel is undone like any other.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/io.h"
#include "engine/base/timer.h"

enum { FLOW_NEXT = 0, FLOW_WAIT = 1, FLOW_AGAIN = 2 };

struct flow;

struct flow_step {
	const char *name;
	int (*start)(struct flow *f);
	int (*finish)(struct flow *f, int res);
	int (*undo)(struct flow *f);
	uint32_t limit_ms; /* 0: none. On expiry `expire` of the host is called, once */
};

/*
 * What one driver serves: a shard. `journal` (may be NULL) is told before a step's side effect and
 * after it settled; the write-ahead log will live behind it. `expire` is called when a step exceeds
 * its limit: it must make the step complete (cancel its op, fail its call). Flows without a host
 * have no limits, no faults and no journal.
 */
struct flow_host {
	struct io *io;
	struct timers *timers;
	void (*journal)(struct flow_host *host, const struct flow *f, int settled);
	const char *fault; /* "table.step:ERRNO" or NULL; debug builds and tests */
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
	const char *failed_step; /* "container.spawn"; NULL while no step failed */
	struct timer limit;
	void (*cancel)(struct flow *f); /* NULL: io_cancel(op). Asks the step in flight to end */
	void (*done)(struct flow *f, int error);
};

/* Zeroed flow in; table and callbacks set by the caller after it. */
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
