/*
 * Where request payloads lie in the shared arena. Called by the ring transport, under the
 * connection's lock. A block is free or taken at its first index and INSIDE elsewhere; two free
 * buddies of one order never both exist.
 */
#include "sdk/lib/arena.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

enum { ARENA_INSIDE = 0, ARENA_TAKEN = 0x80 }; /* states: INSIDE, order + 1, order + 1 | TAKEN */

static void arena_link(struct arena *arena, uint32_t block, int order)
{
	arena->states[block] = (uint8_t)(order + 1);
	arena->previous[block] = ARENA_NONE;
	arena->next[block] = arena->first[order];
	if (arena->first[order] != ARENA_NONE)
		arena->previous[arena->first[order]] = block;
	arena->first[order] = block;
}

static void arena_unlink(struct arena *arena, uint32_t block, int order)
{
	uint32_t next = arena->next[block], previous = arena->previous[block];

	if (previous == ARENA_NONE)
		arena->first[order] = next;
	else
		arena->next[previous] = next;
	if (next != ARENA_NONE)
		arena->previous[next] = previous;
	arena->states[block] = ARENA_INSIDE;
}

int dsec__arena_init(struct arena *arena, uint64_t bytes)
{
	uint64_t blocks = bytes / ARENA_BLOCK_BYTES;

	*arena = (struct arena){ .order_max = -1 };
	if (blocks >= 1u << 31)
		blocks = 1u << 31;
	arena->states = calloc(blocks + 1, sizeof(*arena->states));
	arena->next = calloc(blocks + 1, sizeof(*arena->next));
	arena->previous = calloc(blocks + 1, sizeof(*arena->previous));
	if (!arena->states || !arena->next || !arena->previous) {
		dsec__arena_done(arena);
		return -ENOMEM;
	}
	arena->blocks = (uint32_t)blocks;
	for (int order = 0; order < ARENA_ORDERS; order++)
		arena->first[order] = ARENA_NONE;
	for (uint32_t block = 0; block < arena->blocks;) {
		int order = block ? __builtin_ctz(block) : ARENA_ORDERS - 2;

		while ((uint64_t)block + (1ull << order) > arena->blocks)
			order--;
		arena_link(arena, block, order);
		if (order > arena->order_max)
			arena->order_max = order;
		block += 1u << order;
	}
	return 0;
}

void dsec__arena_done(struct arena *arena)
{
	free(arena->states);
	free(arena->next);
	free(arena->previous);
	*arena = (struct arena){ .order_max = -1 };
}

int dsec__arena_take(struct arena *arena, uint64_t bytes, uint64_t *ret_at)
{
	int order = 0, found;
	uint32_t block;

	while (order < ARENA_ORDERS && (uint64_t)ARENA_BLOCK_BYTES << order < bytes)
		order++;
	if (order > arena->order_max)
		return -EMSGSIZE;
	for (found = order; arena->first[found] == ARENA_NONE; found++) {
		if (found == arena->order_max)
			return -EAGAIN;
	}
	block = arena->first[found];
	arena_unlink(arena, block, found);
	while (found > order) {
		found--;
		arena_link(arena, block + (1u << found), found);
	}
	arena->states[block] = (uint8_t)(order + 1) | ARENA_TAKEN;
	*ret_at = (uint64_t)block * ARENA_BLOCK_BYTES;
	return 0;
}

void dsec__arena_give(struct arena *arena, uint64_t at)
{
	uint32_t block = (uint32_t)(at / ARENA_BLOCK_BYTES);
	int order;

	assert(at % ARENA_BLOCK_BYTES == 0);
	assert(block < arena->blocks);
	assert(arena->states[block] & ARENA_TAKEN);
	order = (arena->states[block] & ~ARENA_TAKEN) - 1;
	arena->states[block] = ARENA_INSIDE;
	for (; order < arena->order_max; order++) {
		uint32_t buddy = block ^ 1u << order;

		if (buddy >= arena->blocks || arena->states[buddy] != order + 1)
			break;
		arena_unlink(arena, buddy, order);
		block &= ~(1u << order);
	}
	arena_link(arena, block, order);
}
