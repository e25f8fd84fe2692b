/*
 * One heap of deadlines per shard. Owned by the loop that calls timers_run(); nothing allocates
 * after timers_init().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timer {
	uint64_t at_ns;	 /* owned by the heap while set */
	uint32_t index1; /* place in the heap + 1; 0: not set */
	void (*expired)(struct timer *t);
};

struct timers {
	struct timer **heap;
	uint32_t count, max;
};

int timers_init(struct timers *timers, uint32_t max);
void timers_done(struct timers *timers);
/* Set or move. -ENOSPC when `max` are set already. */
int timer_set(struct timers *timers, struct timer *t, uint64_t at_ns);
void timer_clear(struct timers *timers, struct timer *t);
static inline bool timer_is_set(const struct timer *t)
{
	return t->index1 != 0;
}
/* The earliest deadline, UINT64_MAX when none. */
uint64_t timers_next(const struct timers *timers);
/*
 * Calls expired() of timers due at now_ns, the earliest first, each cleared before its call.
 * Returns how many: at most `most`, and as many as were set before, so that one that is set into
 * the past again cannot hold the loop.
 */
uint32_t timers_run(struct timers *timers, uint64_t now_ns, uint32_t most);
