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

/* Most packets: of IPv4, over the loopback, from the sandbox to itself. False: look closer. */
static __always_inline bool packet_is_usual(struct __sk_buff *packet, __u64 cgroup_id)
{
	const struct iphdr *ip4 = (void *)(long)packet->data;

	if (packet->ifindex != LOOPBACK || packet->protocol != bpf_htons(ETHERTYPE_4) ||
	    (void *)(ip4 + 1) > (void *)(long)packet->data_end || ip4->ihl != 5 ||
	    ip4->saddr != ip4->daddr ||
	    (ip4->protocol != IPPROTO_TCP && ip4->protocol != IPPROTO_UDP))
		return false;
	return hints[policy_shared_at(bpf_ntohl(ip4->saddr))] ==
	       policy_shared_hint(cgroup_id, ip4->saddr);
}

static __always_inline int packet_verdict(struct __sk_buff *packet, int end)
{
	struct policy_cgroup slot = { .cgroup_id = bpf_skb_ancestor_cgroup_id(packet, slot_level) };
	struct policy_shared *self;

	if (!slot.cgroup_id || strangers[policy_shared_at(slot.cgroup_id)] == slot.cgroup_id ||
	    packet_is_usual(packet, slot.cgroup_id))
		return HOOK_ALLOW;
	self = bpf_map_lookup_elem(&shared, &slot);
	if (!self || packet_passes(packet, self, end))
		return HOOK_ALLOW;
	__sync_fetch_and_add(&self->counts.dropped, 1);
	return HOOK_DENY;
}

SEC("cgroup_skb/egress")
int dsec_out(struct __sk_buff *packet)
{
	return packet_verdict(packet, PACKET_FROM);
}

SEC("cgroup_skb/ingress")
int dsec_in(struct __sk_buff *packet)
{
	return packet_verdict(packet, PACKET_TO);
}
