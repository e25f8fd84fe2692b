/*
 * Ops on a selection of sandboxes: destroy, list, stats. Each part looks at the sandboxes of its
 * own shard. Called by request.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/exec/exec_list.h"
#include "engine/request/request.h"
#include "engine/integrity/integrity.h"
#include "engine/sandbox/sandbox.h"
#include "engine/request/selection.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"
#include "engine/sandbox/outflow.h"
#include "engine/sandbox/usage.h"

static struct status field_invalid(const char *table, const char *field)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = EINVAL,
				.table = table,
				.step = field };
}

enum { DESTROYS_PER_TURN = 64 };

static void destroy_more(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);
	const struct ender ender = { part->request->client, &part->walk };
	uint32_t steps = WALK_STEPS;
	struct sandbox *sandbox;

	(void)owner; /* part->shard */
	part->walk.mail = mail;
	mail->deliver = destroy_more;
	for (int destroyed = 0; destroyed < DESTROYS_PER_TURN; destroyed++) {
		sandbox = selection_next(part, &steps);
		if (!sandbox)
			break;
		if (sandbox_destroy_in_turn(sandbox, DSEC_CAUSE_DESTROYED, part, &ender) < 0) {
			selection_back(part);
			return;
		}
	}
	if (!selection_is_over(part))
		part_again(part, destroy_more);
	else if (--part->running == 0)
		part_end(part, NULL, NULL);
}

/* At most one, by its id: there is nothing to be gained by another turn. */
static bool destroys_one(const struct request *request)
{
	return !request->body.select.labels.count && selection_names(request) <= 1;
}

void destroy_part(struct part *part)
{
	const char *wrong = selection_wrong(part->request);
	struct status s = field_invalid("select", wrong);

	if (wrong) {
		part_end(part, &s, NULL);
		return;
	}
	part->running = 1; /* ours, until the walk is over */
	if (destroys_one(part->request))
		destroy_more(&part->mail, part->shard);
	else
		part_again(part, destroy_more);
}

/* ---- list ---- */

static uint64_t ns_to_ms(uint64_t ns)
{
	return ns / 1000000;
}

static void emit_row(struct part *part, const struct sandbox *sandbox)
{
	uint64_t now_ns = io_now_ns(part->shard->io);
	const char *tenant = part->request->tenant->is_everyone ? sandbox->tenancy->tenant->name :
								  "";
	char body[sizeof(struct dsec_wire_row) + IMAGE_NAMES_MAX + LABEL_BYTES_MAX +
		  TENANT_NAME_MAX + DSEC_PHASE_NAME_BYTES_MAX];
	const char *image = sandbox_image_name(sandbox);
	uint32_t image_bytes = (uint32_t)strlen(image);
	uint32_t tenant_bytes = (uint32_t)strlen(tenant);
	uint32_t phase_bytes = (uint32_t)strlen(sandbox->phase.name);
	struct dsec_wire_row row = {
		.tainted = integrity_taint(sandbox),
		.size = sizeof row,
		.state = sandbox->state,
		.id = sandbox->id,
		.age_ms = ns_to_ms(now_ns - sandbox->created_ns),
		.idle_ms = sandbox->exec_count ? 0 : ns_to_ms(now_ns - sandbox->lifetime.used_ns),
		.ttl_ms = sandbox_ttl_ms(sandbox),
		.execs_running = sandbox->exec_count,
		.execs_total = sandbox->exec_next - 1,
		.network = sandbox->network,
		.image = { sizeof row, image_bytes },
		.labels = { (uint32_t)sizeof row + image_bytes, sandbox->labels.byte_count,
			    sandbox->labels.count, 0 },
		.tenant = { (uint32_t)sizeof row + image_bytes + sandbox->labels.byte_count,
			    tenant_bytes },
		.phase_version = sandbox->phase.version,
		.phase = { (uint32_t)sizeof row + image_bytes + sandbox->labels.byte_count +
				   tenant_bytes,
			   phase_bytes },
		.fork_of = sandbox->fork_of,
	};
	struct emission e = { .kind = DSEC_EV_ROW, .subject = sandbox->id, .body = body };

	memcpy(body, &row, sizeof row);
	memcpy(body + sizeof row, image, image_bytes);
	if (sandbox->labels.byte_count)
		memcpy(body + sizeof row + image_bytes, sandbox->labels.bytes,
		       sandbox->labels.byte_count);
	e.bytes = (uint32_t)sizeof row + image_bytes + sandbox->labels.byte_count;
	memcpy(body + e.bytes, tenant, tenant_bytes);
	e.bytes += tenant_bytes;
	memcpy(body + e.bytes, sandbox->phase.name, phase_bytes);
	e.bytes += phase_bytes;
	e.index = (uint16_t)part->started++;
	part_emit(part, &e);
}

