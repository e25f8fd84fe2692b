/*
 * Bodies of events as callers see them, out of what the engine sent. Called by event.c with a copy
 * of the payload: every size and offset in it is checked against the copy's own size.
 */
#include "sdk/lib/event.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/lib/connection.h"

_Static_assert(sizeof(struct dsec_id) == sizeof(struct dsec_wire_id), "");

/* Copies a body that starts with its size; what this library does not know is cut off. */
static int body_take(void *body, size_t body_bytes, struct payload payload)
{
	uint32_t size;

	if (payload.bytes < 2 * sizeof(size))
		return -EPROTO;
	memcpy(&size, payload.data, sizeof(size));
	if (size < 2 * sizeof(size) || size > payload.bytes)
		return -EPROTO;
	memset(body, 0, body_bytes);
	memcpy(body, payload.data, size < body_bytes ? size : body_bytes);
	return 0;
}

static int ref_take(struct payload payload, struct dsec_wire_ref ref, struct dsec_bytes *ret)
{
	if (ref.at > payload.bytes || ref.bytes > payload.bytes - ref.at)
		return -EPROTO;
	*ret = (struct dsec_bytes){ payload.data + ref.at, ref.bytes };
	return 0;
}

/* The next of a list's items; *at moves on. */
static int item_take(struct payload payload, size_t *at, size_t end, struct dsec_bytes *ret)
{
	uint32_t bytes;

	if (end - *at < sizeof(bytes))
		return -EPROTO;
	memcpy(&bytes, payload.data + *at, sizeof(bytes));
	*at += sizeof(bytes);
	if (bytes > end - *at)
		return -EPROTO;
	*ret = (struct dsec_bytes){ payload.data + *at, bytes };
	*at += bytes;
	return 0;
}

static int labels_take(struct event *event, struct payload payload,
		       const struct dsec_wire_items *items, uint32_t *ret_count)
{
	size_t at = items->at, end = at + items->bytes;
	uint32_t count = items->count / 2;
	int r = 0;

	*ret_count = 0;
	if (at > payload.bytes || items->bytes > payload.bytes - at)
		return -EPROTO;
	/* Each item takes 4 bytes at least: count is bounded by what was received. */
	if (items->count % 2 || items->count > items->bytes / sizeof(uint32_t))
		return -EPROTO;
	if (!count)
		return 0;
	event->labels = calloc(count, sizeof(*event->labels));
	if (!event->labels)
		return -ENOMEM;
	for (uint32_t label = 0; label < count && r == 0; label++) {
		r = item_take(payload, &at, end, &event->labels[label].key);
		if (r == 0)
			r = item_take(payload, &at, end, &event->labels[label].value);
	}
	*ret_count = count;
	return r;
}

static int row_take(struct event *event, struct payload payload)
{
	struct dsec_row *row = &event->body.row;
	struct dsec_wire_row wire;
	int r = body_take(&wire, sizeof(wire), payload);

	if (r < 0)
		return r;
	*row = (struct dsec_row){
		.size = sizeof(*row),
		.state = wire.state,
		.id = { wire.id.hi, wire.id.lo },
		.age_ms = wire.age_ms,
		.idle_ms = wire.idle_ms,
		.ttl_ms = wire.ttl_ms,
		.execs_running = wire.execs_running,
		.network = wire.network,
		.execs_total = wire.execs_total,
		.tainted = wire.tainted,
		.phase_version = wire.phase_version,
		.fork_of = { wire.fork_of.hi, wire.fork_of.lo },
	};
	r = ref_take(payload, wire.image, &row->image);
	if (r >= 0)
		r = ref_take(payload, wire.tenant, &row->tenant);
	if (r >= 0)
		r = ref_take(payload, wire.phase, &row->phase);
	if (r < 0)
		return r;
	r = labels_take(event, payload, &wire.labels, &row->label_count);
	row->labels = event->labels;
	return r;
}

