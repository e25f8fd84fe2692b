/*
 * A buddy allocator over offsets. All of it is private memory: nothing that the engine could write
 * decides where a payload lies.
 */
#pragma once

#include <stdint.h>

enum { ARENA_BLOCK_BYTES = 256, ARENA_ORDERS = 32, ARENA_NONE = UINT32_MAX - 1 };

struct arena {
	uint32_t blocks;
	int order_max;		      /* of the largest piece there ever was; -1: none */
	uint8_t *states;	      /* per block: what begins there */
	uint32_t *next, *previous;    /* per block, of free ones */
	uint32_t first[ARENA_ORDERS]; /* free blocks by order */
};

/* Over [0, bytes). -ENOMEM leaves nothing behind. */
int dsec__arena_init(struct arena *arena, uint64_t bytes);
void dsec__arena_done(struct arena *arena);

/* -EAGAIN: no room now; -EMSGSIZE: there never will be. *ret_at is a multiple of 256. */
int dsec__arena_take(struct arena *arena, uint64_t bytes, uint64_t *ret_at);

/* at came from dsec__arena_take(). */
void dsec__arena_give(struct arena *arena, uint64_t at);
