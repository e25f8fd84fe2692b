/*
 * Which sandboxes of a request its caller was told of: when the request is sent again the engine
 * begins anew. A set of ids.
 */
#pragma once

#include <stdint.h>

#include <dsec/dsec.h>

struct told {
	struct dsec_id *ids; /* by hash; zero: free */
	uint32_t count, capacity;
};

/* 1: it is new, and is in now; 0: it was in. -ENOMEM. The zero id is never in. */
int dsec__told_add(struct told *told, struct dsec_id id);
void dsec__told_done(struct told *told);