static int inspected_take(struct event *event, struct payload payload)
{
	struct dsec_inspected *seen = &event->body.inspected;
	struct dsec_wire_inspect wire;
	int r;

	r = body_take(&wire, sizeof(wire), payload);
	if (r < 0)
		return r;
	memcpy(seen, &wire, offsetof(struct dsec_inspected, settings));
	memcpy(&seen->settings, &wire.settings, sizeof(seen->settings));
	seen->size = sizeof(*seen);
	seen->settings.size = sizeof(seen->settings);
	r = ref_take(payload, wire.image, &seen->image);
	if (r >= 0)
		r = ref_take(payload, wire.hostname, &seen->hostname);
	if (r >= 0)
		r = ref_take(payload, wire.user, &seen->user);
	if (r >= 0)
		r = ref_take(payload, wire.policy, &seen->policy);
	if (r >= 0)
		r = ref_take(payload, wire.phase, &seen->phase);
	if (r >= 0)
		r = labels_take(event, payload, &wire.labels, &seen->label_count);
	seen->labels = event->labels;
	seen->tainted = wire.tainted;
	seen->phase_version = wire.phase_version;
	seen->egress = wire.egress;
	seen->fork_of = (struct dsec_id){ wire.fork_of.hi, wire.fork_of.lo };
	return r;
}

_Static_assert(offsetof(struct dsec_image_row, name) == offsetof(struct dsec_wire_image_row, name),
	       "the same up to there");

static int image_row_take(struct event *event, struct payload payload)
{
	struct dsec_image_row *row = &event->body.image_row;
	struct dsec_wire_image_row wire;
	int r;

	r = body_take(&wire, sizeof(wire), payload);
	if (r < 0)
		return r;
	memcpy(row, &wire, offsetof(struct dsec_image_row, name));
	row->size = sizeof(*row);
	row->new_bytes = wire.new_bytes;
	row->shared_bytes = wire.shared_bytes;
	row->segment_bytes = wire.segment_bytes;
	row->local_bytes = wire.local_bytes;
	r = ref_take(payload, wire.name, &row->name);
	if (r == 0)
		r = ref_take(payload, wire.digest, &row->digest);
	if (r == 0)
		r = ref_take(payload, wire.created, &row->created);
	return r < 0 ? r : ref_take(payload, wire.source, &row->source);
}

static int policy_row_take(struct event *event, struct payload payload)
{
	struct dsec_policy_row *row = &event->body.policy_row;
	struct dsec_wire_policy_row wire;
	int r;

	r = body_take(&wire, sizeof(wire), payload);
	if (r < 0)
		return r;
	memcpy(row, &wire, offsetof(struct dsec_policy_row, name));
	row->size = sizeof(*row);
	r = ref_take(payload, wire.name, &row->name);
	if (r == 0)
		r = ref_take(payload, wire.text, &row->text);
	return r < 0 ? r : ref_take(payload, wire.tenant, &row->tenant);
}

static int phased_take(struct dsec_phased *phased, struct payload payload)
{
	struct dsec_wire_phased wire;
	int r;

	r = body_take(&wire, sizeof(wire), payload);
	if (r < 0)
		return r;
	*phased = (struct dsec_phased){
		.size = sizeof(*phased),
		.execs_killed = wire.execs_killed,
		.version = wire.version,
		.policy = wire.policy,
		.rules_unenforced = wire.rules_unenforced,
		.flows_cut = wire.flows_cut,
	};
	r = ref_take(payload, wire.name, &phased->name);
	return r < 0 ? r : ref_take(payload, wire.policy_name, &phased->policy_name);
}

static int file_row_take(struct event *event, struct payload payload)
{
	struct dsec_file_row *row = &event->body.file_row;
	struct dsec_wire_file_row wire;
	int r;

	r = body_take(&wire, sizeof(wire), payload);
	if (r < 0)
		return r;
	*row = (struct dsec_file_row){
		.size = sizeof(*row),
		.type = wire.type,
		.reason = wire.reason,
		.error = wire.error,
		.mode = wire.mode,
		.uid = wire.uid,
		.gid = wire.gid,
		.change = wire.change,
		.links = wire.links,
		.bytes = wire.bytes,
		.disk_bytes = wire.disk_bytes,
		.mtime_ns = wire.mtime_ns,
	};
	r = ref_take(payload, wire.name, &row->name);
	return r < 0 ? r : ref_take(payload, wire.target, &row->target);
}

