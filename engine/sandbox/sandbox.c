/*
 * Sandboxes of a shard, from built to gone. Called by the ops, by timers and by the backend.
 * Destroy is legal in every state; what waits for it is told exactly once, when nothing of the
 * sandbox runs.
 */
#include "engine/sandbox/sandbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/sandbox/ended.h"
#include "engine/exec/exec.h"
#include "engine/sandbox/limits.h"
#include "engine/sandbox/still.h"
#include "engine/file/file.h"
#include "engine/integrity/integrity.h"
#include "engine/names/resolver.h"
#include "engine/policy/names.h"
#include "engine/policy/policies.h"
#include "engine/request/selection.h"
#include "engine/events/news.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

static void sandbox_expired(struct timer *timer);

/* Of a state that must not last: the timer is the lifetime's while it runs. */
static void sandbox_deadline(struct sandbox *sandbox, uint32_t seconds)
{
	struct shard *shard = sandbox->shard;

	(void)timer_set(&shard->timers, &sandbox->expiry, /* room for one per sandbox */
			io_now_ns(shard->io) + seconds * 1000000000ull);
}

static bool place_take(struct tenancy *tenancy, const char **ret_limit)
{
	*ret_limit = tenancy->tenant->has_limits ? "tenant_sandboxes_max" : "sandboxes_max";
	if (!tenant_take(tenancy->tenant, TENANT_SANDBOXES))
		return false;
	if (quota_take(tenancy, QUOTA_SANDBOXES, 1))
		return true;
	tenant_give(tenancy->tenant, TENANT_SANDBOXES);
	return false;
}

static void place_give(struct tenancy *tenancy)
{
	quota_give(tenancy, QUOTA_SANDBOXES, 1);
	tenant_give(tenancy->tenant, TENANT_SANDBOXES);
}

static struct sandbox *sandbox_take(struct shard *shard)
{
	struct sandbox *sandbox = pool_take(&shard->sandboxes);

	if (!sandbox)
		return NULL;
	sandbox->box = shard->backend->class->box_new(shard->backend);
	if (sandbox->box)
		return sandbox;
	pool_put(&shard->sandboxes, sandbox);
	return NULL;
}

struct sandbox *sandbox_new(struct tenancy *tenancy, const char **ret_limit)
{
	struct shard *shard = tenancy->shard;
	struct sandbox *sandbox;

	if (!place_take(tenancy, ret_limit))
		return NULL;
	sandbox = sandbox_take(shard);
	if (!sandbox) {
		place_give(tenancy);
		*ret_limit = "sandboxes_max";
		return NULL;
	}
	sandbox->tenancy = tenancy;
	/* shard 12 | sequence 32 | place in the pool 20: found without a table, never used again */
	sandbox->id.hi = shard->node->id;
	sandbox->id.lo = (uint64_t)shard->number << DSEC_ID_SHARD_SHIFT |
			 (++shard->id_sequence & 0xffffffff) << 20 |
			 pool_index_of(&shard->sandboxes, sandbox);
	sandbox->shard = shard;
	sandbox->state = DSEC_STATE_CREATING;
	sandbox->created_ns = io_now_ns(shard->io); /* until it is built */
	sandbox->lifetime.used_ns = sandbox->created_ns;
	sandbox->exec_next = 1;
	sandbox->phase.version = 1;
	sandbox->box->owner = sandbox;
	sandbox->expiry.expired = sandbox_expired;
	sandbox_deadline(sandbox, CREATE_LIMIT_S);
	shard->sandboxes_live++;
	return sandbox;
}

void sandbox_free(struct sandbox *sandbox)
{
	struct shard *shard = sandbox->shard;

	timer_clear(&shard->timers, &sandbox->expiry);
	sandbox_end_over(sandbox);
	shard->quarantined -= sandbox->state == DSEC_STATE_QUARANTINED;
	shard->backend->class->box_free(sandbox->box);
	if (sandbox->image)
		image_put(shard, sandbox->image);
	if (sandbox->policy)
		policy_put(sandbox->policy);
	phase_done(sandbox);
	free(sandbox->labels.bytes);
	free(sandbox->env.bytes);
	free(sandbox->first_image);
	place_give(sandbox->tenancy);
	pool_put(&shard->sandboxes, sandbox);
	shard->sandboxes_live--;
	shard_check_stopped(shard);
}

const char *sandbox_image_name(const struct sandbox *sandbox)
{
	return sandbox->first_image ? sandbox->first_image : sandbox->image->name;
}

struct sandbox *sandbox_find(struct shard *shard, const struct tenant *viewer,
			     struct dsec_wire_id id)
{
	uint32_t index = id.lo & 0xfffff; /* anybody's: an id may be made up */
	struct sandbox *sandbox =
		index < shard->sandboxes.count ? pool_at(&shard->sandboxes, index) : NULL;

