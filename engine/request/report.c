/*
 * What the engine says about itself: capabilities and the account of what it holds. Called by
 * request.c; every figure is read when asked.
 */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "engine/config.h"
#include "engine/request/request.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

void check_part(struct part *part)
{
	struct shard *shard = part->shard;
	const struct io_stats *io = io_stats(shard->io);
	struct backend_gauges gauges;
	struct tenancy sum;

	tenancies_sum(part, &sum);
	shard->backend->class->gauges(shard->backend, &gauges);
	part->check = (struct dsec_wire_check){
		.size = sizeof part->check,
		.clients = sum.clients,
		.sandboxes = sum.used[QUOTA_SANDBOXES],
		.execs = sum.used[QUOTA_EXECS],
		.slots = gauges.slots_made,
		.slots_free = gauges.slots_clean,
		.slots_rebuilding = gauges.slots_rebuilding,
		.launchers = gauges.launchers,
		.callbacks = io->callbacks,
		.callbacks_over_1ms = io->callbacks_over_1ms,
		.callback_max_ns = io->callback_max_ns,
		.created_total = sum.stats.created,
		.reused_total = gauges.reused,
		.destroyed_total = sum.stats.destroyed,
		.refused_total = sum.stats.refused,
		.failed_total = sum.stats.failed,
		.launchers_lost = gauges.launchers_lost,
		.networks = gauges.networks,
		.networks_ending = gauges.networks_ending,
		.networks_reused = gauges.networks_reused,
		.networks_discarded = gauges.networks_discarded,
		.forwards = sum.used[QUOTA_FORWARDS],
		.inbounds = pool_taken(&shard->forwards.inbounds),
		.tokens_refused = shard->forwards.tokens_refused,
		.quarantined = shard->quarantined,
		.slots_quarantined = gauges.slots_quarantined,
		.execs_undying = shard->execs_undying,
		.execs_kept = sum.kept.count,
		.files = sum.used[QUOTA_FILES],
		.port_waits = sum.used[QUOTA_PORT_WAITS],
		.imports = shard->imports,
		.sinks = shard->sinks.count,
		.subscriptions = sum.used[QUOTA_SUBSCRIPTIONS],
	};
	part_end(part, NULL, NULL);
}

void check_add(struct dsec_wire_check *sum, const struct dsec_wire_check *part)
{
	sum->clients += part->clients;
	sum->sandboxes += part->sandboxes;
	sum->execs += part->execs;
	sum->slots += part->slots;
	sum->slots_free += part->slots_free;
	sum->slots_rebuilding += part->slots_rebuilding;
	sum->launchers += part->launchers;
	sum->callbacks += part->callbacks;
	sum->callbacks_over_1ms += part->callbacks_over_1ms;
	if (sum->callback_max_ns < part->callback_max_ns)
		sum->callback_max_ns = part->callback_max_ns;
	sum->created_total += part->created_total;
	sum->reused_total += part->reused_total;
	sum->destroyed_total += part->destroyed_total;
	sum->refused_total += part->refused_total;
	sum->failed_total += part->failed_total;
	sum->launchers_lost += part->launchers_lost;
	sum->quarantined += part->quarantined;
	sum->slots_quarantined += part->slots_quarantined;
	sum->networks += part->networks;
	sum->networks_ending += part->networks_ending;
	sum->networks_reused += part->networks_reused;
	sum->networks_discarded += part->networks_discarded;
	sum->forwards += part->forwards;
	sum->inbounds += part->inbounds;
	sum->tokens_refused += part->tokens_refused;
	sum->execs_undying += part->execs_undying;
	sum->execs_kept += part->execs_kept;
	sum->files += part->files;
	sum->port_waits += part->port_waits;
	sum->imports += part->imports;
	sum->sinks += part->sinks;
	sum->subscriptions += part->subscriptions;
}

void check_narrow(const struct request *request, struct dsec_wire_check *check)
{
	const uint64_t hidden = UINT64_MAX;

	if (request->home->node->tenant_count == 1 || request->tenant->is_everyone)
		return;
	check->slots = check->slots_free = check->slots_rebuilding = hidden;
	check->launchers = check->launchers_lost = check->reused_total = hidden;
	check->callbacks = check->callbacks_over_1ms = check->callback_max_ns = hidden;
	check->networks = check->networks_ending = hidden;
	check->networks_reused = check->networks_discarded = hidden;
	check->inbounds = check->tokens_refused = hidden;
	check->quarantined = check->slots_quarantined = check->execs_undying = hidden;
	check->imports = check->sinks = hidden;
}

static uint32_t limit_of(const struct part *part, enum tenant_limit limit, uint32_t engines)
{
	const struct tenant *tenant = part->request->tenant;

	return tenant->has_limits && tenant->limits[limit] ? tenant->limits[limit] : engines;
}

void capabilities_part(struct part *part)
{
	const struct node *node = part->shard->node;
	const struct config *config = node->config;
	struct dsec_wire_caps body = {
		.size = sizeof body,
		.shards = node->shard_count,
		.features = node->features,
		.epoch = node->epoch,
		.node = { node->id, 0 },
		.sandboxes_max = limit_of(part, TENANT_SANDBOXES, config->sandboxes_max),
		.execs_max = limit_of(part, TENANT_EXECS, config->execs_max),
		.requests_max = config->requests_max,
		.clients_max = limit_of(part, TENANT_CLIENTS, config->clients_max),
		.argument_bytes_max = EXEC_ARGUMENT_BYTES_MAX,
		.output_bytes_max = EXEC_OUTPUT_BYTES_MAX,
		.backends = 1,
		.unenforced = node->unenforced,
	};
	struct emission e = { .kind = DSEC_EV_DONE, .body = &body, .bytes = sizeof body };
	struct utsname kernel;

	(void)snprintf(body.tenant, sizeof body.tenant, "%s", part->request->tenant->name);
	(void)snprintf(body.version, sizeof body.version, "%s", DSEC_VERSION);
	if (uname(&kernel) == 0)
		(void)snprintf(body.kernel, sizeof body.kernel, "%.63s", kernel.release);
	part_end(part, NULL, &e);
}
