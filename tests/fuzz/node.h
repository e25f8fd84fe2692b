/*
 * The engine's request path as one piece: two shards with everything above the backend, and a
 * control thread reduced to images and places, turned by hand on one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/shard.h"
#include "tests/fuzz/choices.h"

enum { FUZZ_SHARDS = 2, FUZZ_SANDBOXES = 12, FUZZ_EXECS = 10 };

struct control;
struct kernel;

struct fuzz_node {
	struct choices *choices;
	struct kernel *kernel;
	struct config config;
	struct node node;
	struct shard *shards[FUZZ_SHARDS];
	struct control *control;
	uint32_t next_shard;
	uint32_t descriptors; /* the number of the next one, before */
};

void node_open(struct fuzz_node *node, struct choices *choices);
/* A connection is accepted: the client's end. -1: it is one too many. */
int node_connect(struct fuzz_node *node);
/* Turn one loop: a shard's, or the control thread's (FUZZ_SHARDS). */
void node_turn(struct fuzz_node *node, uint32_t loop);
/* Everything that can happen now happens: turns and the backend, until nothing moves. */
void node_settle(struct fuzz_node *node);
/* Until every sandbox's time is over: none may be left. */
void node_outlive(struct fuzz_node *node);
/* Stops the shards; nothing may be left. */
void node_close(struct fuzz_node *node);
