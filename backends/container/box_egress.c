/*
 * Where a box that has a way out may go, as the guard is told. Called as a box is built, as it is
 * narrowed, and as its slot is given back. Must hold: it is told before anybody's program runs
 * there (PID 1 is ours and sends nothing), and forgotten when nothing runs there any more.
 */
#include <arpa/inet.h>
#include <errno.h>

#include "backends/container/container.h"
#include "backends/container/egress.h"
#include "bpf/guard.h"
#include "bpf/policy_shared.h"

enum { PORT_DNS = 53 };

int box_egress_tell(struct container *box, uint32_t policy)
{
	struct containers *c = containers_of(box->box.backend);
	const uint32_t own =
		box->box.spec.network == BOX_NETWORK_SHARED ?
			POLICY_SHARED_V4 + box->shared_address :
			node_egress_address(c->options.node, box->network->number) + EGRESS_SANDBOX;
	struct guard_egress told = { .policy = policy ? policy : GUARD_EGRESS_NOWHERE,
				     .address4 = htonl(own) };
	int r;

	if (box->box.spec.asks_names) {
		told.resolver4 = htonl(node_resolver_address(c->options.node));
		told.resolver_port = htons(PORT_DNS);
	}
	r = c->guard ? guard_egress_set(c->guard, box->slot->cgroup_id, &told) : -EOPNOTSUPP;

	box->box.address4 = told.address4;
	box->slot->has_egress |= r == 0;
	return r;
}

void slot_egress_forget(struct containers *c, struct slot *slot)
{
	if (slot->has_egress)
		(void)guard_egress_clear(c->guard, slot->cgroup_id); /* it can only be gone */
	slot->has_egress = false;
}

/* In a namespace of many the kernel may still send what it left: nowhere, until its next one. */
void slot_egress_end(struct containers *c, struct slot *slot)
{
	const struct guard_egress nowhere = { .policy = GUARD_EGRESS_NOWHERE };

	if (slot->network != BOX_NETWORK_SHARED)
		slot_egress_forget(c, slot);
	else if (slot->has_egress)
		(void)guard_egress_set(c->guard, slot->cgroup_id, &nowhere); /* it has a place */
}
