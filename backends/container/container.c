/*
 * Boxes of the container backend: one table of steps, walked down to create and up to destroy.
 * Called by the engine through the class at the end. A box holds a slot from its first step to its
 * last; its PID 1 is reaped before the slot is given back, and no launcher request that names the
 * pid is in flight when it is reaped.
 */
#include "backends/container/container.h"

#include <errno.h>
#include <string.h>

#include "backends/container/governor.h"
#include "backends/container/walls.h"
#include "bpf/guard.h"
#include "engine/base/cleanup.h"

static struct container *container_of_flow(struct flow *f)
{
	return container_of(f, struct container, box.flow);
}

static struct containers *containers_of_flow(struct flow *f)
{
	return containers_of(container_of_flow(f)->box.backend);
}

void slot_request(const struct containers *c, const struct slot *slot, enum launch_op op,
		  struct launch_request *ret)
{
	*ret = (struct launch_request){
		.op = op,
		.slot = slot->number,
		.limit_ms = SPAWN_LIMIT_MS,
		.uid_base = node_uid_base(c->options.node, slot->number),
		.processes_max = slot->processes_max,
	};
}

void call_add_walls(struct launch_call *call, int sheet_fd)
{
	if (sheet_fd < 0)
		return;
	call->request.flags |= LAUNCH_WALLS;
	call->fds[call->request.descriptor_count++] = sheet_fd;
}

void slot_cgroup_gone(struct containers *c, struct slot *slot)
{
	slot_policy_end(c, slot);
	slot_told_end(c, slot);
	slot->leaves_made = 0;
	slot->cgroup_id = slot->built_ns = slot->sandboxes = 0;
	slot->limits = (struct box_limits){ 0 };
	slot->limits_unknown = false;
	slot->processes_max = 0;
}

static struct slot_wish box_wish(const struct containers *c, const struct box_spec *spec)
{
	return (struct slot_wish){
		.image = spec->image,
		.disk_bytes = spec->disk_bytes ? spec->disk_bytes : c->options.disk_bytes,
		.inodes = spec->inodes ? spec->inodes : c->options.inodes,
		.processes_max = limits_processes_max(c, &spec->limits),
		.fresh_root = spec->fresh_root,
	};
}

/* ---- step "slot" ---- */

static int take_slot(struct flow *f)
{
	struct container *box = container_of_flow(f);
	struct containers *c = containers_of_flow(f);
	struct slot_wish wish = box_wish(c, &box->box.spec);

	box->slot = slot_take(&c->slots, &wish, &box->rebuild);
	if (!box->slot) {
		/* All are being prepared: take one whose preparation waits in the queue. */
		struct slot *slot = slot_first(&c->slots, SLOT_REBUILDING);

		if (!slot || !prepare_withdraw(c, slot))
			return -EAGAIN;
		box->slot = slot;
		box->rebuild = true;
		slot->sandboxes++;
		slot_move(&c->slots, slot, SLOT_TAKEN);
	}
	box->slot->holder = box;
	return FLOW_NEXT;
}

static void slot_give_back(struct container *box, int up_fd)
{
	struct containers *c = containers_of(box->box.backend);

	if (!slot_give(&c->slots, box->slot, up_fd))
		prepare_slots(c);
	box->slot = NULL;
}

static void upper_opened(struct io_op *op, int res)
{
	struct container *box = container_of(op, struct container, upper_op);
	auto_close int up_fd = res;

	slot_give_back(box, up_fd);
	flow_resume(&box->box.flow, 0);
}

static int give_slot(struct flow *f)
{
	struct container *box = container_of_flow(f);
	struct containers *c = containers_of_flow(f);

	if (!box->slot)
		return FLOW_NEXT;
	if (c->options.box_emptied && box->slot->cgroup_id)
		c->options.box_emptied(c->options.owner, box->slot->cgroup_id);
	box->slot->holder = NULL;
	if (!box->slot->unswept)
		slot_policy_end(c, box->slot);
	if (box->slot->unswept) {
		quarantine_slot(c, box->slot);
		box->slot = NULL;
		return FLOW_NEXT;
	}
	if (box->slot->suspect) {
		slot_give_back(box, -EINVAL); /* nothing would prove it untouched */
		return FLOW_NEXT;
	}
	slot_path(box->slot, box->upper_path);
	box->upper_op.done = upper_opened;
	io_open_folder(c->options.host->io, &box->upper_op, c->slots.vault_fd, box->upper_path);
	return FLOW_WAIT;
}

/* ---- step "network" ---- */

static void network_ready(struct network_wish *wish, int error)
{
	struct container *box = container_of(wish, struct container, network_wish);

	box->network = wish->network;
	flow_resume(&box->box.flow, error);
}

