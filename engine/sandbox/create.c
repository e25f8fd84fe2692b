/*
 * The create op: a part makes `count` sandboxes on its shard, a bounded number at a time, and emits
 * one CREATED for each, good or refused. Called by request.c. What cannot be held is refused at
 * once, so that created + refused = asked.
 */
#include "engine/sandbox/create.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/sandbox/create_policy.h"
#include "engine/sandbox/create_state.h"
#include "engine/sandbox/create_replay.h"
#include "engine/image/image.h"
#include "engine/sandbox/limits.h"
#include "engine/policy/policy_want.h"
#include "engine/events/news.h"
#include "engine/sandbox/network.h"
#include "engine/request/request.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

enum { REFUSALS_PER_TURN = 64 };

static void create_more(struct creation *creation);

static void creation_end(struct creation *creation, const struct status *status)
{
	struct part *part = creation->part;
	struct create_source *source = creation->source;

	part->undone = !creation->is_done && !status;
	part->work = NULL;
	if (creation->image.image)
		image_put(part->shard, creation->image.image);
	if (creation->policy.policy)
		policy_put(creation->policy.policy);
	free(creation);
	if (source)
		source->over(source, status);
	else
		part_end(part, status, NULL);
}

static void emit_failed(struct part *part, uint32_t index, const struct status *status)
{
	struct emission e = { .kind = DSEC_EV_CREATED,
			      .index = (uint16_t)index,
			      .status = *status };
	struct creation *creation = part->work;

	creation->is_done |= status->code != DSEC_REFUSED;
	part_emit(part, &e);
}

static void emit_created(struct part *part, const struct sandbox *sandbox)
{
	struct dsec_wire_created body = sandbox_settings(sandbox);
	struct emission e = {
		.kind = DSEC_EV_CREATED,
		.flags = sandbox_event_flags(sandbox),
		.subject = sandbox->id,
		.index = (uint16_t)sandbox->index,
		.body = &body,
		.bytes = sizeof body,
	};
	struct creation *creation = part->work;

	creation->is_done = true;
	part_emit(part, &e);
}

/* The first place of `from`, which there is, becomes that of `to`. */
static void under_way_change(struct creation *creation, const struct sandbox *from,
			     struct sandbox *to)
{
	struct sandbox **at = creation->under_way;

	while (*at != from)
		at++;
	*at = to;
}

static void create_one_done(struct part *part, const struct sandbox *sandbox)
{
	struct creation *creation = part->work;

	under_way_change(creation, sandbox, NULL);
	part->running--;
	quota_give(tenancy_of(part), QUOTA_CREATES, 1);
	if (!creation->pumping)
		create_more(creation);
}

void create_overdue(struct sandbox *sandbox)
{
	struct part *part = sandbox->creator;
	struct status s = { .code = DSEC_FAILED,
			    .blame = DSEC_BLAME_PLATFORM,
			    .error = ETIMEDOUT,
			    .table = "container",
			    .step = flow_step_name(&sandbox->box->flow),
			    .detail = "it was not built in time; quarantined until it is gone" };

	sandbox->creator = NULL;
	sandbox->wanted_gone = true;
	tenancy_of(part)->stats.failed++;
	emit_failed(part, sandbox->index, &s);
	sandbox_quarantine(sandbox);
	create_one_done(part, sandbox);
}

static void box_built(struct box *box, int error)
{
	struct sandbox *sandbox = box->owner;
	struct part *part = sandbox->creator;

	sandbox->creator = NULL;
	if (!part) { /* too late: see create_overdue() */
		if (error)
			sandbox_failed(sandbox);
		else
			sandbox_built(sandbox);
		return;
	}
	if (error) {
		struct status s = status_of_errno(error, "container", box->failed_step);

		if (s.code == DSEC_REFUSED)
			tenancy_of(part)->stats.refused++;
		else
			tenancy_of(part)->stats.failed++;
		if (s.code == DSEC_CANCELLED)
			status_merge(&part->status, &s);
		emit_failed(part, sandbox->index, &s);
		sandbox_failed(sandbox);
	} else {
		emit_created(part, sandbox);
		if (part->cancelled && (sandbox->flags & DSEC_CREATE_DESTROY_IF_CANCELLED)) {
			sandbox->wanted_gone = true;
			sandbox->cause = DSEC_CAUSE_CANCELLED;
		}
		sandbox_built(sandbox);
	}
	create_one_done(part, sandbox);
}

