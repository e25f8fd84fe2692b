/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What sandboxes of network `shared` send and get, packet by packet: the last wall. Part of
 * shared.bpf.c, after shared_map.bpf.h.
 *
 * Must hold: over the loopback a sandbox reaches itself alone; by another interface it sends where
 * it has a way out, from its own address (egress.bpf.c says where to), and gets what is for that.
 * TCP and UDP, without options or extension headers. The kernel has the header of a packet that it
 * sends or gives to a socket in one piece.
 */
#pragma once

#include "bpf/shared_map.bpf.h"

/* From itself, or to itself, or both. */
enum packet_end { PACKET_FROM = 1, PACKET_TO = 2 };

static __always_inline bool packet_is_own(struct __sk_buff *packet,
					  const struct policy_shared *self, int ends)
{
	const void *end = (void *)(long)packet->data_end;
	const struct ipv6hdr *ip6 = (void *)(long)packet->data;
	const struct iphdr *ip4 = (void *)ip6;
	__u8 protocol;

	if (packet->protocol == bpf_htons(ETHERTYPE_4)) {
		if ((void *)(ip4 + 1) > end || ip4->ihl != 5 ||
		    (ends & PACKET_FROM && ip4->saddr != self->address4) ||
		    (ends & PACKET_TO && ip4->daddr != self->address4))
			return false;
		protocol = ip4->protocol;
	} else {
		if (packet->protocol != bpf_htons(ETHERTYPE_6) || (void *)(ip6 + 1) > end ||
		    (ends & PACKET_FROM && !is_own6(self, (const struct address6 *)&ip6->saddr)) ||
		    (ends & PACKET_TO && !is_own6(self, (const struct address6 *)&ip6->daddr)))
			return false;
		protocol = ip6->nexthdr;
	}
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

static __always_inline bool packet_passes(struct __sk_buff *packet,
					  const struct policy_shared *self, int end)
{
	if (packet->ifindex == LOOPBACK)
		return packet_is_own(packet, self, PACKET_FROM | PACKET_TO);
	return self->leads_out &
		       (packet->protocol == bpf_htons(ETHERTYPE_4) ? POLICY_LEADS_OUT_4 :
								     POLICY_LEADS_OUT_6) &&
	       packet_is_own(packet, self, end);
}

SEC("cgroup_skb/egress")
int dsec_out(struct __sk_buff *packet)
{
	struct policy_shared *self = packet_shared(packet);

	if (!self)
		return HOOK_ALLOW;
	if (!packet_passes(packet, self, PACKET_FROM)) {
		__sync_fetch_and_add(&self->counts.dropped, 1);
		return HOOK_DENY;
	}
	return HOOK_ALLOW;
}

SEC("cgroup_skb/ingress")
int dsec_in(struct __sk_buff *packet)
{
	struct policy_shared *self = packet_shared(packet);

	if (!self)
		return HOOK_ALLOW;
	if (!packet_passes(packet, self, PACKET_TO)) {
		__sync_fetch_and_add(&self->counts.dropped, 1);
		return HOOK_DENY;
	}
	return HOOK_ALLOW;
}
