/*
 * Slots in which processes may be left that do not die, or of which something could not be taken
 * down. Called by the container backend of one shard. Must hold: nobody gets such a slot until a
 * worker swept it; sweeping is tried for as long as the engine lives, and costs a worker little.
 */
#include <stdlib.h>

#include "backends/container/container.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"

struct sweeping {
	struct launch_call call;
	struct containers *in;
	struct slot *slot;
};

static void sweeping_replied(struct launch_call *call, const struct launch_reply *reply)
{
	struct sweeping *sweeping = container_of(call, struct sweeping, call);
	struct containers *c = sweeping->in;
	struct slot *slot = sweeping->slot;

	if (!reply || reply->error) {
		team_call_later(&c->team, call);
		return;
	}
	slot->unswept = false;
	/* What was left in it may have been refused things since its sandbox was told of. */
	if (c->options.box_emptied && slot->cgroup_id)
		c->options.box_emptied(c->options.owner, slot->cgroup_id);
	slot_cgroup_gone(c, slot);
	slot_move(&c->slots, slot, SLOT_EMPTY);
	free(sweeping);
	if (c->drained)
		prepare_drain(c);
}

void quarantine_slot(struct containers *c, struct slot *slot)
{
	struct sweeping *sweeping = calloc(1, sizeof *sweeping);

	slot_move(&c->slots, slot, SLOT_QUARANTINED);
	log_debug("slot quarantined number=%u", slot->number);
	if (!sweeping)
		return; /* the next engine sweeps it */
	sweeping->in = c;
	sweeping->slot = slot;
	slot_request(c, slot, LAUNCH_SWEEP, &sweeping->call.request);
	sweeping->call.class = TEAM_END;
	sweeping->call.done = sweeping_replied;
	team_call_later(&c->team, &sweeping->call);
}