static struct box_spec spec_of(const struct creation *creation)
{
	const struct part *part = creation->part;
	const struct config *config = part->shard->config;
	const struct dsec_wire_create *c = creation->fields;
	struct policy *policy = creation->policy.policy;
	const bool is_policed = network_leads_out(creation->network.network) &&
				policy_leads_out(policy);

	if (creation->source)
		return creation->source->spec;
	return (struct box_spec){
		.network = network_of(creation->network.network, is_policed),
		.network_group = network_group_of(part->request, config->shared_scope, is_policed),
		.is_policed = is_policed,
		.asks_names = is_policed && policy->guard.name_count && part->shard->resolver,
		.walls = policy->walls,
		.policy = policy_number_held(policy),
		.fresh_root = c->flags & DSEC_CREATE_FRESH_ROOT,
		.limits = limits_of(config, c),
		.disk_bytes = c->disk_bytes,
		.inodes = c->inodes,
	};
}

static void sandbox_describe(struct sandbox *sandbox, const struct creation *creation)
{
	const struct request *request = creation->part->request;
	const struct dsec_wire_create *c = creation->fields;
	struct box_spec *spec = &sandbox->box->spec;

	sandbox->client = request->client;
	memcpy(sandbox->request_id, request->entry.request_id, sizeof sandbox->request_id);
	sandbox->on_disconnect = c->on_disconnect;
	sandbox->flags = c->flags;
	sandbox->on_timeout = DSEC_ON_TIMEOUT_DESTROY;
	sandbox->output_limit_bytes = c->output_limit_bytes;
	sandbox->lifetime.ttl_s = c->ttl_s ? c->ttl_s : sandbox->shard->config->ttl_default_s;
	sandbox->lifetime.idle_ttl_s = c->idle_ttl_s;
	sandbox->network = creation->network.network;
	sandbox->network_why = creation->network.why;
	sandbox->image = creation->image.image;
	image_use(sandbox->shard, sandbox->image);
	sandbox->policy = creation->policy.policy;
	policy_use(sandbox->policy);
	memcpy(sandbox->hostname, creation->hostname, sizeof sandbox->hostname);
	if (creation->source) /* each its own */
		(void)snprintf(sandbox->hostname, sizeof sandbox->hostname, "fork-%llx",
			       (unsigned long long)sandbox->id.lo);
	memcpy(sandbox->user, creation->user, sizeof sandbox->user);
	*spec = spec_of(creation);
	spec->id_hi = sandbox->id.hi;
	spec->id_lo = sandbox->id.lo;
	spec->whose = request->client;
	spec->image = sandbox->image->number;
	spec->hostname = *sandbox->hostname ? sandbox->hostname : "sandbox";
}

static int items_copy(const struct wire *payload, const struct dsec_wire_items *items,
		      struct packed *ret)
{
	if (!items->count)
		return 0;
	ret->bytes = malloc(items->bytes);
	if (!ret->bytes)
		return -ENOMEM;
	memcpy(ret->bytes, payload->payload + items->at, items->bytes);
	ret->byte_count = items->bytes;
	ret->count = items->count;
	return 0;
}

static int fork_of(struct sandbox *sandbox, const struct create_source *source)
{
	sandbox->fork_of = source->id;
	sandbox->first_image = strdup(source->first_image);
	return sandbox->first_image ? 0 : -ENOMEM;
}

static struct status create_one(struct creation *creation, uint32_t index)
{
	struct part *part = creation->part;
	struct shard *shard = part->shard;
	struct sandbox *sandbox;
	const char *limit;
	int r;

