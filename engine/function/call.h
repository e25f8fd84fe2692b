/*
 * A call of a function from the inside: shared by the call_*.c.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/backend.h"
#include "dsec/ring.h"
#include "engine/base/flow.h"
#include "engine/base/pipe.h"
#include "engine/base/io.h"
#include "engine/base/timer.h"
#include "engine/function/call_set.h"
#include "engine/request/status.h"
#include "engine/function/verdict.h"

enum { CALL_STREAMS = 2 }; /* stdout, stderr: 1 and 2 on the wire */

struct call;
struct function;
struct part;
struct shard;

/* A request's share of inputs for one shard, while it lasts. part->work. */
struct invocation {
	struct part *part;
	struct function *function; /* NULL: none was found */
	struct invocation *next;   /* of those of its function that wait */
	uint32_t cursor, index;	   /* the next input: in the list, and its number */
	uint32_t left, running;
	uint32_t dropped; /* refused or cancelled, to be told: those before `end` */
	uint32_t end;	  /* from here on all were told */
	uint32_t credit;  /* calls to begin before the client must have room again */
	bool is_queued, is_resting;
};

struct call_stream {
	struct pipe_op pipe;
	struct call *call;
	int fd; /* -1: closed */
	bool is_reading;
	char *bytes;
	size_t count, size;
};

struct call {
	struct flow flow;
	struct shard *shard;
	struct function *function;
	struct invocation *invocation; /* NULL: it was answered */
	uint32_t index;
	const char *input; /* of the request's payload */
	uint32_t input_bytes;
	struct call_set *set;
	bool is_starting; /* its set is asked for */
	int set_error;
	struct run *run;
	struct run_spec spec;
	struct run_limit limits[1];
	struct run_end run_end;
	int child_fds[3];
	struct call_stream streams[CALL_STREAMS];
	uint64_t output_left; /* of its limit */
	bool is_running, is_over, is_quieting, is_clean;
	struct timer clock;
	bool clock_is_deadline; /* it is no time of the program's: see call_clock_await() */
	uint64_t begun_ns, ended_ns, wall_end_ns, peak_bytes;
	uint64_t look_pause_ns, looked_us; /* at its CPU time */
	struct call_facts facts;
	bool program_failed;	 /* not started, and the guest is to blame */
	const char *failed_step; /* the backend's; NULL: the flow knows */
	int error;		 /* of ours, while it ran */
};

/* ---- call.c ---- */

/* Its next input, which is counted as running. There is room; it may be over when this returns. */
void call_begin(struct invocation *invocation);
/* The program is killed, or not started; its end follows. The first reason counts. */
void call_end(struct call *call, enum call_end end);
/* It does not start or end: whoever waits is told, and its set is nobody's any more. */
void call_overdue(struct call *call);
/* No read is in flight any more: see step "silence". */
void call_is_quiet(struct call *call);

/* ---- call_output.c ---- */

int call_output_open(struct call *call);
void call_output_read(struct call *call);
/* Reads in flight are to end. True: none is. */
bool call_output_stop(struct call *call);
/* What is in the pipes now. */
void call_output_drain(struct call *call);
void call_output_close(struct call *call);
/* As DATA events. */
void call_output_emit(struct call *call);

/* ---- call_clock.c ---- */

/* From now on, until another of these, it has so long before it is overdue. */
void call_clock_await(struct call *call, uint32_t seconds);
/* Its program runs, within its own times. */
void call_clock_start(struct call *call);
void call_clock_stop(struct call *call);

/* ---- call_queue.c ---- */

struct emission;
/* The next input, which is there; its number. */
uint32_t invocation_next(struct invocation *invocation, struct dsec_wire_ref *ret);
/* A call is over, and this is its DONE; the invocation may be gone afterwards. */
void invocation_called(struct invocation *invocation, const struct emission *done);
/* For what is said to who has to wait. */
void function_took(struct function *function, uint64_t wall_ns);
