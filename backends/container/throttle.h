/*
 * How long a leaf that makes processes too fast is frozen: each time twice as long as the time
 * before, and half as long again for every REST in which it behaved.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	THROTTLE_FIRST_MS = 64,
	THROTTLE_LEVELS = 4, /* to 1,024 ms */
	THROTTLE_REST_MS = 250,
};

#define THROTTLE_NS_PER_MS 1000000ull

struct throttle {
	uint32_t level;
	uint64_t thawed_ns; /* 0: it was not frozen yet */
};

static inline uint32_t throttle_rests(const struct throttle *t, uint64_t now_ns)
{
	uint64_t rests = t->thawed_ns && now_ns > t->thawed_ns ?
				 (now_ns - t->thawed_ns) / (THROTTLE_REST_MS * THROTTLE_NS_PER_MS) :
				 0;

	return rests > THROTTLE_LEVELS ? THROTTLE_LEVELS + 1 : (uint32_t)rests;
}

/* It was too fast at `now_ns`: so long it is to be frozen. */
static inline uint32_t throttle_again_ms(struct throttle *t, uint64_t now_ns)
{
	const uint32_t rests = throttle_rests(t, now_ns);

	if (rests)
		t->level -= rests < t->level ? rests : t->level;
	else if (t->thawed_ns && t->level < THROTTLE_LEVELS)
		t->level++;
	return (uint32_t)THROTTLE_FIRST_MS << t->level;
}

/* When it has behaved for so long that nothing is left to remember. */
static inline uint64_t throttle_over_ns(const struct throttle *t)
{
	return t->thawed_ns + (t->level + 1ull) * THROTTLE_REST_MS * THROTTLE_NS_PER_MS;
}