/* A list of byte strings; event->items holds all lists of a row. */
static int items_take(struct payload payload, const struct dsec_wire_items *items,
		      struct dsec_bytes *ret)
{
	size_t at = items->at, end = at + items->bytes;
	int r = 0;

	for (uint32_t item = 0; item < items->count && r == 0; item++)
		r = item_take(payload, &at, end, &ret[item]);
	return r;
}

static bool items_fit(struct payload payload, const struct dsec_wire_items *items)
{
	/* Each item takes 4 bytes at least: count is bounded by what was received. */
	return items->at <= payload.bytes && items->bytes <= payload.bytes - items->at &&
	       items->count <= items->bytes / sizeof(uint32_t);
}

static int exec_row_take(struct event *event, struct payload payload)
{
	struct dsec_exec_row *row = &event->body.exec_row;
	struct dsec_wire_exec_row wire;
	int r;

	r = body_take(&wire, sizeof(wire), payload);
	if (r < 0)
		return r;
	if (!items_fit(payload, &wire.argv) || !items_fit(payload, &wire.env))
		return -EPROTO;
	event->items = calloc((size_t)wire.argv.count + wire.env.count + 1, sizeof(*event->items));
	if (!event->items)
		return -ENOMEM;
	*row = (struct dsec_exec_row){
		.size = sizeof(*row),
		.reason = wire.reason,
		.sandbox = { wire.id.hi, wire.id.lo },
		.exec = wire.exec,
		.age_ms = wire.age_ms,
		.wall_us = wire.wall_us,
		.exit_code = wire.exit_code,
		.signal = wire.signal,
		.stdout_bytes = wire.stdout_bytes,
		.stderr_bytes = wire.stderr_bytes,
		.argv = event->items,
		.env = event->items + wire.argv.count,
		.argc = wire.argv.count,
		.env_count = wire.env.count,
		.truncated = wire.truncated,
	};
	r = ref_take(payload, wire.cwd, &row->cwd);
	if (r == 0)
		r = ref_take(payload, wire.user, &row->user);
	if (r == 0)
		r = items_take(payload, &wire.argv, event->items);
	return r < 0 ? r : items_take(payload, &wire.env, event->items + wire.argv.count);
}

static void output_take(struct event *event, unsigned int which,
			const struct dsec_wire_output *wire)
{
	struct dsec_output *output = &event->outputs[which];

	*output = (struct dsec_output){
		.stream = which + 1,
		.truncated = wire->truncated,
		.total_bytes = wire->total_bytes,
	};
	if (event->capture)
		dsec__capture_show(event->capture, which, output);
}

static int result_take(struct event *event, struct payload payload)
{
	struct dsec_result *result = &event->body.result;
	struct dsec_wire_result wire;
	int r;

	r = body_take(&wire, sizeof(wire), payload);
	if (r < 0)
		return r;
	output_take(event, 0, &wire.outputs[0]);
	output_take(event, 1, &wire.outputs[1]);
	*result = (struct dsec_result){
		.size = sizeof(*result),
		.reason = wire.reason,
		.exit_code = wire.exit_code,
		.signal = wire.signal,
		.exec = wire.exec,
		.cpu_us = wire.cpu_us,
		.wall_us = wire.wall_us,
		.memory_peak_bytes = wire.memory_peak_bytes,
		.outputs = event->outputs,
		.output_count = 2,
		.memory_limit_bytes = wire.memory_limit_bytes,
		.flags = wire.flags,
		.tainted = wire.tainted,
		.processes_killed = wire.processes_killed,
		.phase = wire.phase,
	};
	return 0;
}

