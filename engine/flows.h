/*
 * Cuts the flows of a sandbox, on the control thread.
 */
#pragma once

#include <stdint.h>

#include "backends/backend.h"
#include "engine/base/io.h"

struct shard;

/* Of its caller until done(). */
struct flows_cut {
	struct mail mail;
	struct shard *shard;
	struct box_sockets sockets; /* its namespace is closed before done() */
	uint32_t count;		    /* done: sockets that were ended */
	int error;
	void (*done)(struct flows_cut *cut, int error); /* on its shard */
};

void flows_cut(struct flows_cut *cut);
