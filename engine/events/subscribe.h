/*
 * Subscriptions to events, and the journals they read, one per tenant. All are on one shard: so
 * events have one order, and resuming needs one number. The op itself is declared in request.h.
 */
#pragma once

#include <stdint.h>

struct news_batch;
struct shard;
struct subscriptions;

enum { SUBSCRIPTIONS_SHARD = 0 };

/* -ENOMEM. */
int subscriptions_new(struct shard *shard, struct subscriptions **ret);
void subscriptions_free(struct subscriptions *subscriptions);
/*
 * What happened to a tenant's on a shard, in its order: numbered, kept, and told as soon as there
 * is time.
 */
void subscriptions_take(struct subscriptions *subscriptions, uint32_t tenant,
			const struct news_batch *batch);
