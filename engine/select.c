/*
 * Ops on a selection of sandboxes: destroy, list, stats. Each part looks at the sandboxes of its
 * own shard. Called by request.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/request.h"
#include "engine/sandbox.h"
#include "engine/shard.h"

static struct status select_check(const struct request *request)
{
	const struct wire *w = &request->payload;
	const struct dsec_wire_select *select = &request->body.select;
	struct status s = {
		.code = DSEC_INVALID, .blame = DSEC_BLAME_CALLER, .error = EINVAL, .table = "select"
	};
	const char *ids;

	if (wire_bytes(w, select->ids, &ids) < 0 ||
	    select->ids.bytes != (uint64_t)select->count * sizeof(struct dsec_wire_id))
		s.step = "ids";
	else if (wire_items_check(w, &select->labels) < 0 || select->labels.count % 2)
		s.step = "labels";
	else if (select->job.hi || select->job.lo)
		s.step = "job";
	else if (!wire_is_zero(select->reserved, sizeof select->reserved))
		s.step = "reserved";
	else
		return STATUS_OK;
	return s;
}

static bool part_selects(const struct part *part, const struct sandbox *sandbox)
{
	const struct request *request = part->request;

	return sandbox && sandbox_matches(sandbox, &request->payload, &request->body.select,
					  request->entry.subject);
}

enum { DESTROYS_PER_TURN = 64 };

static void destroy_more(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);
	struct shard *shard = owner;

	for (int destroyed = 0; part->started < shard->sandboxes.count;) {
		struct sandbox *sandbox = pool_at(&shard->sandboxes, part->started++);

		if (!part_selects(part, sandbox))
			continue;
		sandbox_destroy(sandbox, part);
		if (++destroyed == DESTROYS_PER_TURN) {
			part_again(part, destroy_more);
			return;
		}
	}
	if (--part->running == 0)
		part_end(part, NULL, NULL);
}

/* One sandbox, by its id: no walk. */
static bool destroys_one(const struct part *part, struct sandbox **ret)
{
	const struct request *request = part->request;
	struct dsec_wire_id id = request->entry.subject;

	if (request->body.select.labels.count || request->body.select.count > 1 ||
	    (request->body.select.count && (id.lo || id.hi)))
		return false;
	if (request->body.select.count)
		memcpy(&id, request->payload.payload + request->body.select.ids.at, sizeof id);
	*ret = sandbox_find(part->shard, id);
	return true;
}

void destroy_part(struct part *part)
{
	struct status s = select_check(part->request);
	struct sandbox *sandbox = NULL;

	if (s.code) {
		part_end(part, &s, NULL);
		return;
	}
	part->running = 1; /* ours, until the walk is over */
	if (!destroys_one(part, &sandbox)) {
		destroy_more(&part->mail, part->shard);
		return;
	}
	if (sandbox)
		sandbox_destroy(sandbox, part);
	if (--part->running == 0)
		part_end(part, NULL, NULL);
}

/* ---- list ---- */

static uint64_t ns_to_ms(uint64_t ns)
{
	return ns / 1000000;
}

static void emit_row(struct part *part, const struct sandbox *sandbox)
{
	uint64_t now_ns = io_now_ns(part->shard->io);
	char body[sizeof(struct dsec_wire_row) + IMAGE_NAME_BYTES_MAX + LABEL_BYTES_MAX];
	uint32_t image_bytes = (uint32_t)strlen(sandbox->image);
	struct dsec_wire_row row = {
		.size = sizeof row,
		.state = sandbox->state,
		.id = sandbox->id,
		.age_ms = ns_to_ms(now_ns - sandbox->created_ns),
		.idle_ms = sandbox->exec_count ? 0 : ns_to_ms(now_ns - sandbox->used_ns),
		.ttl_ms = UINT64_MAX,
		.execs_running = sandbox->exec_count,
		.execs_total = sandbox->exec_next - 1,
		.network = sandbox->is_private ? DSEC_NETWORK_PRIVATE : DSEC_NETWORK_NONE,
		.image = { sizeof row, image_bytes },
		.labels = { (uint32_t)sizeof row + image_bytes, sandbox->labels.byte_count,
			    sandbox->labels.count, 0 },
	};
	struct emission e = { .kind = DSEC_EV_ROW, .subject = sandbox->id, .body = body };

	if (timer_is_set(&sandbox->expiry))
		row.ttl_ms = sandbox->expiry.at_ns > now_ns ?
				     ns_to_ms(sandbox->expiry.at_ns - now_ns) :
				     0;
	memcpy(body, &row, sizeof row);
	memcpy(body + sizeof row, sandbox->image, image_bytes);
	if (sandbox->labels.byte_count)
		memcpy(body + sizeof row + image_bytes, sandbox->labels.bytes,
		       sandbox->labels.byte_count);
	e.bytes = (uint32_t)sizeof row + image_bytes + sandbox->labels.byte_count;
	e.index = (uint16_t)part->started++;
	part_emit(part, &e);
}

enum { ROWS_PER_TURN = 64 };

