/*
 * Dividing a shard among tenants. Called at the shard's start. Must hold: what tenants may take at
 * most, each its own part, is never more than the shard has, but where one alone may have what
 * nobody was promised.
 */
#include "engine/tenant/tenancy.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/config.h"
#include "engine/sandbox/ended.h"
#include "engine/file/file.h"
#include "engine/port/forward.h"
#include "engine/function/function.h"
#include "engine/port/port.h"
#include "engine/request/request.h"
#include "engine/shard.h"
#include "engine/events/subscribe.h"

/* Of the whole engine's limit, rounded up: what a shard keeps for it. */
static uint32_t promised(const struct shard *shard, uint32_t tenant, enum tenant_limit limit)
{
	const uint32_t shards = shard->config->shards;

	return (shard->node->tenants[tenant].limits[limit] + shards - 1) / shards;
}

/*
 * Of places that tenants have a limit for in the whole engine: more than its part may be on one
 * shard, as long as the others' parts stay.
 */
static uint32_t part_of_limit(const struct shard *shard, uint32_t tenant, enum tenant_limit limit,
			      uint32_t whole)
{
	uint32_t own = promised(shard, tenant, limit), others = 0;

	for (uint32_t i = 0; i < shard->node->tenant_count; i++)
		others += i == tenant ? 0 : promised(shard, i, limit);
	if (whole > others && whole - others > own)
		own = whole - others;
	return own < whole ? own : whole;
}

/* Of the others each has as much as any. */
static uint32_t even_part(const struct shard *shard, uint32_t whole)
{
	const uint32_t tenants = shard->node->tenant_count;
	uint32_t part = tenants > 1 ? whole / (tenants + 1) : whole; /* everyone is one, too */

	return part ? part : 1;
}

static void quotas_set(struct tenancy *tenancy)
{
	const struct shard *shard = tenancy->shard;
	const struct config *config = shard->config;
	uint32_t index = tenancy->tenant->index, *max = tenancy->max;

	if (!tenancy->tenant->is_everyone) {
		max[QUOTA_SANDBOXES] =
			part_of_limit(shard, index, TENANT_SANDBOXES, shard->sandboxes.count);
		max[QUOTA_EXECS] = part_of_limit(shard, index, TENANT_EXECS, shard->execs_max);
	}
	max[QUOTA_CREATES] = even_part(shard, config->creates_waiting_max);
	max[QUOTA_REQUESTS] = even_part(shard, shard->node->requests_per_shard);
	max[QUOTA_FILES] = even_part(shard, shard->files.count);
	max[QUOTA_FORWARDS] = even_part(shard, FORWARDS_MAX);
	max[QUOTA_INBOUNDS] = even_part(shard, config->inbounds_max);
	max[QUOTA_PORT_WAITS] = even_part(shard, PORT_WAITS_MAX);
	max[QUOTA_SUBSCRIPTIONS] = even_part(shard, SUBSCRIPTIONS_MAX);
	max[QUOTA_FUNCTIONS] = even_part(shard, FUNCTIONS_MAX);
	max[QUOTA_CALLS] = even_part(shard, CALLS_PER_SHARD_MAX);
}

static int tenancy_init(struct tenancy *tenancy, struct shard *shard, struct tenant *tenant)
{
	const struct node *node = shard->node;
	struct records_options records = { .count = tenant->limits[TENANT_RECORDS],
					   .epoch_ms = node->epoch,
					   .epoch_ns = node->epoch_ns };
	const uint32_t news_bytes = even_part(shard, NEWS_BATCH_BYTES) & ~7u;
	int r;

	*tenancy = (struct tenancy){ .tenant = tenant, .shard = shard };
	tenancy->kept.count_max = even_part(shard, EXECS_KEPT_PER_SHARD);
	tenancy->kept.bytes_max = even_part(shard, EXEC_KEPT_BYTES_PER_SHARD);
	quotas_set(tenancy);
	tenancy->gone = calloc(1, sizeof *tenancy->gone);
	if (!tenancy->gone)
		return -ENOMEM;
	r = news_open(&tenancy->news, shard, tenant->index,
		      news_bytes > NEWS_BATCH_BYTES_MIN ? news_bytes : NEWS_BATCH_BYTES_MIN);
	if (r < 0)
		return r;
	records.bytes_max = even_part(shard, RECORDS_BYTES_PER_SHARD);
	return records_init(&tenancy->records, &records);
}

int tenancies_init(struct shard *shard)
{
	struct node *node = shard->node;
	int r = 0;

	shard->tenancies = calloc(node->tenant_count + 1, sizeof *shard->tenancies);
	if (!shard->tenancies)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i <= node->tenant_count; i++)
		r = tenancy_init(&shard->tenancies[i], shard, &node->tenants[i]);
	if (r == 0 && shard->number == SUBSCRIPTIONS_SHARD)
		r = subscriptions_new(shard, &shard->subscriptions);
	return r;
}

void tenancies_done(struct shard *shard)
{
	for (uint32_t i = 0; shard->tenancies && i <= shard->node->tenant_count; i++) {
		records_done(&shard->tenancies[i].records);
		free(shard->tenancies[i].gone);
		news_done(&shard->tenancies[i].news);
	}
	subscriptions_free(shard->subscriptions);
	free(shard->tenancies);
	shard->tenancies = NULL;
}

struct tenancy *tenancy_of(const struct part *part)
{
	return &part->shard->tenancies[part->request->tenant->index];
}

/* All that it may see are looked through, so that how long it takes tells nothing of the others. */
const struct ended *tenancy_ended(const struct part *part, struct dsec_wire_id id)
{
	const struct shard *shard = part->shard;
	const struct ended *found = NULL;

	for (uint32_t i = 0; !found && i < shard->node->tenant_count; i++)
		if (tenant_sees(part->request->tenant, shard->tenancies[i].tenant))
			found = ended_find(shard->tenancies[i].gone, id);
	return found;
}

void tenancies_sum(const struct part *part, struct tenancy *ret)
{
	const struct shard *shard = part->shard;

	*ret = (struct tenancy){ 0 };
	for (uint32_t i = 0; i <= shard->node->tenant_count; i++) {
		const struct tenancy *one = &shard->tenancies[i];

		if (!tenant_sees(part->request->tenant, one->tenant))
			continue;
		ret->clients += one->clients;
		ret->kept.count += one->kept.count;
		ret->stats.created += one->stats.created;
		ret->stats.destroyed += one->stats.destroyed;
		ret->stats.refused += one->stats.refused;
		ret->stats.failed += one->stats.failed;
		for (int k = 0; k < QUOTAS; k++)
			ret->used[k] += one->used[k];
	}
}

void tenancies_tell(struct shard *shard)
{
	for (uint32_t i = 0; i < shard->node->tenant_count; i++)
		news_send(&shard->tenancies[i].news);
}

bool tenancies_are_told(const struct shard *shard)
{
	bool told = true;

	for (uint32_t i = 0; i < shard->node->tenant_count; i++)
		told &= news_is_told(&shard->tenancies[i].news);
	return told;
}