	if (part->cancelled || shard->stopping)
		return status_of_errno(-ECANCELED, "create", "cancel");
	if (creation->failure.code) {
		tenancy_of(part)->stats.failed++;
		return creation->failure;
	}
	sandbox = sandbox_new(tenancy_of(part), &limit);
	if (!sandbox) {
		tenancy_of(part)->stats.refused++;
		return status_of_errno(-EAGAIN, "create", limit);
	}
	r = items_copy(creation->payload, &creation->fields->labels, &sandbox->labels);
	if (r >= 0)
		r = items_copy(creation->payload, &creation->fields->env, &sandbox->env);
	if (r >= 0 && creation->source)
		r = fork_of(sandbox, creation->source);
	if (r < 0) {
		sandbox_free(sandbox);
		return status_of_errno(r, "create", "labels");
	}
	sandbox_describe(sandbox, creation);
	news_of_sandbox(sandbox, DSEC_TOPIC_CREATING);
	sandbox->creator = part;
	sandbox->index = index;
	sandbox->box->built = box_built;
	sandbox->box->throttled = sandbox_throttled;
	part->running++;
	under_way_change(creation, NULL, sandbox);
	shard->backend->class->box_build(sandbox->box);
	return STATUS_OK;
}

static void create_again(struct mail *mail, void *owner)
{
	struct creation *creation = container_of(mail, struct part, mail)->work;

	(void)owner; /* part->shard */
	creation->resting = false;
	create_more(creation);
}

/* Over the limit for creates that wait: refused, from the end of the count. */
static struct status refuse_one(struct part *part, uint32_t *ret_index)
{
	struct creation *creation = part->work;
	struct status s;

	*ret_index = part->first + --part->count;
	creation->excess--;
	tenancy_of(part)->stats.refused++;
	s = status_of_errno(-EAGAIN, "create", creation->excess_of);
	if (creation->retry_ms)
		s.retry_after_ms = creation->retry_ms;
	return s;
}

static void create_more(struct creation *creation)
{
	struct part *part = creation->part;
	int refused = 0;

	creation->pumping = true;
	while (refused < REFUSALS_PER_TURN &&
	       (creation->excess ||
		(part->started < part->count && part->running < CREATES_AT_ONCE))) {
		bool excess = creation->excess;
		uint32_t index = part->first + part->started;
		struct status s = excess ? refuse_one(part, &index) : create_one(creation, index);

		part->started += !excess;
		if (!s.code)
			continue;
		quota_give(tenancy_of(part), QUOTA_CREATES, !excess);
		emit_failed(part, index, &s);
		if (s.code == DSEC_CANCELLED)
			status_merge(&part->status, &s);
		refused++;
	}
	creation->pumping = false;
	if (refused == REFUSALS_PER_TURN && !creation->resting) {
		creation->resting = true;
		part_again_with_room(part, create_again);
	} else if (!creation->resting && part->started == part->count && !part->running) {
		creation_end(creation, NULL);
	}
}

static void image_ready(struct image_want *want, int result)
{
	struct creation *creation = container_of(want, struct creation, image);
	struct part *part = creation->part;
	struct status s = STATUS_OK;

	if (creation->source)
		creation->source->mounted(creation->source);
	if (result < 0) {
		s = image_want_status(want, result, "create", part->detail, sizeof part->detail);
		/* Wrong for all, and told once; else another shard may have made its part. */
		if (s.blame == DSEC_BLAME_CALLER || image_error_is_final(result)) {
			quota_give(tenancy_of(part), QUOTA_CREATES, part->count - creation->excess);
			creation_end(creation, &s);
			return;
		}
		creation->failure = s;
		create_more(creation);
		return;
	}
	create_more(creation);
}

static void image_want(struct creation *creation)
{
	int r;

	creation->image.shard = creation->part->shard;
	creation->image.tenant = creation->part->request->tenant->index;
	creation->image.ready = image_ready;
	creation->image.is_ours = creation->source;
	r = image_get(&creation->image);
	if (r != -EAGAIN)
		image_ready(&creation->image, r);
}

/* Wrong for all, and told once. */
static void create_refused(struct creation *creation, const struct status *status)
{
	struct part *part = creation->part;

	quota_give(tenancy_of(part), QUOTA_CREATES, part->count - creation->excess);
	creation_end(creation, status);
}

static void network_ready(struct network_want *want, int result)
{
	struct creation *creation = container_of(want, struct creation, network);
	struct status s = network_failed(want, result);

	if (s.code)
		create_refused(creation, &s);
	else
		image_want(creation);
}

