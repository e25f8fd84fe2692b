/*
 * Opening and closing the container backend of one shard, and bringing an image into the vault.
 * Called by the shard.
 */
#include "backends/container/container.h"

#include <errno.h>
#include <stdlib.h>

#include "bpf/guard.h"
#include "engine/base/cleanup.h"

enum { PREPARATIONS_MAX = 64, PORTS_MAX = 128 };

static void worker_lost(void *owner)
{
	struct containers *c = owner;

	c->options.launcher_lost(c->options.owner);
}

static void worker_stuck(void *owner, int pid)
{
	struct containers *c = owner;

	c->options.launcher_stuck(c->options.owner, pid);
}

static int containers_fill(struct containers *c)
{
	const struct backend_options *o = &c->options;
	uint32_t slots = node_slots_per_shard(o->node);
	int r;

	if (c->guard) {
		r = guard_exits_open(c->guard, o->shard, &c->exits);
		if (r < 0 && r != -EOPNOTSUPP)
			return r;
	}
	r = children_init(&c->children, o->host->io, c->exits, o->boxes_max + o->runs_max);
	if (r < 0)
		return r;
	team_init(&c->team, o->host->io, o->host->timers, &c->children.sequence);
	c->team.owner = c;
	c->team.worker_lost = worker_lost;
	c->team.worker_stuck = worker_stuck;
	crews_init(&c->crews, &c->team, o);
	r = slots_init(&c->slots, node_vault_fd(o->node), o->shard * slots, slots);
	if (r < 0)
		return r;
	c->slots.uses_max = o->slot_uses_max;
	r = networks_init(&c->networks, c, o->shard * slots, slots);
	if (r < 0)
		return r;
	r = pool_init(&c->boxes, sizeof(struct container), o->boxes_max);
	if (r < 0)
		return r;
	r = pool_init(&c->runs, sizeof(struct container_run), o->runs_max);
	if (r < 0)
		return r;
	r = pool_init(&c->ports, sizeof(struct port_call), PORTS_MAX);
	if (r < 0)
		return r;
	return pool_init(&c->preparations, sizeof(struct preparation), PREPARATIONS_MAX);
}

int container_open(const struct backend_options *options, struct backend **ret)
{
	struct containers *c = calloc(1, sizeof *c);
	int r;

	if (!c)
		return -ENOMEM;
	c->backend.class = &container_class;
	c->options = *options;
	c->guard = node_guard(options->node);
	r = containers_fill(c);
	if (r >= 0)
		governor_meet(node_governor(options->node), options->shard, c);
	if (r < 0) {
		container_close(&c->backend);
		return r;
	}
	*ret = &c->backend;
	return 0;
}

void container_close(struct backend *b)
{
	struct containers *c = containers_of(b);

	governor_meet(node_governor(c->options.node), c->options.shard, NULL);
	if (c->team.io) {
		team_close(&c->team);
		crews_close(&c->crews);
	}
	pool_done(&c->ports);
	pool_done(&c->preparations);
	pool_done(&c->runs);
	pool_done(&c->boxes);
	networks_done(&c->networks);
	slots_done(&c->slots);
	children_done(&c->children);
	guard_exits_close(c->exits);
	free(c);
}

enum { ATTACH_TRIES = 2 * TEAM_WORKERS_MAX }; /* each worker may be lost once */

struct attachment {
	struct launch_call call;
	struct containers *in;
	uint32_t tries;
	void *owner;
	void (*ready)(void *owner, int error);
};

static void attached(struct launch_call *call, const struct launch_reply *reply)
{
	struct attachment *a = container_of(call, struct attachment, call);
	void (*ready)(void *, int) = a->ready;
	void *owner = a->owner;
	int error = reply ? -reply->error : -EPIPE;

	/* A lost worker must not cost every sandbox that waits for the image. */
	if (!reply && ++a->tries < ATTACH_TRIES) {
		team_call(&a->in->team, call);
		return;
	}
	if (call->request.op == LAUNCH_ATTACH)
		(void)close(call->fds[0]); /* the vault has its own reference, or the mount goes */
	else if (a->tries && error == -ENOENT)
		error = 0; /* the worker that was lost did it */
	free(a);
	ready(owner, error);
}

static struct attachment *attachment_new(struct containers *c, uint32_t image, enum launch_op op)
{
	struct attachment *a = calloc(1, sizeof *a);

	if (!a)
		return NULL;
	a->in = c;
	a->call.request = (struct launch_request){
		.op = op,
		.image = image,
		.limit_ms = SPAWN_LIMIT_MS,
	};
	a->call.class = op == LAUNCH_ATTACH ? TEAM_START : TEAM_END;
	a->call.done = attached;
	return a;
}

int container_image_attach(struct backend *b, uint32_t image, int mount_fd, void *owner,
			   void (*ready)(void *owner, int error))
{
	struct containers *c = containers_of(b);
	struct attachment *a = attachment_new(c, image, LAUNCH_ATTACH);

	if (!a)
		return -ENOMEM;
	a->owner = owner;
	a->ready = ready;
	a->call.request.descriptor_count = 1;
	a->call.fds[0] = mount_fd;
	team_call(&c->team, &a->call);
	return 0;
}

int container_image_detach(struct backend *b, uint32_t image, void *owner,
			   void (*ready)(void *owner, int error))
{
	struct containers *c = containers_of(b);
	struct attachment *a = attachment_new(c, image, LAUNCH_DETACH);

	if (!a)
		return -ENOMEM;
	a->owner = owner;
	a->ready = ready;
	team_call(&c->team, &a->call);
	return 0;
}
