/*
 * Cuts the flows of a sandbox with a network namespace of its own, on the control thread.
 */
#pragma once

#include <stdint.h>

#include "engine/base/io.h"

struct shard;

/* Of its caller until done(). */
struct flows_cut {
	struct mail mail;
	struct shard *shard;
	int namespace_fd; /* closed before done() */
	uint32_t count;	  /* done: sockets that were ended */
	int error;
	void (*done)(struct flows_cut *cut, int error); /* on its shard */
};

void flows_cut(struct flows_cut *cut);