/* It may wait; network.c has the limit. */
static int take_network(struct flow *f)
{
	struct container *box = container_of_flow(f);

	if (!box->box.spec.network)
		return FLOW_NEXT;
	box->network_wish.ready = network_ready;
	box->network_wish.kind = box->box.spec.network;
	box->network_wish.group = box->box.spec.network_group;
	box->network = network_take(&containers_of_flow(f)->networks, &box->network_wish);
	return box->network ? FLOW_NEXT : FLOW_WAIT;
}

static int give_network(struct flow *f)
{
	struct container *box = container_of_flow(f);

	if (box->network)
		network_give(&containers_of_flow(f)->networks, box->network);
	box->network = NULL;
	return FLOW_NEXT;
}

/* ---- step "guard": what the guard lets this cgroup do ---- */

static int set_guard(struct flow *f)
{
	int r = box_tell(container_of_flow(f));

	return r < 0 ? r : FLOW_NEXT;
}

/* ---- step "spawn" ---- */

static void init_ended(struct child *child, int status);

/* A cgroup cannot be told to forget its peak: a sandbox that has a limit gets one that had none. */
static void request_group(const struct container *box, struct launch_request *request)
{
	const struct box_limits none = { 0 }, *limits = &box->box.spec.limits;
	const struct slot *slot = box->slot;

	request->limits = *limits;
	request->limits_changed = slot->limits_unknown ? BOX_LIMIT_ALL :
							 limits_changed(&slot->limits, limits);
	if (!box_counts_ooms(&box->box))
		return;
	request->flags |= LAUNCH_OOM;
	if (slot->sandboxes <= 1)
		return;
	request->flags |= LAUNCH_NEW_GROUP;
	request->limits_changed = limits_changed(&none, limits);
}

/* The guard knows a slot by the id of its cgroup. */
static void group_replied(struct containers *c, struct slot *slot, const struct launch_reply *reply)
{
	if (!reply->cgroup_id || reply->cgroup_id == slot->cgroup_id)
		return;
	if (slot->cgroup_id) {
		slot_told_end(c, slot);
		slot->leaves_made = 1;
		slot->sandboxes = 1;
	}
	slot->cgroup_id = reply->cgroup_id;
}

static void spawn_replied(struct launch_call *call, const struct launch_reply *reply)
{
	struct container *box = container_of(call, struct container, call);
	struct containers *c = containers_of(box->box.backend);
	struct slot_wish wish = box_wish(c, &box->box.spec);

	if (!reply) {
		box->lost = true;
		flow_resume(&box->box.flow, 0);
		return;
	}
	group_replied(c, box->slot, reply);
	if (box->rebuild && !(reply->flags & LAUNCH_REUSED) && reply->baseline.ctime_ns)
		slot_built(&c->slots, box->slot, &wish, reply);
	box->root_device = reply->root_device;
	memcpy(box->box.rules_absent, reply->rules_absent, sizeof box->box.rules_absent);
	box->up = reply->error == 0;
	box->cpu_before_us = reply->cpu_us == UINT64_MAX ? 0 : reply->cpu_us;
	box->ooms_before = reply->oom_kills;
	box->spawn_error = -reply->error;
	if (reply->error) {
		box->box.failed_step = launch_step_name(reply->step);
		box->slot->suspect = true;
		box->slot->limits_unknown |= call->request.limits_changed != 0;
	} else {
		box->slot->limits = call->request.limits;
		box->slot->limits_unknown = false;
	}
	if (reply->pid > 0) {
		box->init.ended = init_ended;
		(void)child_watch(&c->children, &box->init, reply->pid, call->sequence);
	}
	if (!child_is_alive(&box->init)) {
		flow_resume(&box->box.flow, reply->error ? -reply->error : -ECHILD);
	} else if (reply->error) {
		/* The child that failed is reaped before the step has failed. */
		box->killing = true;
		child_kill(&box->init);
	} else {
		flow_resume(&box->box.flow, 0);
	}
}

static void swept(struct launch_call *call, const struct launch_reply *reply)
{
	struct container *box = container_of(call, struct container, call);
	struct slot *slot = box->slot;

	if (!reply) {
		flow_resume(&box->box.flow, 0); /* lost again: ask the next worker */
		return;
	}
	if (reply->error)
		slot->unswept = true;
	else
		slot_cgroup_gone(containers_of(box->box.backend), slot);
	slot->suspect = true;
	box->lost = false;
	flow_resume(&box->box.flow, reply->error ? -reply->error : -EPIPE);
}

