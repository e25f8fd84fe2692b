/*
 * The memory that a client and the engine share: one memfd the engine makes, sealed in steps so
 * that the client keeps its mapping and nothing else (no punching, shrinking, writing or mapping).
 * What makes, seals and unmakes it may sleep, for as long as the client likes where it waits for a
 * lock of the client's file: on the control thread only.
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
	int *doorbells; /* one per channel, or NULL; -1: taken by the channel */
};

/*
 * Sizes asked in `hello`, clamped, echoed in `layout`. The stream transport gets no memory. To be
 * given back also when it fails.
 */
int client_memory_init(struct client_memory *memory, const struct node *node,
		       const struct dsec_ring_hello *hello, unsigned int channels);
/* The layout, and with it the memory and the doorbells: to the client, which may not wait. */
int client_memory_send(const struct client_memory *memory, int socket_fd);
/* The doorbell of a channel is the caller's; -1: there is none. */
int client_memory_take_doorbell(struct client_memory *memory, unsigned int channel);
/* After the client mapped it: no new writer from here on. Verified. The descriptor is closed. */
int client_memory_seal(struct client_memory *memory);
void client_memory_done(struct client_memory *memory);
