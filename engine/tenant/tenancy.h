/*
 * What a tenant has on one shard: its records, the memory of what it had, and its part of what the
 * shard holds a fixed number of, so that one that takes all of its part leaves the others theirs.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/exec/exec.h"
#include "engine/events/news.h"
#include "engine/request/records.h"
#include "engine/tenant/tenant.h"

struct ended;
struct ended_list;
struct part;
struct shard;

/* Places of a shard that tenants share. */
enum quota {
	QUOTA_SANDBOXES,
	QUOTA_EXECS,
	QUOTA_CREATES, /* admitted but not started */
	QUOTA_REQUESTS,
	QUOTA_FILES,
	QUOTA_FORWARDS,
	QUOTA_INBOUNDS,
	QUOTA_PORT_WAITS,
	QUOTA_FUNCTIONS,
	QUOTA_CALLS,
	QUOTA_SUBSCRIPTIONS, /* on the shard that keeps them */
	QUOTAS,
};

struct tenancy_stats {
	uint64_t created, destroyed, refused, failed;
};

struct tenancy {
	struct tenant *tenant;
	struct shard *shard;
	struct records records;	 /* of requests, by their ids */
	struct ended_list *gone; /* sandboxes that ended */
	struct kept_execs kept;
	struct news news; /* for who subscribed */
	struct tenancy_stats stats;
	uint32_t clients;
	uint32_t used[QUOTAS], max[QUOTAS];
};

/* One for each tenant of the node, and everyone's. -errno. */
int tenancies_init(struct shard *shard);
void tenancies_done(struct shard *shard);
/* Whose the part's request is, on its shard. */
struct tenancy *tenancy_of(const struct part *part);

/* One that ended, if it is for the part's tenant to know; NULL. */
const struct ended *tenancy_ended(const struct part *part, struct dsec_wire_id id);

/* Once a turn: what happened goes to the journals. */
void tenancies_tell(struct shard *shard);
/* Nothing is on its way there. */
bool tenancies_are_told(const struct shard *shard);
/* Of those that the part's tenant sees: clients, stats, used and kept execs, each added up. */
void tenancies_sum(const struct part *part, struct tenancy *ret);

/* `count` more; false: not so many are left of its part. */
static inline bool quota_take(struct tenancy *tenancy, enum quota quota, uint32_t count)
{
	if (tenancy->max[quota] - tenancy->used[quota] < count)
		return false;
	tenancy->used[quota] += count;
	return true;
}

static inline bool quota_has(const struct tenancy *tenancy, enum quota quota)
{
	return tenancy->used[quota] < tenancy->max[quota];
}

static inline void quota_give(struct tenancy *tenancy, enum quota quota, uint32_t count)
{
	tenancy->used[quota] -= count;
}
