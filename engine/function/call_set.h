/*
 * Sets: boxes that calls run in. A fresh call has one of its own; in a domain one call follows the
 * other in it, as long as each left it proven clean.
 *
 *	building --built--> busy --clean--> idle --taken--> busy
 *	                      \--else-------- \--cold, removed--> ending --gone--> (freed)
 *
 * Nobody waits for an ending one but the shard's end; one that does not end is tried again.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "engine/base/timer.h"

struct call;
struct function;
struct shard;

enum call_set_state { CALL_SET_BUILDING, CALL_SET_BUSY, CALL_SET_IDLE, CALL_SET_ENDING };

struct call_set {
	struct shard *shard;
	struct function *function;
	struct box *box;
	struct call *call; /* whose it is now */
	enum call_set_state state;
	bool dead;    /* its PID 1 ended by itself */
	bool counted; /* cpu_us is known */
	bool quarantined;
	uint32_t uses;
	uint64_t cpu_us; /* of the box, at the end of the last call, or the begin of the first */
	struct box_usage usage;
	bool usage_asked;
	struct timer timer;		  /* idle: until it goes; ending: until it is tried again */
	struct call_set *next;		  /* of its function's idle ones */
	struct call_set *colder, *warmer; /* idle, of all functions */
};

/* One that is idle, at once, or NULL. */
struct call_set *call_set_idle(struct function *function);
/* A new one that is being built: call_set_built() follows, and may come at once. NULL: no room. */
struct call_set *call_set_new(struct call *call);
/* In call.c. error: -errno, and then the set is no more. */
void call_set_built(struct call *call, int error);
/* The call is over. clean: the set was proven to be as it was before. */
void call_set_give(struct call_set *set, bool clean);
/* Nobody gets it any more, and it counts as quarantined until it is gone. */
void call_set_spoil(struct call_set *set);
/* Has one more place, or makes one by and by: the coldest goes. */
bool call_set_has_room(struct shard *shard);
/* Its idle ones go: the function was removed. */
void call_sets_drop(struct function *function);
