/*
 * Preparing slots off the critical path: a dirty one gets a new root at once, so that what a
 * sandbox left in memory does not stay there; at the end of the engine every slot is given back.
 * Called by the container backend of one shard.
 */
#include "backends/container/container.h"

#include <errno.h>

#include "engine/base/cleanup.h"

static void prepare_replied(struct launch_call *call, const struct launch_reply *reply);

static void prepare_ask(struct preparation *p, enum launch_op op)
{
	struct launch_request *request = &p->call.request;

	slot_request(p->in, p->slot, op, request);
	request->image = p->slot->image;
	request->disk_bytes = p->slot->disk_bytes;
	request->inodes = p->slot->inodes;
	request->flags = op == LAUNCH_BUILD ? LAUNCH_REBUILD : 0;
	p->call.class = op == LAUNCH_BUILD ? TEAM_PREPARE : TEAM_END;
	p->call.done = prepare_replied;
	team_call(&p->in->team, &p->call);
}

static void prepare_end(struct preparation *p, enum slot_state state)
{
	struct containers *c = p->in;

	p->slot->user = NULL;
	if (state == SLOT_EMPTY)
		slot_cgroup_gone(c, p->slot);
	if (state == SLOT_QUARANTINED)
		quarantine_slot(c, p->slot);
	else
		slot_move(&c->slots, p->slot, state);
	pool_put(&c->preparations, p);
	if (c->drained)
		prepare_drain(c);
	else
		prepare_slots(c);
}

static void prepare_replied(struct launch_call *call, const struct launch_reply *reply)
{
	struct preparation *p = container_of(call, struct preparation, call);
	const struct slot *slot = p->slot;
	struct slot_wish wish = { .image = slot->image,
				  .disk_bytes = slot->disk_bytes,
				  .inodes = slot->inodes,
				  .processes_max = slot->processes_max };

	if (!reply) {
		/* The worker was lost half-way: whatever there is of the slot goes. */
		prepare_ask(p, LAUNCH_SWEEP);
	} else if (call->request.op != LAUNCH_BUILD && reply->error) {
		prepare_end(p, SLOT_QUARANTINED);
	} else if (call->request.op != LAUNCH_BUILD) {
		prepare_end(p, SLOT_EMPTY);
	} else if (reply->error || p->in->drained || slot->forgotten) {
		prepare_ask(p, LAUNCH_DROP);
	} else {
		slot_built(&p->in->slots, p->slot, &wish, reply);
		prepare_end(p, SLOT_CLEAN);
	}
}

static struct preparation *prepare_begin(struct containers *c, struct slot *slot)
{
	struct preparation *p = pool_take(&c->preparations);

	if (!p)
		return NULL;
	p->in = c;
	p->slot = slot;
	slot->user = p;
	slot_move(&c->slots, slot, SLOT_REBUILDING);
	return p;
}

void prepare_slots(struct containers *c)
{
	struct slot *slot;
	struct preparation *p;

	while ((slot = slot_first(&c->slots, SLOT_DIRTY)) && (p = prepare_begin(c, slot)))
		prepare_ask(p, slot->forgotten ? LAUNCH_DROP : LAUNCH_BUILD);
}

/* None is taken: its boxes have gone. What is being built of it is given back when it is there. */
void prepare_forget(struct backend *b, uint32_t image)
{
	struct containers *c = containers_of(b);

	for (uint32_t i = 0; i < c->slots.count; i++) {
		struct slot *slot = &c->slots.all[i];

		if (slot->image != image || slot->state == SLOT_EMPTY)
			continue;
		slot->forgotten = true;
		if (slot->state == SLOT_CLEAN)
			slot_move(&c->slots, slot, SLOT_DIRTY);
	}
	if (!c->drained)
		prepare_slots(c);
}

bool prepare_withdraw(struct containers *c, struct slot *slot)
{
	struct preparation *p = slot->user;

	if (!p || !team_withdraw(&c->team, &p->call))
		return false;
	slot->user = NULL;
	pool_put(&c->preparations, p);
	return true;
}

void prepare_drain(struct containers *c)
{
	struct slot *slot;
	struct preparation *p;

	while (((slot = slot_first(&c->slots, SLOT_CLEAN)) ||
		(slot = slot_first(&c->slots, SLOT_DIRTY))) &&
	       (p = prepare_begin(c, slot)))
		prepare_ask(p, LAUNCH_DROP);
	networks_drain(&c->networks);
	if (!pool_taken(&c->preparations) && !c->slots.counts[SLOT_QUARANTINED] &&
	    !networks_made(&c->networks) && c->drained) {
		void (*drained)(void *) = c->drained;

		c->drained = NULL;
		drained(c->options.owner);
	}
}
