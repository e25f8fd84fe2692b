/*
 * Walking a selection. Called by the ops in select.c, on the part's shard. Ids are looked up, never
 * searched for; sandboxes are only walked for labels.
 */
#include "engine/request/selection.h"

#include <string.h>

#include "engine/request/request.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

/* Comparing one label with another, in parts of a step. */
enum { COMPARISONS_PER_STEP = 16 };

bool selection_labels_fit(const struct wire *w, const struct dsec_wire_items *labels)
{
	return labels->bytes <= LABEL_BYTES_MAX && labels->count <= LABEL_COUNT_MAX &&
	       labels->count % 2 == 0 && wire_items_check(w, labels) == 0;
}

const char *selection_wrong(const struct request *request)
{
	const struct wire *w = &request->payload;
	const struct dsec_wire_select *select = &request->body.select;
	const char *ids;

	if (wire_bytes(w, select->ids, &ids) < 0 ||
	    select->ids.bytes != (uint64_t)select->count * sizeof(struct dsec_wire_id))
		return "ids";
	if (!selection_labels_fit(w, &select->labels))
		return "labels";
	if (select->job.hi || select->job.lo)
		return "job";
	return wire_is_zero(select->reserved, sizeof select->reserved) ? NULL : "reserved";
}

bool selection_labels_match(const struct wire *own, const struct dsec_wire_items *all,
			    const struct wire *w, const struct dsec_wire_items *labels)
{
	struct dsec_wire_ref key, value, own_key, own_value;
	uint32_t cursor = 0;

	while (wire_next(w, labels, &cursor, &key) > 0 &&
	       wire_next(w, labels, &cursor, &value) > 0) {
		uint32_t at = 0;
		bool found = false;

		while (!found && wire_next(own, all, &at, &own_key) > 0 &&
		       wire_next(own, all, &at, &own_value) > 0)
			found = key.bytes == own_key.bytes && value.bytes == own_value.bytes &&
				!memcmp(w->payload + key.at, own->payload + own_key.at,
					key.bytes) &&
				!memcmp(w->payload + value.at, own->payload + own_value.at,
					value.bytes);
		if (!found)
			return false;
	}
	return true;
}

void selection_count(const struct sandbox *sandbox, const struct dsec_wire_items *labels,
		     uint32_t *steps)
{
	uint32_t took = sandbox->labels.count * labels->count / 4 / COMPARISONS_PER_STEP;

	*steps -= took < *steps ? took : *steps;
}

/* Places: the subject, then the ids, then the shard's sandboxes. */
static uint32_t places_of_ids(const struct part *part)
{
	return 1 + part->request->body.select.count;
}

bool selection_is_over(const struct part *part)
{
	uint32_t places = places_of_ids(part);

	if (part->request->body.select.labels.count)
		places += part->shard->sandboxes.count;
	return part->started == places;
}

static struct sandbox *sandbox_named(const struct part *part, uint32_t place)
{
	const struct request *request = part->request;
	struct dsec_wire_id id = request->entry.subject;

	if (place)
		memcpy(&id,
		       request->payload.payload + request->body.select.ids.at +
			       (place - 1) * sizeof id,
		       sizeof id);
	return sandbox_find(part->shard, part->request->tenant, id);
}

bool selection_was_named(const struct part *part)
{
	return part->started <= places_of_ids(part);
}

uint32_t selection_names(const struct request *request)
{
	const struct dsec_wire_id *subject = &request->entry.subject;

	return request->body.select.count + (subject->hi || subject->lo);
}

void selection_back(struct part *part)
{
	part->started--;
}

struct sandbox *selection_next(struct part *part, uint32_t *steps)
{
	const struct request *request = part->request;
	const struct dsec_wire_items *labels = &request->body.select.labels;
	uint32_t ids = places_of_ids(part);

	while (*steps && !selection_is_over(part)) {
		uint32_t place = part->started++;
		struct sandbox *sandbox;

		--*steps;
		if (place < ids) {
			sandbox = sandbox_named(part, place);
			if (sandbox)
				return sandbox;
			continue;
		}
		sandbox = pool_at(&part->shard->sandboxes, place - ids);
		if (!sandbox || !tenant_sees(request->tenant, sandbox->tenancy->tenant))
			continue;
		selection_count(sandbox, labels, steps);
		if (sandbox_has_labels(sandbox, &request->payload, labels))
			return sandbox;
	}
	return NULL;
}
