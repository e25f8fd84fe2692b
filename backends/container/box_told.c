/*
 * What BPF programs and the governor are told of a box's cgroup: its network, its policy, how fast
 * it may make processes. Called by the flow of boxes and by narrow.c. Must hold: all of it is told
 * before a program of the sandbox runs.
 */
#include <errno.h>
#include <string.h>

#include "backends/container/container.h"
#include "bpf/guard.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"

/*
 * A load test of its own server. None of the ports keeps a neighbour from one; each connection, and
 * each socket of UDP, may hold as many bytes as its buffers take.
 */
enum { SHARED_PORTS_MAX = 4096, SHARED_DATAGRAMS_MAX = 512, SHARED_CONNECTIONS_MAX = 2048 };

/* What runs there next is set up before it is told of. */
void slot_policy_end(struct containers *c, struct slot *slot)
{
	if (slot->has_policy)
		(void)guard_sandbox_clear(c->guard, slot->cgroup_id); /* it can only be gone */
	slot->has_policy = false;
	slot_egress_end(c, slot);
}

/* Where it cannot be limited it is told as not enforced, or the machine is out of memory. */
static void churn_limit(const struct containers *c, struct slot *slot, uint32_t per_s)
{
	int r = governor_limit(node_governor(c->options.node), c->options.shard, slot, per_s);

	if (r < 0)
		log_error("churn is not limited slot=%u err=%s, continuing", slot->number,
			  strerror(-r));
}

void slot_told_end(struct containers *c, struct slot *slot)
{
	if (c->guard && slot->network)
		(void)guard_network_set(c->guard, slot->cgroup_id, false); /* forgets the id */
	slot->network = BOX_NETWORK_NONE;
	slot_egress_forget(c, slot);
	governor_leave(node_governor(c->options.node), slot);
}

/*
 * No two sandboxes of a namespace have one address, and a slot comes back to one only after all
 * that there are for it: by then nothing in the kernel knows it, and nobody else's sockets.
 */
uint32_t slot_address_next(const struct container *box)
{
	const uint32_t slots = containers_of(box->box.backend)->slots.count;
	const uint32_t all = box->network->group.leads_out ? GUARD_SHARED_BLOCK :
							     GUARD_SHARED_ADDRESSES;
	struct slot *slot = box->slot;

	return box->network->first_address + 1 + slot->number % slots +
	       slot->shared_uses++ % ((all - 1) / slots) * slots;
}

static int set_shared(struct containers *c, struct container *box)
{
	uint8_t block6[16];
	const bool has_six = node_egress_address6(c->options.node, box->network->number, block6);
	const struct guard_shared what = { .address = box->shared_address,
					   .ports_max = SHARED_PORTS_MAX,
					   .datagrams_max = SHARED_DATAGRAMS_MAX,
					   .connections_max = SHARED_CONNECTIONS_MAX,
					   .leads_out = box->box.spec.is_policed,
					   .leads_out6 = box->box.spec.is_policed && has_six };

	box->slot->network = BOX_NETWORK_SHARED; /* whatever it gets of it */
	return guard_shared_set(c->guard, box->slot->cgroup_id, &what);
}

/*
 * Only when it changes. PID 1 makes no sockets. What was set stays until the slot's next sandbox:
 * packets that a dead one left in the kernel are its own until then.
 */
static int set_network(struct containers *c, struct container *box)
{
	const enum box_network network = box->box.spec.network;
	struct slot *slot = box->slot;
	int r;

	if (network == BOX_NETWORK_SHARED)
		return set_shared(c, box);
	if (slot->network == network)
		return 0;
	r = guard_network_set(c->guard, slot->cgroup_id, network);
	if (r < 0 && r != -EOPNOTSUPP)
		return r;
	slot->network = network;
	return 0;
}

/*
 * PID 1 was made before it, since it mounts; nobody's program has run yet. It ends with the slot,
 * when nothing runs there any more.
 */
int box_policy_tell(struct container *box, uint32_t policy, uint32_t version)
{
	struct containers *c = containers_of(box->box.backend);
	const struct guard_sandbox told = {
		.sandbox = box->box.spec.id_lo,
		.policy = policy,
		.version = version,
		.phase = version,
		.shard = c->options.shard,
		.root_device = box->root_device,
	};
	int r;

	if (!policy)
		return 0;
	r = c->guard ? guard_sandbox_set(c->guard, box->slot->cgroup_id, &told) : -EOPNOTSUPP;
	box->slot->has_policy |= r == 0;
	return r;
}

int box_tell(struct container *box)
{
	struct containers *c = containers_of(box->box.backend);
	const struct box_spec *spec = &box->box.spec;
	int r;

	box->box.cgroup_id = box->slot->cgroup_id;
	churn_limit(c, box->slot, spec->limits.processes_per_s);
	if (!c->guard || !box->slot->cgroup_id)
		return spec->policy || spec->is_policed || spec->network == BOX_NETWORK_SHARED ?
			       -EOPNOTSUPP :
			       0;
	if (spec->network == BOX_NETWORK_SHARED)
		box->shared_address = slot_address_next(box);
	/* Told before it may send anything: without an entry nothing is asked. */
	if (spec->is_policed)
		slot_egress_forget(c, box->slot); /* what was counted is not its own */
	r = spec->is_policed ? box_egress_tell(box, spec->policy) : 0;
	if (r == 0)
		r = set_network(c, box);
	if (!spec->is_policed)
		slot_egress_forget(c, box->slot);
	return r < 0 ? r : box_policy_tell(box, spec->policy, 1);
}