	if (!sandbox || sandbox->id.lo != id.lo || sandbox->id.hi != id.hi)
		return NULL;
	return tenant_sees(viewer, sandbox->tenancy->tenant) ? sandbox : NULL;
}

struct sandbox *sandbox_of(const struct part *part)
{
	return sandbox_find(part->shard, part->request->tenant, part->request->entry.subject);
}

const struct guard_name *sandbox_name(const struct sandbox *sandbox, const char *name)
{
	return sandbox->policy ? names_find(&sandbox->policy->guard, name) : NULL;
}

const struct anomaly_rules *sandbox_anomalies(const struct sandbox *sandbox)
{
	return sandbox->policy ? &sandbox->policy->anomalies : &anomaly_defaults;
}

struct dsec_wire_created sandbox_settings(const struct sandbox *sandbox)
{
	const struct config *config = sandbox->shard->config;
	const struct box_spec *spec = &sandbox->box->spec;
	const struct box_limits *limits = &spec->limits;

	return (struct dsec_wire_created){
		.size = sizeof(struct dsec_wire_created),
		.backend = 1,
		.network = sandbox->network,
		.network_why = (uint16_t)sandbox->network_why,
		.network_scope = sandbox->network == DSEC_NETWORK_SHARED ?
					 (uint16_t)config->shared_scope :
					 DSEC_NETWORK_SCOPE_SANDBOX,
		.flags = sandbox->flags,
		.memory_bytes = limits->memory_bytes,
		.disk_bytes = spec->disk_bytes ? spec->disk_bytes : config->disk_bytes,
		.inodes = spec->inodes ? spec->inodes : config->disk_inodes,
		.pids_max = limits->pids_max,
		.ttl_s = sandbox->lifetime.ttl_s,
		.idle_ttl_s = sandbox->lifetime.idle_ttl_s,
		.on_disconnect = sandbox->on_disconnect,
		.unenforced = limits_in_force(limits) & sandbox->shard->node->unenforced,
		.reused = sandbox->box->reused,
		.swap_bytes = limits->swap_bytes,
		.io_bytes_per_s = limits->io_bytes_per_s,
		.cpu_weight = limits->cpu_weight,
		.cpu_max_permille = limits->cpu_max_permille,
		.io_weight = limits->io_weight,
		.on_timeout = sandbox->on_timeout,
		.output_limit_bytes = sandbox->output_limit_bytes,
		.processes_per_s = limits->processes_per_s,
		.policy = sandbox->policy ? sandbox->policy->guard.number : 0,
		.rules_unenforced =
			sandbox->policy ?
				policy_unenforced(sandbox->policy, sandbox->box->rules_absent) :
				0,
	};
}

/* Leaves come and go one by one; it is told of once. */
void sandbox_throttled(struct box *box, const struct box_throttle *what)
{
	struct sandbox *sandbox = box->owner;

	if (what->kind == BOX_THROTTLE_BEGINS) {
		if (sandbox->leaves_throttled++ == 0)
			news_of_sandbox(sandbox, DSEC_TOPIC_THROTTLED);
	} else if (what->kind == BOX_THROTTLE_THAWED) {
		sandbox->throttles++;
		sandbox->throttled_us += what->frozen_us;
		integrity_throttled(sandbox);
	} else if (what->kind == BOX_THROTTLE_BOMB) {
		execs_end_bomb(sandbox, what->leaf, what->since_ns);
	} else if (sandbox->leaves_throttled && --sandbox->leaves_throttled == 0) {
		news_of_sandbox(sandbox, DSEC_TOPIC_UNTHROTTLED);
	}
}

/* ---- time ---- */

static bool sandbox_is_busy(const struct sandbox *sandbox)
{
	return sandbox->exec_count || sandbox->file_count || sandbox->inbound_count;
}

void sandbox_touch(struct sandbox *sandbox)
{
	sandbox->lifetime.used_ns = io_now_ns(sandbox->shard->io);
	sandbox_reckon(sandbox);
}

void sandbox_reckon(struct sandbox *sandbox)
{
	struct timers *timers = &sandbox->shard->timers;
	uint32_t cause;
	uint64_t at;

	if (sandbox->state != DSEC_STATE_RUNNING)
		return;
	at = lifetime_end_ns(&sandbox->lifetime, sandbox_is_busy(sandbox), &cause);
	if (at == LIFETIME_NONE)
		timer_clear(timers, &sandbox->expiry);
	else if (!timer_is_set(&sandbox->expiry) || sandbox->expiry.at_ns != at)
		(void)timer_set(timers, &sandbox->expiry, at); /* room for one per sandbox */
}

