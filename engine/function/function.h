/*
 * Functions: programs that are called often, and their calls.
 *
 *	function.c	the registry: register, list, remove; every shard has a copy of it
 *	call_queue.c	the invoke op: inputs wait, by function, and are taken in turns
 *	call.c		one call: a flow from its set of namespaces to its verdict
 *	call_output.c	what it writes
 *	call_clock.c	how long it may run, by the clock and by CPU time
 *	call_set.c	sets: boxes for one call, or for one call after the other
 *	verdict.c	what is said of it
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "dsec/ring.h"
#include "engine/base/pool.h"
#include "engine/base/timer.h"

struct image;
struct policy;
struct part;
struct shard;
struct tenancy;
struct invocation;
struct call_set;

enum {
	FUNCTIONS_MAX = 256,
	FUNCTION_NAME_BYTES_MAX = 64,
	FUNCTION_USER_BYTES_MAX = 64,
	CALLS_PER_SHARD_MAX = 16,      /* that run */
	CALL_SETS_PER_SHARD_MAX = 32,  /* in use, kept for the next call, or ending */
	CALLS_WAITING_MAX = 4096,      /* inputs of a function, on one shard */
	CALL_CPU_MS_MAX = 3600 * 1000, /* and by the clock */
	CALL_WALL_MS_DEFAULT = 60 * 1000,
	CALL_SET_USES_MAX = 10000,	 /* calls before a clean set goes anyway */
	CALL_SET_IDLE_MS = 60 * 1000,	 /* without a call: then it goes */
	CALL_OUTPUT_BYTES_MAX = 1 << 20, /* sent in one turn */
	CALL_OUTPUT_BYTES_DEFAULT = 64 << 10,
};

/* A shard's copy. Freed when it was removed and nothing of it is left. */
struct function {
	struct shard *shard;
	struct function *next; /* in order of numbers */
	struct dsec_wire_id id;
	uint64_t registered_ns;
	struct tenancy *tenancy; /* whose it is: nobody else finds it */
	char name[FUNCTION_NAME_BYTES_MAX], user[FUNCTION_USER_BYTES_MAX];
	struct image *image;
	struct policy *policy; /* used; NULL: none */
	struct run_spec spec;  /* its strings are the function's */
	struct box_limits limits;
	uint64_t disk_bytes, output_bytes;
	uint32_t flags, isolation, cpu_ms, wall_ms;
	bool removed;

	/* calls, on this shard */
	struct invocation *first, **last; /* in the order they came */
	struct function *next_waiting;
	bool is_waiting;
	uint32_t waiting, running; /* inputs */
	uint32_t invocations;	   /* requests */
	uint64_t wall_mean_us;
	struct call_set *idle; /* domain: proven clean, warmest first */
	uint32_t sets;
};

/* Of a shard. */
struct functions {
	struct function *all;
	uint64_t numbers; /* given so far, by shard 0 */
	struct pool calls, sets;
	struct function *waiting, **waiting_last; /* who has inputs that wait, in turns */
	uint32_t waiting_count;
	struct call_set *coldest, *warmest; /* idle, of all functions */
	uint32_t cpus;
	bool pumping;
};

int functions_init(struct shard *shard);
void functions_done(struct shard *shard);
/* The engine stops: all go, with what runs. */
void functions_stop(struct shard *shard);
/* Nothing of any function is left here. */
bool functions_are_gone(const struct shard *shard);
/* The one that the part's request names, if it is its tenant's; NULL. */
struct function *function_of(const struct part *part);
/* Frees it if it was removed and nothing of it is left. */
void function_settle(struct function *function);
/* Starts what can be started. */
void calls_pump(struct shard *shard);
