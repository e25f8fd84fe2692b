/*
 * The change op: what was given at creation and may be another later. Called by request.c. Must
 * hold: fields that are not named stay, and a sandbox has all of a change or nothing of it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/request/request.h"
#include "engine/sandbox/sandbox.h"
#include "engine/request/selection.h"
#include "engine/shard.h"

enum {
	CHANGES_PER_TURN = 8,
	CHANGES_KNOWN = DSEC_CHANGE_TTL | DSEC_CHANGE_IDLE_TTL | DSEC_CHANGE_ON_TIMEOUT |
			DSEC_CHANGE_LABELS,
};

static struct status change_invalid(const char *field, int error, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = error,
				.table = "change",
				.step = field,
				.detail = detail };
}

static struct status times_check(const struct dsec_wire_change *c)
{
	if (c->ttl_s > TTL_S_MAX || (c->ttl_s && !(c->set & DSEC_CHANGE_TTL)))
		return change_invalid("ttl", ERANGE, "at most 30 days, and named in set");
	if (c->idle_ttl_s > TTL_S_MAX || (c->idle_ttl_s && !(c->set & DSEC_CHANGE_IDLE_TTL)))
		return change_invalid("idle_ttl", ERANGE, "at most 30 days, and named in set");
	if (c->on_timeout > DSEC_ON_TIMEOUT_PAUSE ||
	    (c->on_timeout && !(c->set & DSEC_CHANGE_ON_TIMEOUT)))
		return change_invalid("on_timeout", EINVAL, "destroy or pause, and named in set");
	if (c->on_timeout == DSEC_ON_TIMEOUT_PAUSE)
		return status_unsupported("change", "on_timeout",
					  "pausing is not here yet: destroy is");
	return STATUS_OK;
}

static struct status labels_check(const struct request *request)
{
	const struct dsec_wire_change *c = &request->body.change;

	if (!selection_labels_fit(&request->payload, &c->labels))
		return change_invalid("labels", E2BIG, "at most 64 pairs, 2048 bytes in all");
	if (c->removed.bytes > LABEL_BYTES_MAX || c->removed.count > LABEL_COUNT_MAX ||
	    wire_items_check(&request->payload, &c->removed) < 0)
		return change_invalid("removed", E2BIG, "at most 128 keys, 2048 bytes in all");
	if ((c->labels.count || c->removed.count) && !(c->set & DSEC_CHANGE_LABELS))
		return change_invalid("labels", EINVAL, "not named in set");
	return STATUS_OK;
}

static struct status change_check(const struct request *request)
{
	const struct dsec_wire_change *c = &request->body.change;
	const char *wrong = selection_wrong(request);
	struct status s;

	if (wrong)
		return change_invalid(wrong, EINVAL, NULL);
	if (!selection_names(request) && !c->select.labels.count)
		return change_invalid("ids", EINVAL, "names nothing");
	if (!c->set || c->set & ~(uint32_t)CHANGES_KNOWN)
		return change_invalid("set", EINVAL, "names no field, or one that is not known");
	s = times_check(c);
	if (!s.code)
		s = labels_check(request);
	if (!s.code && !wire_is_zero(c->reserved, sizeof c->reserved))
		s = change_invalid("reserved", EINVAL, NULL);
	return s;
}

/* ---- labels ---- */

/* Is it a key of `items`; `step` is 2 where every other item is a value. */
static bool key_is_among(const struct wire *w, const struct dsec_wire_items *items, int step,
			 struct wire key)
{
	struct dsec_wire_ref item;
	uint32_t cursor = 0;

	for (int i = 0; wire_next(w, items, &cursor, &item) > 0; i++)
		if (i % step == 0 && item.bytes == key.bytes &&
		    !memcmp(w->payload + item.at, key.payload, key.bytes))
			return true;
	return false;
}

static void label_append(struct packed *packed, const char *bytes, uint32_t count)
{
	memcpy(packed->bytes + packed->byte_count, &count, sizeof count);
	packed->byte_count += (uint32_t)sizeof count;
	if (count)
		memcpy(packed->bytes + packed->byte_count, bytes, count);
	packed->byte_count += count;
	packed->count++;
}

