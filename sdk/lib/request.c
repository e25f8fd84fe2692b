/*
 * The requests of dsec.h: their structs are checked and packed, then submitted. Called by
 * applications, without the lock: whatever is wrong with a request is said before anything is sent.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/pack.h"
#include "sdk/lib/structs.h"

static int create_pack(const struct dsec_create_opts *opts, struct submission *submission)
{
	struct dsec_wire_create wire = {
		.size = sizeof(wire),
		.count = opts->count ? opts->count : 1,
		.flags = opts->flags,
		.network = opts->network,
		.job = { opts->job.hi, opts->job.lo },
		.memory_bytes = opts->memory_bytes,
		.disk_bytes = opts->disk_bytes,
		.inodes = opts->inodes,
		.pids_max = opts->pids_max,
		.cpu_weight = opts->cpu_weight,
		.cpu_max_permille = opts->cpu_max_permille,
		.ttl_s = opts->ttl_s,
		.idle_ttl_s = opts->idle_ttl_s,
		.on_disconnect = opts->on_disconnect,
		.swap_bytes = opts->swap_bytes,
		.io_bytes_per_s = opts->io_bytes_per_s,
		.io_weight = opts->io_weight,
		.output_limit_bytes = opts->output_limit_bytes,
		.processes_per_s = opts->processes_per_s,
		.on_timeout = opts->on_timeout,
	};
	struct pack pack;

	dsec__pack_begin(&pack, sizeof(wire));
	wire.image = dsec__pack_text(&pack, opts->image);
	wire.policy = dsec__pack_text(&pack, opts->policy);
	wire.backend = dsec__pack_text(&pack, opts->backend);
	wire.hostname = dsec__pack_text(&pack, opts->hostname);
	wire.user = dsec__pack_text(&pack, opts->user);
	wire.env = dsec__pack_items(&pack, opts->env, opts->env_count);
	wire.labels = dsec__pack_labels(&pack, opts->labels, opts->label_count);
	return dsec__pack_end(&pack, &wire, sizeof(wire), submission);
}

int64_t dsec_create(struct dsec *d, const struct dsec_call *call,
		    const struct dsec_create_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_CREATE };
	struct dsec_create_opts known;
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r == 0)
		r = dsec__struct_take(&known, sizeof(known), opts, "create");
	if (r < 0)
		return r;
	if (known.flags & ~(uint32_t)DSEC_CREATE_FLAGS_KNOWN)
		return dsec__fail(-EINVAL, "create: unknown flags");
	if (!known.image || !*known.image)
		return dsec__fail(-EINVAL, "create: no image");
	r = create_pack(&known, &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

static int select_pack(const struct dsec_select *select, struct submission *submission)
{
	struct dsec_wire_select wire = {
		.size = sizeof(wire),
		.count = select->count,
		.job = { select->job.hi, select->job.lo },
	};
	struct pack pack;

	dsec__pack_begin(&pack, sizeof(wire));
	/* First, as they are aligned. The struct is the wire's. */
	wire.ids = dsec__pack_bytes(&pack, select->ids, select->count * sizeof(*select->ids));
	wire.labels = dsec__pack_labels(&pack, select->labels, select->label_count);
	return dsec__pack_end(&pack, &wire, sizeof(wire), submission);
}

static int select_take(const struct dsec_select *select, struct dsec_select *known)
{
	int r = dsec__struct_take(known, sizeof(*known), select, "select");

	if (r < 0)
		return r;
	if (known->reserved)
		return dsec__fail(-EINVAL, "select: reserved is not 0");
	if (!known->count && !known->label_count && !known->job.hi && !known->job.lo)
		return dsec__fail(-EINVAL, "select: names nothing");
	if (known->count && !known->ids)
		return dsec__fail(-EINVAL, "select: ids is NULL");
	return 0;
}

