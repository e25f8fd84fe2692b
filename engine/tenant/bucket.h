/*
 * A token bucket: so many a second, and a burst. Pure arithmetic on a clock of the caller's;
 * called by the create op, by tenants and by tests.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct bucket {
	uint64_t interval_ns; /* between two tokens; 0: no limit */
	uint64_t burst;	      /* tokens of a full bucket, at least 1 */
	uint64_t full_ns;     /* when it is full again if nothing is taken */
};

/* Of `rate` a second, of which this is one of `shares` equal parts. rate 0: no limit. */
static inline struct bucket bucket_of(uint32_t rate, uint32_t shares)
{
	struct bucket bucket = { 0 };

	if (!rate)
		return bucket;
	bucket.interval_ns = 1000000000ull * shares / rate;
	bucket.burst = rate / shares ? rate / shares : 1;
	return bucket;
}

/* Takes up to `wanted` tokens: how many. *ret_retry_ms: when there is one again. */
static inline uint32_t bucket_take(struct bucket *b, uint64_t now_ns, uint32_t wanted,
				   uint32_t *ret_retry_ms)
{
	uint64_t full_ns = b->full_ns > now_ns ? b->full_ns : now_ns, room_ns, free;

	*ret_retry_ms = 0;
	if (!b->interval_ns)
		return wanted;
	/* One that others share may be ahead of our clock. */
	room_ns = now_ns + b->burst * b->interval_ns;
	room_ns = room_ns > full_ns ? room_ns - full_ns : 0;
	free = room_ns / b->interval_ns;
	if (free > wanted)
		free = wanted;
	b->full_ns = full_ns + free * b->interval_ns;
	room_ns -= free * b->interval_ns;
	if (room_ns < b->interval_ns)
		*ret_retry_ms = (uint32_t)((b->interval_ns - room_ns + 999999) / 1000000);
	return (uint32_t)free;
}

/* One that several threads take from. */
struct shared_bucket {
	struct bucket bucket; /* its rate; .full_ns is shared */
};

static inline uint32_t shared_bucket_take(struct shared_bucket *shared, uint64_t now_ns,
					  uint32_t wanted, uint32_t *ret_retry_ms)
{
	struct bucket copy = { shared->bucket.interval_ns, shared->bucket.burst, 0 };
	uint64_t seen = __atomic_load_n(&shared->bucket.full_ns, __ATOMIC_RELAXED);
	uint32_t taken;

	do {
		copy.full_ns = seen;
		taken = bucket_take(&copy, now_ns, wanted, ret_retry_ms);
	} while (!__atomic_compare_exchange_n(&shared->bucket.full_ns, &seen, copy.full_ns, false,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return taken;
}

/* Tokens that were taken and not used. */
static inline void shared_bucket_give(struct shared_bucket *shared, uint32_t count)
{
	(void)__atomic_fetch_sub(&shared->bucket.full_ns, count * shared->bucket.interval_ns,
				 __ATOMIC_RELAXED);
}
