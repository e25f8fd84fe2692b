/*
 * Where a box that has a way out may go, as the guard is told. Called as a box is built, as it is
 * narrowed, and as its slot is given back. Must hold: it is told before anybody's program runs
 * there (PID 1 is ours and sends nothing), and forgotten when nothing runs there any more.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "backends/container/container.h"
#include "backends/container/egress.h"
#include "bpf/guard.h"
#include "bpf/policy_shared.h"

enum { PORT_DNS = 53 };

/* By which addresses it sends. */
static void own_addresses(const struct container *box, struct guard_egress *ret)
{
	const struct backend_node *node = containers_of(box->box.backend)->options.node;
	const uint32_t network = box->network->number, number = box->shared_address;
	const uint32_t shared6[4] = { htonl(POLICY_SHARED_V6_0), 0, 0, htonl(number) };
	uint8_t block6[16];

	if (box->box.spec.network == BOX_NETWORK_SHARED)
		ret->address4 = htonl(POLICY_SHARED_V4 + number);
	else
		ret->address4 = htonl(node_egress_address(node, network) + EGRESS_SANDBOX);
	if (!node_egress_address6(node, network, block6))
		return;
	block6[15] |= EGRESS_SANDBOX;
	memcpy(ret->address6,
	       box->box.spec.network == BOX_NETWORK_SHARED ? (const uint8_t *)shared6 : block6,
	       sizeof ret->address6);
}

int box_egress_tell(struct container *box, uint32_t policy)
{
	struct containers *c = containers_of(box->box.backend);
	struct guard_egress told = { .policy = policy ? policy : GUARD_EGRESS_NOWHERE };
	int r;

	own_addresses(box, &told);
	if (box->box.spec.asks_names) {
		told.resolver4 = htonl(node_resolver_address(c->options.node));
		told.resolver_port = htons(PORT_DNS);
		told.tls_port = htons(EGRESS_PORT_TLS);
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
