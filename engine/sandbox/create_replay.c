/*
 * A create that is asked again under its request id: one CREATED for each that was asked, from what
 * is there now; nothing is made. Called by create.c. Must hold: created + not there = asked, and
 * the events wait for room as those of the first time did.
 */
#include "engine/sandbox/create_replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/request/request.h"
#include "engine/sandbox/sandbox.h"
#include "engine/request/selection.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

enum { EVENTS_PER_TURN = 64 };

/* part->work. part->started: how many were told. */
struct replay {
	uint8_t request_id[16];
	uint32_t looked;   /* how far the shard's sandboxes were looked at */
	uint32_t places[]; /* of part->count: place in the pool + 1; 0: it is not there */
};

static void replay_end(struct part *part, const struct status *status)
{
	free(part->work);
	part->work = NULL;
	part->replayed = true;
	part_end(part, status, NULL);
}

/* Another tenant may have used the same id. */
static bool is_of(const struct sandbox *sandbox, const struct part *part)
{
	const struct replay *replay = part->work;

	return sandbox && sandbox->tenancy == tenancy_of(part) &&
	       sandbox->state == DSEC_STATE_RUNNING &&
	       !memcmp(sandbox->request_id, replay->request_id, sizeof replay->request_id);
}

/* False: there are more to look at. */
static bool replay_look(struct replay *replay, const struct part *part)
{
	const struct pool *pool = &part->shard->sandboxes;

	for (uint32_t steps = WALK_STEPS; steps && replay->looked < pool->count; steps--) {
		const struct sandbox *sandbox = pool_at(pool, replay->looked++);

		/* Another count than the first time: what does not fit is not told. */
		if (is_of(sandbox, part) && sandbox->index >= part->first &&
		    sandbox->index - part->first < part->count)
			replay->places[sandbox->index - part->first] = replay->looked;
	}
	return replay->looked == pool->count;
}

static void replay_tell(struct part *part, uint32_t at)
{
	const struct replay *replay = part->work;
	const struct sandbox *sandbox = NULL;
	struct dsec_wire_created body;
	struct emission e = { .kind = DSEC_EV_CREATED,
			      .flags = DSEC_EVENT_REPLAYED,
			      .index = (uint16_t)(part->first + at) };

	if (replay->places[at])
		sandbox = pool_at(&part->shard->sandboxes, replay->places[at] - 1);
	if (is_of(sandbox, part)) { /* it may have gone since it was looked at */
		body = sandbox_settings(sandbox);
		e.subject = sandbox->id;
		e.body = &body;
		e.bytes = sizeof body;
	} else {
		e.status = (struct status){ .code = DSEC_ABSENT,
					    .blame = DSEC_BLAME_PLATFORM,
					    .table = "create",
					    .step = "replay",
					    .detail = "it was not made, or is gone since" };
	}
	part_emit(part, &e);
}

static void replay_more(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);

	(void)owner; /* part->shard */
	if (part->unheard) {
		replay_end(part, NULL);
		return;
	}
	if (!replay_look(part->work, part)) {
		part_again(part, replay_more);
		return;
	}
	for (int told = 0; told < EVENTS_PER_TURN && part->started < part->count; told++)
		replay_tell(part, part->started++);
	if (part->started < part->count)
		part_again_with_room(part, replay_more);
	else
		replay_end(part, NULL);
}

void create_replay(struct part *part)
{
	struct replay *replay = NULL;
	struct status s = status_of_errno(-ENOMEM, "create", "replay");

	if (part->count <= CREATE_COUNT_MAX)
		replay = calloc(1, sizeof *replay + part->count * sizeof *replay->places);
	if (!replay) {
		part_end(part, &s, NULL);
		return;
	}
	memcpy(replay->request_id, part->request->entry.request_id, sizeof replay->request_id);
	part->work = replay;
	part_again(part, replay_more);
}
