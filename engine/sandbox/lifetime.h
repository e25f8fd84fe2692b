/*
 * When a sandbox ends by itself. Pure arithmetic; called by sandbox.c, change.c and tests.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dsec/ring.h"

struct lifetime {
	uint64_t ttl_from_ns;	    /* when it was built, or its ttl changed */
	uint64_t used_ns;	    /* when the last exec began or ended */
	uint32_t ttl_s, idle_ttl_s; /* 0: none */
};

#define LIFETIME_NONE UINT64_MAX

/* The moment, and by which of the two; LIFETIME_NONE: it does not. */
static inline uint64_t lifetime_end_ns(const struct lifetime *l, bool busy, uint32_t *ret_cause)
{
	const uint64_t second_ns = 1000000000;
	uint64_t end_ns = LIFETIME_NONE, idle_ns;

	*ret_cause = DSEC_CAUSE_NONE;
	if (l->ttl_s) {
		end_ns = l->ttl_from_ns + l->ttl_s * second_ns;
		*ret_cause = DSEC_CAUSE_TTL;
	}
	if (!l->idle_ttl_s || busy)
		return end_ns;
	idle_ns = l->used_ns + l->idle_ttl_s * second_ns;
	if (idle_ns >= end_ns)
		return end_ns;
	*ret_cause = DSEC_CAUSE_IDLE_TTL;
	return idle_ns;
}