enum { ROWS_PER_TURN = 64 };

/* part->work: the next rows, the smallest few ids of all that match and come after part->after. */
struct listing {
	uint32_t at; /* how far the shard's sandboxes were looked at */
	uint32_t count;
	uint64_t ids[ROWS_PER_TURN];
};

static void listing_add(struct listing *listing, uint64_t id)
{
	uint32_t at;

	listing->count -= listing->count == ROWS_PER_TURN;
	for (at = listing->count; at && listing->ids[at - 1] > id; at--)
		listing->ids[at] = listing->ids[at - 1];
	listing->ids[at] = id;
	listing->count++;
}

/* False: there are more to look at. */
static bool listing_fill(struct listing *listing, const struct part *part)
{
	const struct request *request = part->request;
	const struct dsec_wire_items *labels = &request->body.list.labels;
	const struct pool *pool = &part->shard->sandboxes;
	uint32_t steps = WALK_STEPS;

	for (; steps && listing->at < pool->count; listing->at++) {
		const struct sandbox *sandbox = pool_at(pool, listing->at);

		steps--;
		if (!sandbox || !tenant_sees(request->tenant, sandbox->tenancy->tenant) ||
		    sandbox->state == DSEC_STATE_CREATING || sandbox->id.lo <= part->after ||
		    (listing->count == ROWS_PER_TURN &&
		     sandbox->id.lo > listing->ids[ROWS_PER_TURN - 1]))
			continue;
		selection_count(sandbox, labels, &steps);
		if (sandbox_has_labels(sandbox, &request->payload, labels))
			listing_add(listing, sandbox->id.lo);
	}
	return listing->at == pool->count;
}

static void list_end(struct part *part, const struct status *status)
{
	free(part->work);
	part->work = NULL;
	part_end(part, status, NULL);
}

static void list_more(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);
	struct listing *listing = part->work;
	struct dsec_wire_id id = { .hi = part->shard->node->id };
	uint32_t limit = part->request->body.list.limit;

	(void)owner; /* part->shard */
	if (part->unheard) {
		list_end(part, NULL);
		return;
	}
	if (!listing_fill(listing, part)) {
		part_again(part, list_more);
		return;
	}
	for (uint32_t i = 0; i < listing->count && (!limit || part->started < limit); i++) {
		id.lo = part->after = listing->ids[i];
		const struct sandbox *sandbox =
			sandbox_find(part->shard, part->request->tenant, id);

		if (sandbox) /* it may have gone since it was looked at */
			emit_row(part, sandbox);
	}
	if (listing->count < ROWS_PER_TURN || (limit && part->started == limit)) {
		list_end(part, NULL);
		return;
	}
	listing->at = listing->count = 0;
	part_again_with_room(part, list_more);
}

static const char *list_wrong(const struct request *request, struct dsec_wire_id *ret_cursor)
{
	const struct dsec_wire_list *list = &request->body.list;
	const char *cursor;

	if (!selection_labels_fit(&request->payload, &list->labels))
		return "labels";
	if (wire_bytes(&request->payload, list->cursor, &cursor) < 0 ||
	    (list->cursor.bytes && list->cursor.bytes != sizeof *ret_cursor))
		return "cursor";
	if (list->cursor.bytes)
		memcpy(ret_cursor, cursor, sizeof *ret_cursor);
	if (list->what > DSEC_LIST_EXECS)
		return "what";
	return !list->reserved0 && wire_is_zero(list->reserved, sizeof list->reserved) ? NULL :
											 "reserved";
}