static void policy_ready(struct policy_want *want, int result)
{
	struct creation *creation = container_of(want, struct creation, policy);
	const uint32_t asked = creation->fields->network;
	struct status s;

	creation->network.shard = creation->part->shard;
	creation->network.ready = network_ready;
	if (result >= 0)
		network_choose(&creation->network, asked, want->policy);
	s = create_policy_status(creation->part, want, result, creation->network.network);
	if (s.code) {
		create_refused(creation, &s);
		return;
	}
	result = network_get(&creation->network);
	if (result != -EAGAIN)
		network_ready(&creation->network, result);
}

/* Of both buckets, or of none: what the engine's does not have goes back to the tenant's. */
static uint32_t rate_take(struct creation *creation, uint32_t wanted)
{
	struct part *part = creation->part;
	struct tenant *tenant = part->request->tenant;
	uint64_t now_ns = io_now_ns(part->shard->io);
	uint32_t taken, granted, retry_ms;

	taken = shared_bucket_take(&tenant->creates, now_ns, wanted, &retry_ms);
	if (taken < wanted) {
		creation->excess_of = "tenant_creates_per_s";
		creation->retry_ms = retry_ms;
	}
	granted = shared_bucket_take(&part->shard->node->creates, now_ns, taken, &retry_ms);
	if (granted < taken) {
		creation->excess_of = "creates_per_s";
		creation->retry_ms = retry_ms;
		shared_bucket_give(&tenant->creates, taken - granted);
	}
	return granted;
}

/* What is over a limit is refused at once, from the end of the count. */
static void creation_admit(struct creation *creation)
{
	struct part *part = creation->part;
	struct tenancy *tenancy = tenancy_of(part);
	uint32_t room = tenancy->max[QUOTA_CREATES] - tenancy->used[QUOTA_CREATES], granted;

	creation->excess_of = "creates_waiting_max";
	if (room > part->count)
		room = part->count;
	granted = rate_take(creation, room);
	creation->excess = part->count - granted;
	tenancy->used[QUOTA_CREATES] += granted;
}

static struct creation *creation_new(struct part *part)
{
	struct creation *creation = calloc(1, sizeof *creation);

	if (!creation)
		return NULL;
	creation->part = part;
	creation->fields = &part->request->body.create;
	creation->payload = &part->request->payload;
	part->work = creation;
	return creation;
}

void create_part(struct part *part)
{
	struct creation *creation;
	struct status s;
	int r;

	if (part->request->claim.state == CLAIM_AGAIN) {
		create_replay(part);
		return;
	}
	creation = creation_new(part);
	if (!creation) {
		s = status_of_errno(-ENOMEM, "create", "request");
		part_end(part, &s, NULL);
		return;
	}
	s = create_check(creation);
	if (s.code) {
		creation_end(creation, &s);
		return;
	}
	creation_admit(creation);
	creation->policy.shard = part->shard;
	creation->policy.tenant = part->request->tenant->index;
	creation->policy.ready = policy_ready;
	r = policy_get(&creation->policy);
	if (r != -EAGAIN)
		policy_ready(&creation->policy, r);
}

/* What it has was checked when its source was made, and its policy is there. */
void create_after(struct part *part, struct create_source *source)
{
	struct creation *creation = creation_new(part);
	const struct status s = status_of_errno(-ENOMEM, "fork", "request");
	int r;

	if (!creation) {
		source->over(source, &s);
		return;
	}
	creation->source = source;
	creation->fields = &source->fields;
	creation->payload = &source->payload;
	(void)snprintf(creation->image.name, sizeof creation->image.name, "%s", source->image);
	(void)wire_string(creation->payload, source->fields.user, creation->user,
			  sizeof creation->user); /* it was one */
	creation->policy.policy = source->policy;
	policy_use(source->policy);
	creation_admit(creation);
	creation->network.shard = part->shard;
	creation->network.ready = network_ready;
	creation->network.network = source->network;
	creation->network.why = source->network_why;
	r = network_get(&creation->network);
	if (r != -EAGAIN)
		network_ready(&creation->network, r);
}

/* What has not begun does not begin; what is being built is undone, or won the race. */
void create_part_cancel(struct part *part)
{
	for (uint32_t i = 0; part->running && i < CREATES_AT_ONCE; i++) {
		const struct creation *creation = part->work;

		if (creation->under_way[i])
			flow_cancel(&creation->under_way[i]->box->flow);
	}
}