uint64_t sandbox_ttl_ms(const struct sandbox *sandbox)
{
	uint64_t now_ns = io_now_ns(sandbox->shard->io);

	if (sandbox->state != DSEC_STATE_RUNNING || !timer_is_set(&sandbox->expiry))
		return UINT64_MAX;
	return sandbox->expiry.at_ns > now_ns ? (sandbox->expiry.at_ns - now_ns) / 1000000 : 0;
}

/* ---- what does not end in time ---- */

static void waiters_tell(struct sandbox *sandbox, const struct status *status)
{
	struct gone_waiter *waiter = sandbox->waiters, *next;

	sandbox->waiters = NULL;
	for (; waiter; waiter = next) {
		struct part *part = waiter->part;

		next = waiter->next;
		free(waiter);
		if (status)
			status_merge(&part->status, status);
		if (--part->running == 0)
			part_end(part, NULL, NULL);
	}
}

static struct status status_quarantined(void)
{
	return (struct status){
		.code = DSEC_FAILED,
		.blame = DSEC_BLAME_PLATFORM,
		.error = EBUSY,
		.table = "destroy",
		.step = "quarantine",
		.detail = "its processes do not die; it is tried again until they do"
	};
}

void sandbox_quarantine(struct sandbox *sandbox)
{
	struct shard *shard = sandbox->shard;
	const char *step = flow_step_name(&sandbox->box->flow);
	struct status s = status_quarantined();

	log_error("sandbox quarantined id=%u.%llx step=%s: it does not %s, trying again",
		  shard->number, (unsigned long long)sandbox->id.lo, step ? step : "none",
		  sandbox->state == DSEC_STATE_CREATING ? "come to be" : "end");
	sandbox->state = DSEC_STATE_QUARANTINED;
	news_of_sandbox(sandbox, DSEC_TOPIC_QUARANTINED);
	shard->quarantined++;
	sandbox_end_over(sandbox);
	sandbox_deadline(sandbox, QUARANTINE_RETRY_S);
	execs_overdue(sandbox);
	files_overdue(sandbox);
	waiters_tell(sandbox, &s);
}

static void sandbox_overdue(struct sandbox *sandbox)
{
	switch (sandbox->state) {
	case DSEC_STATE_CREATING:
		create_overdue(sandbox);
		break;
	case DSEC_STATE_DESTROYING:
		sandbox_quarantine(sandbox);
		break;
	default:
		sandbox->box->backend->class->box_retry(sandbox->box);
		sandbox_deadline(sandbox, QUARANTINE_RETRY_S);
	}
}

static void sandbox_expired(struct timer *timer)
{
	struct sandbox *sandbox = container_of(timer, struct sandbox, expiry);
	uint32_t cause;

	if (sandbox->state != DSEC_STATE_RUNNING) {
		sandbox_overdue(sandbox);
		return;
	}
	(void)lifetime_end_ns(&sandbox->lifetime, sandbox_is_busy(sandbox), &cause); /* it is now */
	sandbox_destroy(sandbox, cause, NULL);
}

/* ---- the end ---- */

static void sandbox_try_free(struct sandbox *sandbox);

static void sandbox_gone(struct box *box)
{
	struct sandbox *sandbox = box->owner;

	sandbox->box->owner = NULL;
	sandbox_try_free(sandbox);
}

static void sandbox_died(struct box *box, int status)
{
	struct sandbox *sandbox = box->owner;

	log_warning("sandbox died id=%u.%llx status=0x%x", sandbox->shard->number,
		    (unsigned long long)sandbox->id.lo, (unsigned int)status);
	sandbox_destroy(sandbox, DSEC_CAUSE_DIED, NULL);
}

void sandbox_built(struct sandbox *sandbox)
{
	sandbox->shard->quarantined -= sandbox->state == DSEC_STATE_QUARANTINED;
	sandbox->state = DSEC_STATE_RUNNING;
	sandbox->created_ns = io_now_ns(sandbox->shard->io);
	sandbox->lifetime.ttl_from_ns = sandbox->created_ns;
	sandbox->box->died = sandbox_died;
	sandbox->box->gone = sandbox_gone;
	sandbox->tenancy->stats.created++;
	news_of_sandbox(sandbox, DSEC_TOPIC_RUNNING);
	integrity_watch(sandbox);
	resolver_begin(sandbox);
	sandbox_touch(sandbox);
	if (sandbox->wanted_gone)
		sandbox_destroy(sandbox, sandbox->cause, NULL);
}

/* Frees it, then tells those who wait for its end. */
static void sandbox_free_and_tell(struct sandbox *sandbox)
{
	struct sandbox last = { .waiters = sandbox->waiters };

	sandbox->waiters = NULL;
	sandbox_free(sandbox);
	waiters_tell(&last, NULL);
}

