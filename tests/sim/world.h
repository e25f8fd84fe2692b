/*
 * The simulator's world: the kernel, the clock and chance behind engine/base/io.h, all from one
 * seed. Several loops may live in one world; they are turned one after another on one thread.
 *
 * What an op's side effect is, the test decides in `serve`: the world proposes a result (a short
 * read, an error, a refusal by the loop), serve returns the result that stands, having done to the
 * test's own model what the kernel would have done. It is called once per completion, before the
 * callback, and never for an op whose cancel won: that one had no effect.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/io.h"

struct world;

enum world_kind {
	WORLD_READ,
	WORLD_WRITE,
	WORLD_RECV,
	WORLD_SEND,
	WORLD_RECVMSG,
	WORLD_SENDMSG,
	WORLD_ACCEPT,
	WORLD_POLL,
	WORLD_POLL_ONCE,
	WORLD_OPEN,
	WORLD_CLOSE,
	WORLD_WAIT_PID,
};

struct world_op {
	enum world_kind kind;
	int fd; /* or pid */
	void *buffer;
	uint32_t bytes; /* or poll events */
};

struct world_options {
	uint64_t seed;
	/* May be NULL: proposals stand. */
	int (*serve)(void *context, const struct world_op *op, int proposed);
	/* Whether an op may never complete unless it is cancelled; NULL: every op may. */
	bool (*may_hang)(void *context, const struct world_op *op);
	void *context;
};

struct world *world_new(const struct world_options *options);
/* Every loop must be closed. NULL is fine. */
void world_free(struct world *world);
uint64_t world_now_ns(const struct world *world);
/* Chance for the test itself: 0 .. below - 1; below > 0. */
uint64_t world_random(struct world *world, uint64_t below);
/* Nothing is in flight on any loop, op or mail. */
bool world_is_idle(const struct world *world);
/* What happened so far, in one number: equal seeds give equal ones. */
uint64_t world_trace(const struct world *world);
/* Add something of the test's own to the trace. */
void world_note(struct world *world, uint64_t what);
