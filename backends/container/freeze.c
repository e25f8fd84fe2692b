/*
 * Boxes that are held still while what they wrote is read. Called by the engine through the class.
 * Must hold: PID 1 is held from the freeze to the thaw, so that the slot cannot become another
 * sandbox's meanwhile; whoever was frozen is thawed, which is tried again until it went well.
 */
#include <errno.h>
#include <stdlib.h>

#include "backends/container/container.h"
#include "engine/base/cleanup.h"

/* One of either, with its call. */
struct stillness {
	struct launch_call call;
	struct container *box; /* held */
	struct box_freeze *freeze;
	int error; /* of a freeze that failed: thawed before it is told */
};

static void stillness_end(struct stillness *still, int error)
{
	struct box_freeze *freeze = still->freeze;
	struct container *box = still->box;

	free(still);
	child_release(&box->init);
	freeze->done(freeze, error);
}

static void thawed(struct launch_call *call, const struct launch_reply *reply)
{
	struct stillness *still = container_of(call, struct stillness, call);

	if (!reply || reply->error) {
		team_call_later(&containers_of(still->box->box.backend)->team, call);
		return;
	}
	stillness_end(still, still->error);
}

static void box_thaw(struct stillness *still)
{
	struct containers *c = containers_of(still->box->box.backend);

	slot_request(c, still->box->slot, LAUNCH_THAW, &still->call.request);
	still->call.class = TEAM_END;
	still->call.done = thawed;
	team_call(&c->team, &still->call);
}

static void frozen(struct launch_call *call, const struct launch_reply *reply)
{
	struct stillness *still = container_of(call, struct stillness, call);
	struct box_freeze *freeze = still->freeze;

	freeze->upper_fd = take_fd(&call->reply_fd);
	still->error = reply ? -reply->error : -EPIPE;
	if (!still->error && freeze->upper_fd < 0)
		still->error = -EPROTO;
	if (still->error) {
		cleanup_close(&freeze->upper_fd);
		freeze->upper_fd = -1;
		box_thaw(still);
		return;
	}
	free(still);
	freeze->done(freeze, 0);
}

static struct stillness *stillness_new(struct box *base, struct box_freeze *freeze)
{
	struct stillness *still = calloc(1, sizeof *still);

	if (still) {
		still->box = container_of_box(base);
		still->freeze = freeze;
	}
	return still;
}

int container_box_freeze(struct box *base, struct box_freeze *freeze)
{
	struct container *box = container_of_box(base);
	struct containers *c = containers_of(base->backend);
	struct stillness *still;

	if (!box->up || !child_is_alive(&box->init) || child_is_ending(&box->init))
		return -ESRCH;
	still = stillness_new(base, freeze);
	if (!still)
		return -ENOMEM;
	freeze->id_base = node_uid_base(c->options.node, box->slot->number);
	child_hold(&box->init);
	slot_request(c, box->slot, LAUNCH_FREEZE, &still->call.request);
	still->call.request.limit_ms = FREEZE_LIMIT_MS;
	still->call.class = TEAM_START;
	still->call.whose = base->spec.whose;
	still->call.takes_descriptor = true;
	still->call.done = frozen;
	team_call(&c->team, &still->call);
	return 0;
}

int container_box_thaw(struct box *base, struct box_freeze *freeze)
{
	struct stillness *still = stillness_new(base, freeze);

	if (!still)
		return -ENOMEM;
	box_thaw(still);
	return 0;
}
