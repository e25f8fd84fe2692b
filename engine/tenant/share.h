/*
 * How many execs each client has on a shard, so that none can hold them all. Called by the exec op.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct share {
	uint64_t client;
	uint32_t count;
};

struct shares {
	struct share *all; /* of those that have any */
	uint32_t count, max;
	uint32_t limit; /* of one client */
};

/* At most `max` are ever taken. -ENOMEM. */
int shares_init(struct shares *shares, uint32_t max, uint32_t limit);
void shares_done(struct shares *shares);
/* One more for this client; false: it has its share. */
bool share_take(struct shares *shares, uint64_t client);
void share_give(struct shares *shares, uint64_t client);
