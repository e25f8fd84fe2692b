/*
 * How fast output is read that nobody hears as it comes: so many reads in a while, of each exec
 * and of a shard in all. Else a program that writes without end keeps its shard at nothing but
 * that.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	PACE_MS = 10,
	PACE_EXEC_READS = 64,	/* of 16 KiB at most: 100 MiB/s */
	PACE_SHARD_READS = 256, /* some 2 ms of work */
};

struct pace {
	uint64_t since_ns;
	uint32_t reads;
};

/* Whether there is room for one more of `max` at `now_ns`. */
static inline bool pace_has_room(struct pace *pace, uint64_t now_ns, uint32_t max)
{
	if (now_ns - pace->since_ns >= PACE_MS * 1000000ull)
		*pace = (struct pace){ .since_ns = now_ns };
	return pace->reads < max;
}
