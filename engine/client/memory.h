/*
 * The memory that a client and the engine share: one memfd the engine makes, sealed in steps so
 * that the client keeps its mapping and nothing else (no punching, shrinking, writing or mapping).
 */
#pragma once

#include <stddef.h>

#include "dsec/ring.h"

struct node;

struct client_memory {
	int fd;
	char *base;
	size_t bytes;
	struct dsec_ring_welcome layout;
};

/* Sizes asked in `hello`, clamped, echoed in `layout`. The stream transport gets no memory. */
int client_memory_init(struct client_memory *memory, const struct node *node,
		       const struct dsec_ring_hello *hello, unsigned int channels);
/* After the client mapped it: no new writer from here on. Verified. The descriptor is closed. */
int client_memory_seal(struct client_memory *memory);
void client_memory_done(struct client_memory *memory);