static int ask_spawn(struct flow *f)
{
	struct container *box = container_of_flow(f);
	struct containers *c = containers_of_flow(f);
	const struct box_spec *spec = &box->box.spec;
	struct launch_request *request = &box->call.request;
	struct slot_wish wish = box_wish(c, spec);

	slot_request(c, box->slot, box->lost ? LAUNCH_SWEEP : LAUNCH_SPAWN, request);
	box->call.class = TEAM_START;
	box->call.whose = spec->whose;
	box->call.done = box->lost ? swept : spawn_replied;
	if (box->lost)
		box->box.failed_step = "worker";
	request->sandbox_hi = spec->id_hi;
	request->sandbox_lo = spec->id_lo;
	request->image = spec->image;
	request->disk_bytes = wish.disk_bytes;
	request->inodes = wish.inodes;
	request_group(box, request);
	request->io_major = node_limits(c->options.node)->io_major;
	request->io_minor = node_limits(c->options.node)->io_minor;
	if (box->rebuild)
		request->flags |= LAUNCH_REBUILD;
	request->processes_max = wish.processes_max;
	if (box->slot->processes_max && box->slot->processes_max != wish.processes_max)
		request->flags |= LAUNCH_ANEW;
	if (spec->network) {
		request->flags |= LAUNCH_PRIVATE;
		request->network = box->network->number;
	}
	if (spec->asks_names)
		request->flags |= LAUNCH_RESOLVER;
	governor_begins(node_governor(c->options.node), c->options.shard, box->slot);
	if (!box->lost)
		call_add_walls(&box->call, walls_for_spawn(spec->walls));
	(void)strncpy(request->hostname, spec->hostname ? spec->hostname : "",
		      sizeof request->hostname - 1);
	team_call(box->lost ? &c->team : crews_team(&c->crews, spec->walls), &box->call);
	return FLOW_WAIT;
}

static int got_spawn(struct flow *f, int res)
{
	struct container *box = container_of_flow(f);
	struct containers *c = containers_of_flow(f);

	if (box->lost)
		return FLOW_AGAIN;
	if (res < 0)
		return res;
	box->box.reused = !box->rebuild;
	c->built++;
	c->reused += box->box.reused;
	return FLOW_NEXT;
}

/* PID 1 was reaped: unasked, or because the box unwinds, or after a spawn that failed. */
static void init_ended(struct child *child, int status)
{
	struct container *box = container_of(child, struct container, init);

	if (box->killing) {
		box->killing = false;
		flow_resume(&box->box.flow, box->spawn_error);
		return;
	}
	if (box->box.flow.direction == 0 && box->up)
		box->box.died(&box->box, status);
}

static int kill_init(struct flow *f)
{
	struct container *box = container_of_flow(f);

	if (!child_is_alive(&box->init))
		return FLOW_NEXT;
	box->killing = true;
	child_kill(&box->init);
	return FLOW_WAIT;
}

/* clang-format off */
static const struct flow_step container_steps[] = {
	/* name      start         finish     undo          limit_ms */
	{ "slot",    take_slot,    NULL,      give_slot,    0 },
	{ "network", take_network, NULL,      give_network, 0 },
	{ "spawn",   ask_spawn,    got_spawn, kill_init,    0 },
	{ "guard",   set_guard,    NULL,      NULL,         0 },
};
/* clang-format on */

/* ---- the class ---- */

static void container_done(struct flow *f, int error)
{
	struct container *box = container_of_flow(f);

	if (error) {
		if (!box->box.failed_step)
			box->box.failed_step = f->failed_step ? f->failed_step : "cancel";
		box->box.built(&box->box, error);
	} else if (f->at) {
		box->box.built(&box->box, 0);
	} else {
		box->box.gone(&box->box);
	}
}

/* A launcher request cannot be taken back: it ends by itself, within the launcher's limit. */
static void container_cancel(struct flow *f)
{
	struct container *box = container_of_flow(f);

	if (network_withdraw(&containers_of_flow(f)->networks, &box->network_wish))
		flow_resume(f, -ECANCELED);
}

static struct box *container_box_new(struct backend *b)
{
	struct container *box = pool_take(&containers_of(b)->boxes);

	if (!box)
		return NULL;
	box->box.backend = b;
	return &box->box;
}

static void container_box_free(struct box *box)
{
	pool_put(&containers_of(box->backend)->boxes, container_of_box(box));
}

static void container_build(struct box *box)
{
	struct containers *c = containers_of(box->backend);

	flow_init(&box->flow, c->options.host, "container", container_steps,
		  sizeof container_steps / sizeof container_steps[0]);
	box->flow.done = container_done;
	box->flow.cancel = container_cancel;
	flow_build(&box->flow);
}

static void container_unwind(struct box *box)
{
	flow_unwind(&box->flow);
}

/* What does not die of one SIGKILL hardly dies of two; but whoever kept it may be gone. */
static void container_retry(struct box *base)
{
	struct container *box = container_of_box(base);

	if (box->killing)
		child_kill(&box->init);
}