/* Those of the sandbox that stay, then the new ones. */
static void labels_merge(const struct sandbox *sandbox, const struct request *request,
			 struct packed *merged)
{
	const struct dsec_wire_change *c = &request->body.change;
	const struct wire own = { sandbox->labels.bytes, sandbox->labels.byte_count };
	const struct dsec_wire_items all = { 0, own.bytes, sandbox->labels.count, 0 };
	const struct wire *w = &request->payload;
	struct dsec_wire_ref key, value;
	uint32_t cursor = 0;

	while (wire_next(&own, &all, &cursor, &key) > 0 &&
	       wire_next(&own, &all, &cursor, &value) > 0) {
		struct wire name = { own.payload + key.at, key.bytes };

		if (key_is_among(w, &c->labels, 2, name) || key_is_among(w, &c->removed, 1, name))
			continue;
		label_append(merged, name.payload, name.bytes);
		label_append(merged, own.payload + value.at, value.bytes);
	}
	for (cursor = 0; wire_next(w, &c->labels, &cursor, &key) > 0;)
		label_append(merged, w->payload + key.at, key.bytes);
}

static struct status labels_change(struct sandbox *sandbox, const struct request *request)
{
	struct packed merged = { .bytes = malloc(2 * LABEL_BYTES_MAX) };

	if (!merged.bytes)
		return status_of_errno(-ENOMEM, "change", "labels");
	labels_merge(sandbox, request, &merged);
	if (merged.byte_count > LABEL_BYTES_MAX || merged.count > LABEL_COUNT_MAX) {
		free(merged.bytes);
		return change_invalid("labels", E2BIG,
				      "with those it has: at most 64 pairs, 2048 bytes in all");
	}
	free(sandbox->labels.bytes);
	sandbox->labels = merged;
	return STATUS_OK;
}

/* ---- the op ---- */

static struct status sandbox_change(struct sandbox *sandbox, const struct request *request)
{
	const struct dsec_wire_change *c = &request->body.change;
	struct lifetime *lifetime = &sandbox->lifetime;

	if (c->set & DSEC_CHANGE_LABELS) {
		struct status s = labels_change(sandbox, request);

		if (s.code)
			return s;
	}
	if (c->set & DSEC_CHANGE_TTL) {
		lifetime->ttl_s = c->ttl_s ? c->ttl_s : sandbox->shard->config->ttl_default_s;
		lifetime->ttl_from_ns = io_now_ns(sandbox->shard->io);
	}
	if (c->set & DSEC_CHANGE_IDLE_TTL)
		lifetime->idle_ttl_s = c->idle_ttl_s;
	sandbox_reckon(sandbox);
	return STATUS_OK;
}

static void change_one(struct part *part, struct sandbox *sandbox)
{
	struct emission e = { .kind = DSEC_EV_ROW, .subject = sandbox->id };
	struct status s;

	if (sandbox->state != DSEC_STATE_RUNNING)
		return; /* it ends: as good as absent */
	part->count += selection_was_named(part);
	s = sandbox_change(sandbox, part->request);
	if (s.code)
		status_merge(&part->status, &s);
	else
		part_emit(part, &e);
}

static void change_more(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);
	uint32_t steps = WALK_STEPS;
	struct sandbox *sandbox;

	(void)owner; /* part->shard */
	for (int changed = 0; changed < CHANGES_PER_TURN; changed++) {
		sandbox = selection_next(part, &steps);
		if (!sandbox)
			break;
		change_one(part, sandbox);
	}
	if (selection_is_over(part))
		part_end(part, NULL, NULL);
	else
		part_again_with_room(part, change_more);
}

/* part->count: how many of those that were named are here. */
void change_part(struct part *part)
{
	struct status s = change_check(part->request);

	if (s.code)
		part_end(part, &s, NULL);
	else
		part_again(part, change_more);
}
