/*
 * Who began something last, a sandbox or a program in it, and who else before: whether others than
 * one sandbox began something lately. What a sandbox begins itself is no reason to hold it back.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { BEGINS_NOBODY = 0 };

#define BEGINS_SEVERAL UINT64_MAX /* two or more, since it was asked last */

/* A name for a slot; never one of the two above. */
static inline uint64_t begins_name(uint32_t shard, uint32_t slot)
{
	return ((uint64_t)shard << 32 | slot) + 1;
}

struct begins {
	uint64_t by;		  /* who was last; BEGINS_NOBODY: none was */
	uint64_t by_ns, other_ns; /* when; and when somebody else did, before; 0: never */
};

static inline void begins_note(struct begins *b, uint64_t by, uint64_t now_ns)
{
	if (by == BEGINS_NOBODY)
		return;
	if (by != b->by)
		b->other_ns = b->by_ns;
	b->by = by;
	b->by_ns = now_ns;
}

/* Somebody else than this one did, in the time up to now. */
static inline bool begins_beside(const struct begins *b, uint64_t name, uint64_t now_ns,
				 uint64_t time_ns)
{
	const uint64_t at_ns = b->by == name ? b->other_ns : b->by_ns;

	return at_ns && now_ns - at_ns <= time_ns;
}
