/*
 * Turns a destination of a policy into an entry of a trie. Called by guard_egress.c and
 * guard_tap.c. Must hold: nothing gets into a trie that a program could read past.
 */
#include "bpf/guard_destination.h"

#include <errno.h>
#include <string.h>

#include "bpf/guard_policy.h"

_Static_assert((int)GUARD_PORT_RANGES_MAX == (int)POLICY_PORT_RANGES_MAX, "as many as fit");

int guard_destination_entry(uint32_t policy, const struct guard_destination *destination,
			    struct policy_destination_key *ret_key,
			    struct policy_destination *ret_value)
{
	if (destination->prefix_bits > POLICY_ADDRESS_BITS ||
	    destination->port_count > GUARD_PORT_RANGES_MAX)
		return -EINVAL;
	*ret_key = (struct policy_destination_key){
		.prefix_bits = POLICY_NUMBER_BITS + (uint32_t)destination->prefix_bits,
		.policy = policy,
	};
	memcpy(ret_key->address, destination->address, sizeof(ret_key->address));
	*ret_value = (struct policy_destination){ .rule = destination->rule,
						  .range_count = destination->port_count };
	for (uint32_t i = 0; i < destination->port_count; i++) {
		const struct guard_ports *ports = &destination->ports[i];

		if (ports->first > ports->last)
			return -EINVAL;
		ret_value->ranges[i] = (struct policy_ports){ .first = ports->first,
							      .last = ports->last,
							      .protocol = ports->protocol,
							      .rule = ports->rule };
	}
	return 0;
}