/* The next rows in order of id after `after`: the smallest few of all that match. */
static uint32_t rows_next(const struct part *part, uint64_t after,
			  const struct sandbox *ret[ROWS_PER_TURN])
{
	const struct request *request = part->request;
	const struct pool *pool = &part->shard->sandboxes;
	uint32_t count = 0;

	for (uint32_t i = 0; i < pool->count; i++) {
		const struct sandbox *sandbox = pool_at(pool, i);
		uint32_t at;

		if (!sandbox || sandbox->state == DSEC_STATE_CREATING || sandbox->id.lo <= after ||
		    (count == ROWS_PER_TURN && sandbox->id.lo > ret[count - 1]->id.lo) ||
		    !sandbox_has_labels(sandbox, &request->payload, &request->body.list.labels))
			continue;
		count -= count == ROWS_PER_TURN;
		for (at = count; at && ret[at - 1]->id.lo > sandbox->id.lo; at--)
			ret[at] = ret[at - 1];
		ret[at] = sandbox;
		count++;
	}
	return count;
}

static void list_more(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);
	uint32_t limit = part->request->body.list.limit;
	const struct sandbox *rows[ROWS_PER_TURN];
	uint32_t count = part->unheard ? 0 : rows_next(part, part->after, rows), emitted = 0;

	(void)owner; /* part->shard */
	while (emitted < count && (!limit || part->started < limit))
		emit_row(part, rows[emitted++]);
	if (emitted)
		part->after = rows[emitted - 1]->id.lo;
	if (emitted == ROWS_PER_TURN)
		part_again_with_room(part, list_more);
	else
		part_end(part, NULL, NULL);
}

static const char *list_wrong(const struct request *request, struct dsec_wire_id *ret_cursor)
{
	const struct dsec_wire_list *list = &request->body.list;
	const char *cursor;

	if (wire_items_check(&request->payload, &list->labels) < 0 || list->labels.count % 2)
		return "labels";
	if (wire_bytes(&request->payload, list->cursor, &cursor) < 0 ||
	    (list->cursor.bytes && list->cursor.bytes != sizeof *ret_cursor))
		return "cursor";
	if (list->cursor.bytes)
		memcpy(ret_cursor, cursor, sizeof *ret_cursor);
	return wire_is_zero(list->reserved, sizeof list->reserved) ? NULL : "reserved";
}

void list_part(struct part *part)
{
	struct dsec_wire_id cursor = { 0 };
	const char *wrong = list_wrong(part->request, &cursor);
	struct status s = { .code = DSEC_INVALID,
			    .blame = DSEC_BLAME_CALLER,
			    .error = EINVAL,
			    .table = "list",
			    .step = wrong };

	if (wrong) {
		part_end(part, &s, NULL);
		return;
	}
	/* Ids of another engine, an earlier one of this node, are before or after all of ours. */
	if (cursor.hi == part->shard->node->id)
		part->after = cursor.lo;
	else if (cursor.hi > part->shard->node->id)
		part->after = UINT64_MAX;
	list_more(&part->mail, part->shard);
}

/* ---- stats: one request to a launcher per sandbox, a few at a time ---- */

enum { STATS_AT_ONCE = 4 };

static void stats_more(struct part *part);

static void usage_done(struct box_usage *usage, int error)
{
	struct sandbox *sandbox = usage->owner;
	struct part *part = sandbox->usage_part;
	struct dsec_wire_stats body = {
		.size = sizeof body,
		.processes = usage->processes,
		.id = sandbox->id,
		.cpu_us = usage->cpu_us,
		.memory_bytes = usage->memory_bytes,
		.memory_peak_bytes = usage->memory_peak_bytes,
		.disk_bytes = usage->disk_bytes,
		.inodes = usage->inodes,
	};
	struct emission e = {
		.kind = DSEC_EV_ROW, .subject = sandbox->id, .body = &body, .bytes = sizeof body
	};

	sandbox->usage_part = NULL;
	if (error)
		e = (struct emission){ .kind = DSEC_EV_ROW,
				       .subject = sandbox->id,
				       .status = status_of_errno(error, "stats", "read") };
	part_emit(part, &e);
	part->running--;
	sandbox_usage_over(sandbox);
	stats_more(part);
}

static void stats_more(struct part *part)
{
	struct shard *shard = part->shard;

	while (part->started < shard->sandboxes.count && part->running < STATS_AT_ONCE) {
		struct sandbox *sandbox = pool_at(&shard->sandboxes, part->started++);

		if (!part_selects(part, sandbox) || sandbox->state != DSEC_STATE_RUNNING ||
		    sandbox->usage_part)
			continue;
		sandbox->usage.owner = sandbox;
		sandbox->usage.done = usage_done;
		sandbox->usage_part = part;
		part->running++;
		if (shard->backend->class->box_usage(sandbox->box, &sandbox->usage) < 0) {
			sandbox->usage_part = NULL; /* it ends just now */
			part->running--;
		}
	}
	if (part->started == shard->sandboxes.count && !part->running && !part->ended)
		part_end(part, NULL, NULL);
}

void stats_part(struct part *part)
{
	struct status s = select_check(part->request);

	if (s.code)
		part_end(part, &s, NULL);
	else
		stats_more(part);
}
