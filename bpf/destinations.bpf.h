/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where policies let packets go, as egress.bpf.c and tap.bpf.c ask it: each of them has a trie of
 * its own, which guard_destination.c makes the entries of. After vmlinux.h.
 */
#pragma once

#include <bpf/bpf_helpers.h>

#include "bpf/policy.h"

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, POLICY_DESTINATIONS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_destination_key);
	__type(value, struct policy_destination);
} destinations SEC(".maps");

/* The entry of the longest prefix that has one; NULL: the policy says nothing of it. */
static __always_inline const struct policy_destination *destination_find(__u32 policy,
									 const void *address)
{
	struct policy_destination_key key = {
		.prefix_bits = POLICY_NUMBER_BITS + POLICY_ADDRESS_BITS, .policy = policy
	};

	__builtin_memcpy(key.address, address, sizeof(key.address));
	return bpf_map_lookup_elem(&destinations, &key);
}

/* The range that lets it pass; NULL: none does. */
static __always_inline const struct policy_ports *
destination_ports(const struct policy_destination *to, __u32 protocol, __u16 port)
{
	for (unsigned int i = 0; i < POLICY_PORT_RANGES_MAX; i++) {
		const struct policy_ports *range = &to->ranges[i];

		if (i >= to->range_count)
			break;
		if (range->protocol == protocol && port >= range->first && port <= range->last)
			return range;
	}
	return NULL;
}