void sandbox_failed(struct sandbox *sandbox)
{
	news_of_sandbox(sandbox, DSEC_TOPIC_ENDED);
	sandbox_free_and_tell(sandbox);
}

static void sandbox_remember(const struct sandbox *sandbox)
{
	const struct ended ended = { .id = sandbox->id,
				     .at_ns = io_now_ns(sandbox->shard->io),
				     .cause = sandbox->cause,
				     .tainted = integrity_taint(sandbox) };

	ended_add(sandbox->tenancy->gone, &ended);
	news_of_sandbox(sandbox, DSEC_TOPIC_ENDED);
}

/* When its box is gone, and so are its execs and operations on files. */
static void sandbox_try_free(struct sandbox *sandbox)
{
	if (sandbox->state < DSEC_STATE_DESTROYING || sandbox->box->owner || sandbox->execs ||
	    sandbox->files || sandbox->usage_readers || sandbox->phase.move || sandbox->still)
		return;
	sandbox_remember(sandbox);
	sandbox->tenancy->stats.destroyed++;
	sandbox_free_and_tell(sandbox);
}

/* Who waits for the last one goes on, and frees it later if need be. */
static void sandbox_ended_one(struct sandbox *sandbox)
{
	sandbox_touch(sandbox);
	if (sandbox->phase.move)
		phase_ended_one(sandbox);
	else
		sandbox_try_free(sandbox);
}

void sandbox_exec_over(struct sandbox *sandbox)
{
	sandbox->exec_count--;
	sandbox_ended_one(sandbox);
}

void sandbox_file_over(struct sandbox *sandbox)
{
	sandbox->file_count--;
	sandbox_ended_one(sandbox);
}

void sandbox_usage_over(struct sandbox *sandbox)
{
	sandbox_try_free(sandbox);
}

void sandbox_move_over(struct sandbox *sandbox)
{
	sandbox_try_free(sandbox);
}

void sandbox_still_over(struct sandbox *sandbox)
{
	sandbox_try_free(sandbox);
}

static void sandbox_wait(struct sandbox *sandbox, struct part *part)
{
	struct gone_waiter *waiter = malloc(sizeof *waiter);

	if (!waiter) {
		struct status s = status_of_errno(-ENOMEM, "destroy", "wait");

		status_merge(&part->status, &s); /* it goes; only nobody can say when */
		return;
	}
	part->running++;
	*waiter = (struct gone_waiter){ part, sandbox->waiters };
	sandbox->waiters = waiter;
}

void sandbox_destroy(struct sandbox *sandbox, enum dsec_cause cause, struct part *waiter)
{
	struct status ended = status_absent();

	ended.detail = "it ended before the operation did";
	if (waiter)
		sandbox_wait(sandbox, waiter);
	if (!sandbox->cause)
		sandbox->cause = cause;
	if (sandbox->state == DSEC_STATE_CREATING) {
		sandbox->wanted_gone = true;
		return;
	}
	if (sandbox->state == DSEC_STATE_QUARANTINED) {
		struct status s = status_quarantined();

		waiters_tell(sandbox, &s);
		return;
	}
	if (sandbox->state == DSEC_STATE_DESTROYING)
		return;
	sandbox->state = DSEC_STATE_DESTROYING;
	news_of_sandbox(sandbox, DSEC_TOPIC_DESTROYING);
	sandbox_deadline(sandbox, DESTROY_LIMIT_S);
	execs_end(sandbox);
	files_end(sandbox, &ended);
	forwards_end(sandbox);
	if (sandbox->still)
		still_hurry(sandbox->still);
	sandbox->shard->backend->class->box_unwind(sandbox->box);
}

/* ---- selections ---- */

bool sandbox_label(const struct sandbox *sandbox, const char *key, const char **ret,
		   size_t *ret_bytes)
{
	const struct wire own = { sandbox->labels.bytes, sandbox->labels.byte_count };
	const struct dsec_wire_items all = { 0, own.bytes, sandbox->labels.count, 0 };
	const size_t bytes = strlen(key);
	struct dsec_wire_ref name, value;
	uint32_t cursor = 0;

	while (wire_next(&own, &all, &cursor, &name) > 0 &&
	       wire_next(&own, &all, &cursor, &value) > 0) {
		if (name.bytes != bytes || memcmp(own.payload + name.at, key, bytes) != 0)
			continue;
		*ret = own.payload + value.at;
		*ret_bytes = value.bytes;
		return true;
	}
	return false;
}

bool sandbox_has_labels(const struct sandbox *sandbox, const struct wire *payload,
			const struct dsec_wire_items *labels)
{
	const struct wire own = { sandbox->labels.bytes, sandbox->labels.byte_count };
	const struct dsec_wire_items all = { 0, own.bytes, sandbox->labels.count, 0 };

	return selection_labels_match(&own, &all, payload, labels);
}