static int caps_take(struct event *event, struct payload payload)
{
	struct dsec_caps *caps = &event->body.caps;
	struct dsec_wire_caps wire;
	int r;

	r = body_take(&wire, sizeof(wire), payload);
	if (r < 0)
		return r;
	*caps = (struct dsec_caps){
		.size = sizeof(*caps),
		.shards = wire.shards,
		.features = wire.features,
		.epoch = wire.epoch,
		.node = { wire.node.hi, wire.node.lo },
		.sandboxes_max = wire.sandboxes_max,
		.execs_max = wire.execs_max,
		.requests_max = wire.requests_max,
		.clients_max = wire.clients_max,
		.argument_bytes_max = wire.argument_bytes_max,
		.output_bytes_max = wire.output_bytes_max,
		.backends = wire.backends,
		.unenforced = wire.unenforced,
	};
	memcpy(caps->version, wire.version, sizeof(caps->version) - 1);
	memcpy(caps->kernel, wire.kernel, sizeof(caps->kernel) - 1);
	memcpy(caps->tenant, wire.tenant, sizeof(caps->tenant) - 1);
	return 0;
}

/* Bodies without pointers are the same on the wire and in dsec.h, as far as dsec.h shows them. */
#define BODY_SAME(api, wire, field)                                                                \
	_Static_assert(offsetof(struct api, field) == offsetof(struct wire, field), #field)

BODY_SAME(dsec_created, dsec_wire_created, backend);
BODY_SAME(dsec_created, dsec_wire_created, memory_bytes);
BODY_SAME(dsec_created, dsec_wire_created, on_disconnect);
BODY_SAME(dsec_created, dsec_wire_created, reused);
BODY_SAME(dsec_created, dsec_wire_created, on_timeout);
BODY_SAME(dsec_created, dsec_wire_created, output_limit_bytes);
BODY_SAME(dsec_created, dsec_wire_created, rules_unenforced);
BODY_SAME(dsec_created, dsec_wire_created, processes_per_s);
BODY_SAME(dsec_file_result, dsec_wire_file_result, bytes);
BODY_SAME(dsec_file_result, dsec_wire_file_result, left_out);
BODY_SAME(dsec_inspected, dsec_wire_inspect, cause);
BODY_SAME(dsec_inspected, dsec_wire_inspect, execs_running);
BODY_SAME(dsec_inspected, dsec_wire_inspect, oom_kills);
BODY_SAME(dsec_inspected, dsec_wire_inspect, settings);
BODY_SAME(dsec_progress, dsec_wire_progress, bytes);
BODY_SAME(dsec_progress, dsec_wire_progress, read_bytes);
BODY_SAME(dsec_usage, dsec_wire_stats, id);
BODY_SAME(dsec_usage, dsec_wire_stats, inodes);
BODY_SAME(dsec_usage, dsec_wire_stats, egress_capped);
BODY_SAME(dsec_holdings, dsec_wire_check, sandboxes);
BODY_SAME(dsec_holdings, dsec_wire_check, callback_max_ns);
BODY_SAME(dsec_holdings, dsec_wire_check, launchers_lost);
BODY_SAME(dsec_holdings, dsec_wire_check, slots_quarantined);
BODY_SAME(dsec_holdings, dsec_wire_check, execs_undying);
BODY_SAME(dsec_holdings, dsec_wire_check, subscriptions);
BODY_SAME(dsec_holdings, dsec_wire_check, tokens_refused);
BODY_SAME(dsec_forward, dsec_wire_forward, address);
BODY_SAME(dsec_forward, dsec_wire_forward, token);
BODY_SAME(dsec_called, dsec_wire_called, exit_code);
BODY_SAME(dsec_called, dsec_wire_called, cpu_us);
BODY_SAME(dsec_called, dsec_wire_called, stderr_bytes);
BODY_SAME(dsec_policy_row, dsec_wire_policy_row, flags);
BODY_SAME(dsec_policy_row, dsec_wire_policy_row, users);
BODY_SAME(dsec_policy_row, dsec_wire_policy_row, levels);
BODY_SAME(dsec_policy_row, dsec_wire_policy_row, document_bytes);
BODY_SAME(dsec_function_row, dsec_wire_function_row, memory_bytes);
BODY_SAME(dsec_function_row, dsec_wire_function_row, unenforced);
BODY_SAME(dsec_function_row, dsec_wire_function_row, age_ms);

static int same_take(void *body, uint32_t body_bytes, struct payload payload)
{
	int r;

	r = body_take(body, body_bytes, payload);
	if (r < 0)
		return r;
	memcpy(body, &body_bytes, sizeof(body_bytes)); /* size: what dsec.h knows */
	return 0;
}

static int forward_take(struct dsec_forward *forward, struct payload payload)
{
	int r;

	r = same_take(forward, sizeof(*forward), payload);
	if (r < 0)
		return r;
	forward->address[sizeof(forward->address) - 1] = '\0';
	forward->token[sizeof(forward->token) - 1] = '\0';
	return 0;
}

static int function_row_take(struct event *event, struct payload payload)
{
	struct dsec_function_row *row = &event->body.function_row;
	struct dsec_wire_function_row wire;
	int r;

	r = body_take(&wire, sizeof(wire), payload);
	if (r < 0)
		return r;
	if (!items_fit(payload, &wire.argv))
		return -EPROTO;
	event->items = calloc((size_t)wire.argv.count + 1, sizeof(*event->items));
	if (!event->items)
		return -ENOMEM;
	memcpy(row, &wire, offsetof(struct dsec_function_row, name));
	row->size = sizeof(*row);
	row->argv = event->items;
	row->argc = wire.argv.count;
	r = ref_take(payload, wire.name, &row->name);
	if (r == 0)
		r = ref_take(payload, wire.image, &row->image);
	if (r == 0)
		r = ref_take(payload, wire.policy, &row->policy);
	return r < 0 ? r : items_take(payload, &wire.argv, event->items);
}

/* What it points to is within the whole record. */
static int violation_take(struct dsec_news *news, struct payload payload, struct dsec_wire_ref ref)
{
	struct dsec_wire_violation wire;
	struct dsec_bytes own;
	int r = ref_take(payload, ref, &own);

	if (r >= 0)
		r = body_take(&wire, sizeof(wire), (struct payload){ own.data, own.bytes });
	if (r < 0)
		return r;
	news->rule = wire.rule;
	news->hook = wire.hook;
	news->anomaly = wire.anomaly;
	news->count = wire.count;
	news->argument = wire.argument;
	news->verdict = wire.verdict;
	news->error = wire.error;
	news->pid = wire.pid;
	r = ref_take(payload, wire.process, &news->process);
	return r < 0 ? r : ref_take(payload, wire.text, &news->text);
}

static int news_take(struct event *event, struct payload payload, const struct ticket *ticket)
{
	struct dsec_news *news = &event->body.news;
	struct dsec_wire_state wire;
	int r;

	r = body_take(&wire, sizeof(wire), payload);
	if (r < 0)
		return r;
	*news = (struct dsec_news){
		.size = sizeof(*news),
		.topic = wire.topic,
		.seq = event->seen.offset,
		.epoch = ticket->seq_epoch,
		.time_ms = wire.time_ms,
		.sandbox = { wire.id.hi, wire.id.lo },
		.exec = wire.exec,
		.cause = wire.cause,
		.flags = wire.flags & DSEC_UNPOLICED,
		.reason = wire.reason,
		.exit_code = wire.exit_code,
		.signal = wire.signal,
		.wall_us = wire.wall_us,
		.phase_version = wire.phase_version,
	};
	r = ref_take(payload, wire.image, &news->image);
	if (r >= 0)
		r = ref_take(payload, wire.phase, &news->phase);
	if (r >= 0)
		r = labels_take(event, payload, &wire.labels, &news->label_count);
	news->labels = event->labels;
	if (r >= 0 && wire.violation.bytes)
		r = violation_take(news, payload, wire.violation);
	return r;
}

static int missed_take(struct event *event, struct payload payload, const struct ticket *ticket)
{
	struct dsec_wire_missed wire;
	int r;

	r = body_take(&wire, sizeof(wire), payload);
	if (r < 0)
		return r;
	event->body.missed = (struct dsec_missed){
		.size = sizeof(event->body.missed),
		.flags = wire.flags,
		.first_seq = wire.first_seq,
		.next_seq = wire.next_seq,
		.count = wire.count,
		.epoch = ticket->seq_epoch,
	};
	return 0;
}

/* Of a subscription, as the others below. */
static int happened_translate(struct event *event, const struct ticket *ticket,
			      struct payload payload)
{
	if (event->seen.kind == DSEC_EV_STATE)
		return news_take(event, payload, ticket);
	if (event->seen.kind == DSEC_EV_GAP)
		return missed_take(event, payload, ticket);
	return -ENOENT;
}

int dsec__body_take(struct event *event, const struct ticket *ticket, struct payload payload)
{
	uint16_t op = ticket->op;
	union event_body *body = &event->body;
	uint16_t kind = event->seen.kind;
	int r = -ENOENT;

	if (op == DSEC_OP_SUBSCRIBE)
		r = happened_translate(event, ticket, payload);
	else if ((op == DSEC_OP_CREATE || op == DSEC_OP_FORK) && kind == DSEC_EV_CREATED)
		r = same_take(&body->created, sizeof(body->created), payload);
	else if ((op == DSEC_OP_EXEC || op == DSEC_OP_ATTACH) && kind == DSEC_EV_DONE)
		r = result_take(event, payload);
	else if (op == DSEC_OP_LIST && kind == DSEC_EV_ROW && event->seen.exec)
		r = exec_row_take(event, payload);
	else if (op == DSEC_OP_LIST && kind == DSEC_EV_ROW)
		r = row_take(event, payload);
	else if (op == DSEC_OP_FILE && kind == DSEC_EV_ROW)
		r = file_row_take(event, payload);
	else if (op == DSEC_OP_FILE && kind == DSEC_EV_DONE)
		r = same_take(&body->file_result, sizeof(body->file_result), payload);
	else if (op == DSEC_OP_IMAGE && (kind == DSEC_EV_ROW || kind == DSEC_EV_DONE))
		r = image_row_take(event, payload);
	else if (op == DSEC_OP_POLICY && kind == DSEC_EV_ROW)
		r = policy_row_take(event, payload);
	else if (op == DSEC_OP_PHASE && kind == DSEC_EV_DONE)
		r = phased_take(&body->phased, payload);
	else if (op == DSEC_OP_FORK && kind == DSEC_EV_DONE)
		r = same_take(&body->forked, sizeof(body->forked), payload);
	else if (op == DSEC_OP_IMAGE && kind == DSEC_EV_PROGRESS)
		r = same_take(&body->progress, sizeof(body->progress), payload);
	else if (op == DSEC_OP_STATS && kind == DSEC_EV_ROW)
		r = same_take(&body->usage, sizeof(body->usage), payload);
	else if (op == DSEC_OP_INSPECT && kind == DSEC_EV_DONE)
		r = inspected_take(event, payload);
	else if (op == DSEC_OP_CHECK && kind == DSEC_EV_DONE)
		r = same_take(&body->holdings, sizeof(body->holdings), payload);
	else if (op == DSEC_OP_PORT && kind == DSEC_EV_DONE)
		r = forward_take(&body->forward, payload);
	else if (op == DSEC_OP_FUNCTION && kind == DSEC_EV_ROW)
		r = function_row_take(event, payload);
	else if (op == DSEC_OP_INVOKE && kind == DSEC_EV_DONE)
		r = same_take(&body->called, sizeof(body->called), payload);
	else if (op == DSEC_OP_CAPABILITIES && kind == DSEC_EV_DONE)
		r = caps_take(event, payload);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : 1;
}