void list_part(struct part *part)
{
	struct dsec_wire_id cursor = { 0 };
	const char *wrong = list_wrong(part->request, &cursor);
	struct status s = field_invalid("list", wrong);

	if (!wrong && part->request->body.list.what == DSEC_LIST_EXECS) {
		exec_list_part(part, cursor.lo);
		return;
	}
	if (!wrong) {
		part->work = calloc(1, sizeof(struct listing));
		if (!part->work)
			s = status_of_errno(-ENOMEM, "list", "rows");
	}
	if (!part->work) {
		part_end(part, &s, NULL);
		return;
	}
	/* Ids of another engine, an earlier one of this node, are before or after all of ours. */
	if (cursor.hi == part->shard->node->id)
		part->after = cursor.lo;
	else if (cursor.hi > part->shard->node->id)
		part->after = UINT64_MAX;
	part_again(part, list_more);
}

/* ---- stats: one request to a launcher per sandbox, a few at a time ---- */

enum { STATS_AT_ONCE = 4 };

static void stats_more(struct part *part);

static void stats_row(struct part *part, struct sandbox *sandbox, const struct box_usage *usage,
		      int error)
{
	struct dsec_wire_stats body = {
		.size = sizeof body,
		.processes = usage->processes,
		.id = sandbox->id,
		.cpu_us = usage->cpu_us,
		.memory_bytes = usage->memory_bytes,
		.memory_peak_bytes = usage->memory_peak_bytes,
		.disk_bytes = usage->disk_bytes,
		.inodes = usage->inodes,
		.io_read_bytes = usage->io_read_bytes,
		.io_written_bytes = usage->io_written_bytes,
		.network_received_bytes = usage->network_received_bytes,
		.network_sent_bytes = usage->network_sent_bytes,
		.execs_running = sandbox->exec_count,
		.execs_total = sandbox->exec_next - 1,
		.throttles = sandbox->throttles,
		.throttled_us = sandbox->throttled_us,
	};
	struct emission e = {
		.kind = DSEC_EV_ROW, .subject = sandbox->id, .body = &body, .bytes = sizeof body
	};
	struct dsec_egress egress;

	outflow_read(sandbox, &egress);
	body.egress_connections = egress.connections;
	body.egress_refused = egress.refused;
	body.egress_dropped = egress.dropped;
	body.egress_capped = egress.capped;
	if (error)
		e = (struct emission){ .kind = DSEC_EV_ROW,
				       .subject = sandbox->id,
				       .status = status_of_errno(error, "stats", "read") };
	part_emit(part, &e);
	part->running--;
	stats_more(part);
}

/* One that is being read for somebody already is read for us too. */
static void stats_read(struct part *part, struct sandbox *sandbox)
{
	uint32_t index = pool_index_of(&part->shard->sandboxes, sandbox);
	uint64_t *seen = (uint64_t *)part->work + index / 64, bit = 1ull << index % 64;
	int r;

	if (sandbox->state != DSEC_STATE_RUNNING || *seen & bit)
		return;
	*seen |= bit;
	r = usage_read(sandbox, part, stats_row);
	if (r == -ENOMEM) {
		struct status s = status_of_errno(r, "stats", "read");

		status_merge(&part->status, &s);
	}
	part->running += r == 0; /* -EBUSY: it ends just now */
}

static void stats_again(struct mail *mail, void *owner)
{
	(void)owner; /* part->shard */
	stats_more(container_of(mail, struct part, mail));
}

static void stats_more(struct part *part)
{
	uint32_t steps = WALK_STEPS;
	struct sandbox *sandbox;

	while (part->running < STATS_AT_ONCE) {
		sandbox = selection_next(part, &steps);
		if (!sandbox)
			break;
		stats_read(part, sandbox);
	}
	if (part->running)
		return; /* until one of them was read */
	if (!selection_is_over(part)) {
		part_again(part, stats_again);
		return;
	}
	free(part->work);
	part->work = NULL;
	part_end(part, NULL, NULL);
}

/* part->work: a bit per sandbox that was read, so that one named twice has one row. */
void stats_part(struct part *part)
{
	const char *wrong = selection_wrong(part->request);
	struct status s = field_invalid("select", wrong);

	if (!wrong) {
		part->work = calloc(part->shard->sandboxes.count / 64 + 1, sizeof(uint64_t));
		if (!part->work)
			s = status_of_errno(-ENOMEM, "stats", "rows");
	}
	if (part->work)
		part_again(part, stats_again);
	else
		part_end(part, &s, NULL);
}