static void usage_replied(struct launch_call *call, const struct launch_reply *reply)
{
	struct container *box = container_of(call, struct container, usage_call);
	struct box_usage *usage = box->usage;
	bool alone;

	box->usage = NULL;
	if (!reply || reply->error) {
		usage->done(usage, reply ? -reply->error : -EPIPE);
		child_release(&box->init);
		return;
	}
	usage->cpu_us = reply->cpu_us;
	usage->oom_kills = 0;
	if (reply->cpu_us != UINT64_MAX)
		usage->cpu_us -= box->cpu_before_us;
	usage->memory_bytes = reply->memory_bytes;
	/* The peak of a pooled cgroup is all its sandboxes', and so is what they read and wrote. */
	alone = box->slot->sandboxes <= 1;
	usage->memory_peak_bytes = alone ? reply->memory_peak_bytes : UINT64_MAX;
	usage->io_read_bytes = alone ? reply->io_read_bytes : UINT64_MAX;
	usage->io_written_bytes = alone ? reply->io_written_bytes : UINT64_MAX;
	usage->network_received_bytes = reply->network_received_bytes;
	usage->network_sent_bytes = reply->network_sent_bytes;
	usage->disk_bytes = reply->disk_bytes;
	usage->inodes = reply->inodes;
	usage->processes = reply->processes;
	if (box_counts_ooms(&box->box) && reply->oom_kills != UINT64_MAX)
		usage->oom_kills = reply->oom_kills - box->ooms_before;
	usage->done(usage, 0);
	child_release(&box->init);
}

static int container_usage(struct box *box, struct box_usage *usage)
{
	struct container *container = container_of_box(box);
	struct containers *c = containers_of(box->backend);

	if (container->usage || !child_is_alive(&container->init))
		return -EBUSY;
	container->usage = usage;
	child_hold(&container->init); /* the box cannot go while the request is in flight */
	slot_request(c, container->slot, LAUNCH_STAT, &container->usage_call.request);
	if (container->box.spec.network == BOX_NETWORK_EGRESS && container->network) {
		container->usage_call.request.flags |= LAUNCH_EGRESS;
		container->usage_call.request.network = container->network->number;
	}
	container->usage_call.class = TEAM_START;
	container->usage_call.whose = box->spec.whose;
	container->usage_call.done = usage_replied;
	team_call(&c->team, &container->usage_call);
	return 0;
}

static void container_launcher_add(struct backend *b, int channel_fd, int pid)
{
	struct containers *c = containers_of(b);

	if (team_workers(&c->team) < c->options.launchers)
		team_add(&c->team, channel_fd, pid, NULL);
	else
		crews_add(&c->crews, channel_fd, pid);
}

static void container_gauges(const struct backend *b, struct backend_gauges *ret)
{
	const struct containers *c = container_of(b, const struct containers, backend);
	const uint32_t *counts = c->slots.counts;

	*ret = (struct backend_gauges){
		.slots_made = c->slots.count - counts[SLOT_EMPTY],
		.slots_clean = counts[SLOT_CLEAN],
		.slots_rebuilding = counts[SLOT_REBUILDING] + counts[SLOT_DIRTY],
		.slots_quarantined = counts[SLOT_QUARANTINED],
		.launchers = team_workers(&c->team) + crews_workers(&c->crews),
		.launchers_lost = c->team.lost + c->crews.lost,
		.built = c->built,
		.reused = c->reused,
		.strays = c->children.strays,
		.networks = networks_made(&c->networks),
		.networks_ending = c->networks.counts[NETWORK_ENDING],
		.networks_reused = c->networks.reused,
		.networks_discarded = c->networks.discarded,
	};
}

static void container_drain(struct backend *b, void (*empty)(void *owner))
{
	struct containers *c = containers_of(b);

	c->drained = empty;
	prepare_drain(c);
}

const struct backend_class container_class = {
	.name = "container",
	.box_new = container_box_new,
	.box_free = container_box_free,
	.box_build = container_build,
	.box_unwind = container_unwind,
	.box_retry = container_retry,
	.run_new = container_run_new,
	.run_free = container_run_free,
	.run_start = container_run_start,
	.run_terminate = container_run_terminate,
	.run_kill = container_run_kill,
	.run_signal = container_run_signal,
	.run_ask = container_run_ask,
	.run_finish = container_run_finish,
	.box_usage = container_usage,
	.box_clear = container_box_clear,
	.box_narrow = container_box_narrow,
	.box_freeze = container_box_freeze,
	.box_thaw = container_box_thaw,
	.box_phase = container_box_phase,
	.box_network = container_box_network,
	.port_ask = container_port_ask,
	.launcher_add = container_launcher_add,
	.image_attach = container_image_attach,
	.image_detach = container_image_detach,
	.image_forget = prepare_forget,
	.gauges = container_gauges,
	.drain = container_drain,
	.close = container_close,
};