static int64_t select_submit(struct dsec *d, const struct dsec_call *call,
			     const struct dsec_select *select, uint16_t op)
{
	struct submission submission = { .op = op };
	struct dsec_call known_call;
	struct dsec_select known;
	bool job;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r >= 0)
		r = select_take(select, &known);
	if (r < 0)
		return r;
	job = known.job.hi || known.job.lo;
	/* One sandbox needs no payload, and its shard's channel is nearest. */
	if (known.count == 1 && !known.label_count && !job)
		submission.subject = known.ids[0];
	else
		r = select_pack(&known, &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

int64_t dsec_destroy(struct dsec *d, const struct dsec_call *call, const struct dsec_select *select)
{
	return select_submit(d, call, select, DSEC_OP_DESTROY);
}

int64_t dsec_stats(struct dsec *d, const struct dsec_call *call, const struct dsec_select *select)
{
	return select_submit(d, call, select, DSEC_OP_STATS);
}

static int list_pack(const struct dsec_list_opts *opts, struct submission *submission)
{
	struct dsec_wire_list wire = {
		.size = sizeof(wire),
		.limit = opts->limit,
		.what = opts->what,
	};
	struct pack pack;

	dsec__pack_begin(&pack, sizeof(wire));
	if (opts->after.hi || opts->after.lo)
		wire.cursor = dsec__pack_bytes(&pack, &opts->after, sizeof(opts->after));
	wire.labels = dsec__pack_labels(&pack, opts->labels, opts->label_count);
	return dsec__pack_end(&pack, &wire, sizeof(wire), submission);
}

int64_t dsec_list(struct dsec *d, const struct dsec_call *call, const struct dsec_list_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_LIST };
	struct dsec_list_opts known = { 0 };
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r < 0)
		return r;
	if (opts)
		r = dsec__struct_take(&known, sizeof(known), opts, "list");
	if (r < 0)
		return r;
	if (known.what > DSEC_LIST_EXECS)
		return dsec__fail(-EINVAL, "list: unknown kind of rows");
	if (known.what == DSEC_LIST_EXECS && !known.sandbox.hi && !known.sandbox.lo)
		return dsec__fail(-EINVAL, "list: execs of no sandbox");
	if (known.what == DSEC_LIST_EXECS)
		submission.subject = known.sandbox;
	r = list_pack(&known, &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

static int change_pack(const struct dsec_select *select, const struct dsec_change_opts *opts,
		       struct submission *submission)
{
	struct dsec_wire_change wire = {
		.select = { .size = sizeof(wire),
			    .count = select->count,
			    .job = { select->job.hi, select->job.lo } },
		.set = opts->set,
		.ttl_s = opts->ttl_s,
		.idle_ttl_s = opts->idle_ttl_s,
		.on_timeout = opts->on_timeout,
	};
	struct pack pack;

	dsec__pack_begin(&pack, sizeof(wire));
	wire.select.ids =
		dsec__pack_bytes(&pack, select->ids, select->count * sizeof(*select->ids));
	wire.select.labels = dsec__pack_labels(&pack, select->labels, select->label_count);
	wire.labels = dsec__pack_labels(&pack, opts->labels, opts->label_count);
	wire.removed = dsec__pack_items(&pack, opts->removed, opts->removed_count);
	return dsec__pack_end(&pack, &wire, sizeof(wire), submission);
}

int64_t dsec_change(struct dsec *d, const struct dsec_call *call, const struct dsec_select *select,
		    const struct dsec_change_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_CHANGE };
	struct dsec_change_opts known;
	struct dsec_select known_select;
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r >= 0)
		r = select_take(select, &known_select);
	if (r >= 0)
		r = dsec__struct_take(&known, sizeof(known), opts, "change");
	if (r < 0)
		return r;
	if (known.reserved)
		return dsec__fail(-EINVAL, "change: reserved is not 0");
	if (!known.set)
		return dsec__fail(-EINVAL, "change: set names no field");
	r = change_pack(&known_select, &known, &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

int64_t dsec_fetched(struct dsec *d, const struct dsec_call *call, const struct dsec_select *select,
		     const struct dsec_fetched_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_FETCHED };
	struct dsec_wire_fetched wire = { .select.size = sizeof(wire) };
	struct dsec_fetched_opts known;
	struct dsec_select known_select;
	struct dsec_call known_call;
	struct pack pack;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r >= 0)
		r = select_take(select, &known_select);
	if (r >= 0)
		r = dsec__struct_take(&known, sizeof(known), opts, "fetched");
	if (r < 0)
		return r;
	if (known.reserved)
		return dsec__fail(-EINVAL, "fetched: reserved is not 0");
	if (!known.path || !*known.path)
		return dsec__fail(-EINVAL, "fetched: no path");
	wire.select.job = (struct dsec_wire_id){ known_select.job.hi, known_select.job.lo };
	wire.select.count = known_select.count;
	dsec__pack_begin(&pack, sizeof(wire));
	wire.select.ids = dsec__pack_bytes(&pack, known_select.ids,
					   known_select.count * sizeof(*known_select.ids));
	wire.select.labels =
		dsec__pack_labels(&pack, known_select.labels, known_select.label_count);
	wire.path = dsec__pack_text(&pack, known.path);
	r = dsec__pack_end(&pack, &wire, sizeof(wire), &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

int64_t dsec_inspect(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox)
{
	struct submission submission = { .op = DSEC_OP_INSPECT, .subject = sandbox };
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

int64_t dsec_check(struct dsec *d, const struct dsec_call *call)
{
	struct submission submission = { .op = DSEC_OP_CHECK };
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

int64_t dsec_ping(struct dsec *d, const struct dsec_call *call)
{
	struct submission submission = { .op = DSEC_OP_NOP };
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

static int capabilities_keep(struct dsec *d, const struct dsec_caps *caps, uint32_t links)
{
	struct caps_kept *kept = calloc(1, sizeof(*kept));

	if (!kept)
		return dsec__fail(-ENOMEM, "capabilities: no memory");
	kept->caps = *caps;
	pthread_mutex_lock(&d->lock);
	kept->caps.transport = d->shared ? DSEC_TRANSPORT_RING : DSEC_TRANSPORT_STREAM;
	kept->caps.channels = d->channel_count;
	kept->engine_epoch = d->welcome.epoch;
	kept->next = d->caps;
	d->caps = kept;
	/* Another engine may have come since it was asked. */
	d->caps_known = d->link == LINK_UP && d->reconnect.links == links;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static int capabilities_ask(struct dsec *d, uint32_t links)
{
	struct submission submission = { .op = DSEC_OP_CAPABILITIES };
	struct dsec_call call = { 0 };
	struct dsec_event *event;
	int64_t ticket;
	int r;

	ticket = dsec__submit(d, &call, &submission);
	if (ticket < 0)
		return (int)ticket;
	r = dsec_wait(d, ticket, -1, &event);
	if (r < 0)
		return r;
	if (event->status.code == DSEC_OK && event->body)
		r = capabilities_keep(d, event->body, links);
	else
		r = dsec__fail(-EIO, "capabilities: %s", event->status.detail);
	dsec_event_free(event);
	return r;
}

int dsec_capabilities(struct dsec *d, const struct dsec_caps **ret)
{
	struct dsec_call known;
	uint32_t links;
	bool asked;
	int r;

	r = dsec__call_take(d, NULL, &known);
	if (r < 0)
		return r;
	if (!ret)
		return dsec__fail(-EINVAL, "capabilities: NULL");
	pthread_mutex_lock(&d->lock);
	asked = d->caps_known;
	links = d->reconnect.links;
	pthread_mutex_unlock(&d->lock);
	if (!asked)
		r = capabilities_ask(d, links);
	if (r < 0)
		return r;
	pthread_mutex_lock(&d->lock);
	*ret = &d->caps->caps;
	pthread_mutex_unlock(&d->lock);
	return 0;
}
