/*
 * Execs: programs run in a sandbox for a client, their streams kept byte-exact.
 */
#pragma once

#include <stdint.h>

#include "engine/base/timer.h"

struct exec;
struct sandbox;

/* Of a tenant on a shard: those that are over, by their end. */
struct kept_execs {
	struct exec *oldest, *newest;
	uint32_t count, count_max;
	uint64_t bytes, bytes_max;
	struct timer timer; /* of the oldest */
};

/* The sandbox goes: every exec of it ends with it, and those that are over are forgotten. */
void execs_end(struct sandbox *sandbox);
/*
 * What runs in that leaf since then or longer is a fork bomb: it is killed, and that is the reason.
 * None: it is what an exec left behind, or has ended.
 */
void execs_end_bomb(struct sandbox *sandbox, uint32_t leaf, uint64_t since_ns);
/* The sandbox does not end in time: whoever waits for one of them is told. */
void execs_overdue(struct sandbox *sandbox);
void execs_forget(struct sandbox *sandbox);
/* sandbox.c: an exec is over and no longer among the running. */
void sandbox_exec_over(struct sandbox *sandbox);
