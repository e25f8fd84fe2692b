/*
 * Boxes between two phases: what runs in them ends, and narrower walls are put up. Called by the
 * engine through the class. Must hold: PID 1 is held while a worker is asked, or the slot could be
 * another sandbox's by then; a leaf is forgotten only when a worker has emptied and removed it, so
 * that what comes next is in groups that nobody was in before.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/container/container.h"
#include "backends/container/walls.h"
#include "bpf/guard.h"

enum { CLEAR_ROUNDS_MAX = 6 };

/* One of either, with its call. */
struct passage {
	struct launch_call call;
	struct container *box; /* held */
	struct box_clear *clear;
	struct box_narrow *narrow;
	uint64_t left; /* bit per leaf */
	uint32_t rounds;
};

static struct passage *passage_new(struct box *base, enum launch_op op,
				   void (*done)(struct launch_call *, const struct launch_reply *))
{
	struct container *box = container_of_box(base);
	struct containers *c = containers_of(base->backend);
	struct passage *passage = calloc(1, sizeof *passage);

	if (!passage)
		return NULL;
	passage->box = box;
	slot_request(c, box->slot, op, &passage->call.request);
	passage->call.class = TEAM_END;
	passage->call.done = done;
	child_hold(&box->init);
	return passage;
}

static bool box_lives(const struct container *box)
{
	return box->up && child_is_alive(&box->init) && !child_is_ending(&box->init);
}

/* ---- leaves ---- */

static void clear_end(struct passage *passage, int error)
{
	struct box_clear *clear = passage->clear;
	struct container *box = passage->box;

	free(passage);
	clear->done(clear, error);
	child_release(&box->init);
}

/* The next leaf; what failed comes again, after a pause, when the others were asked. */
static void clear_next(struct passage *passage, uint32_t from)
{
	struct team *team = &containers_of(passage->box->box.backend)->team;
	uint64_t rest = from < 64 ? passage->left & ~0ull << from : 0;

	if (!passage->left) {
		clear_end(passage, 0);
	} else if (rest) {
		passage->call.request.leaf = (uint32_t)__builtin_ctzll(rest);
		team_call(team, &passage->call);
	} else if (!box_lives(passage->box)) {
		clear_end(passage, -ESRCH);
	} else if (++passage->rounds == CLEAR_ROUNDS_MAX) {
		clear_end(passage, -EBUSY);
	} else {
		passage->call.request.leaf = (uint32_t)__builtin_ctzll(passage->left);
		team_call_later(team, &passage->call);
	}
}

static void leaf_cleared(struct launch_call *call, const struct launch_reply *reply)
{
	struct passage *passage = container_of(call, struct passage, call);
	const uint32_t leaf = call->request.leaf;

	if (!reply) {
		team_call(&containers_of(passage->box->box.backend)->team, call);
		return;
	}
	if (!reply->error || reply->error == ENOENT) {
		passage->left &= ~(1ull << leaf);
		passage->box->slot->leaves_made &= ~(1ull << leaf);
	}
	clear_next(passage, leaf + 1);
}

int container_box_clear(struct box *base, struct box_clear *clear)
{
	struct container *box = container_of_box(base);
	struct passage *passage;

	if (!box_lives(box))
		return -ESRCH;
	if (!box->slot->leaves_made)
		return 1;
	passage = passage_new(base, LAUNCH_KILL, leaf_cleared);
	if (!passage)
		return -ENOMEM;
	passage->clear = clear;
	passage->call.request.limit_ms = KILL_LIMIT_MS;
	passage->left = box->slot->leaves_made;
	clear_next(passage, 0);
	return 0;
}

/* ---- walls ---- */

static void narrow_end(struct passage *passage, int error)
{
	struct box_narrow *narrow = passage->narrow;
	struct container *box = passage->box;

	free(passage);
	narrow->done(narrow, error);
	child_release(&box->init);
}

static void walls_replied(struct launch_call *call, const struct launch_reply *reply)
{
	struct passage *passage = container_of(call, struct passage, call);
	const struct box_narrow *narrow = passage->narrow;
	struct box *box = &passage->box->box;
	int r = reply ? -reply->error : -EPIPE;

	if (r == 0)
		r = box_policy_tell(passage->box, narrow->policy, narrow->version);
	if (r == 0 && box->spec.is_policed)
		r = box_egress_tell(passage->box, narrow->policy);
	if (r < 0) {
		narrow_end(passage, r);
		return;
	}
	box->spec.policy = narrow->policy;
	memcpy(box->rules_absent, reply->rules_absent, sizeof box->rules_absent);
	box->spec.walls = narrow->walls;
	narrow_end(passage, 0);
}

static int sockets_refuse(struct container *box)
{
	struct containers *c = containers_of(box->box.backend);
	struct slot *slot = box->slot;
	int r;

	if (!slot->network)
		return 0;
	r = c->guard ? guard_sockets_refuse(c->guard, slot->cgroup_id) : -EOPNOTSUPP;
	/* In a namespace of many the sockets it has go on reaching itself alone. */
	if (r >= 0 && slot->network != BOX_NETWORK_SHARED)
		slot->network = BOX_NETWORK_NONE;
	return r;
}

int container_box_narrow(struct box *base, struct box_narrow *narrow)
{
	struct container *box = container_of_box(base);
	struct passage *passage;
	int r = 0;

	if (!box_lives(box))
		return -ESRCH;
	if (narrow->takes_network)
		r = sockets_refuse(box);
	if (r < 0)
		return r;
	passage = passage_new(base, LAUNCH_NARROW, walls_replied);
	if (!passage)
		return -ENOMEM;
	passage->narrow = narrow;
	passage->call.request.pid = box->init.pid;
	call_add_walls(&passage->call, walls_for_spawn(narrow->walls));
	team_call(&containers_of(base->backend)->team, &passage->call);
	return 0;
}

/* ---- versions ---- */

int container_box_phase(struct box *base, uint32_t version)
{
	struct container *box = container_of_box(base);

	return box_lives(box) ? box_policy_tell(box, base->spec.policy, version) : -ESRCH;
}

/* ---- flows ---- */

int container_box_network(const struct box *base, struct box_sockets *ret)
{
	const struct container *box = container_of(base, const struct container, box);
	char path[64];
	int fd;

	if (!box_lives(box))
		return -ESRCH;
	if (!box->network)
		return -ENOENT;
	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", box->init.pid); /* it is not reaped */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	*ret = (struct box_sockets){ .namespace_fd = fd, .cgroup_id = box->slot->cgroup_id };
	if (box->box.spec.network == BOX_NETWORK_SHARED)
		ret->shared_address = box->shared_address;
	return 0;
}
