/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a virtual machine may send, looked at where its packets come out: cgroup programs do not see
 * a guest's sockets. Attached by guard_tap.c to each machine's tap.
 *
 * Must hold: an interface that was never told passes, since it is no machine's; of one that was
 * told nothing passes but TCP, UDP and ICMP to where its policy says, from its own addresses, whole
 * and without options, and what it takes to find its neighbours.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/policy.h"
#include "bpf/destinations.bpf.h"
#include "bpf/metadata.bpf.h"

char program_license[] SEC("license") = "Dual BSD/GPL";

enum {
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_ARP = 0x0806,
	ETHERTYPE_IPV6 = 0x86dd,
	ARP_ETHERNET = 1,
	IPV4_FRAGMENT = 0x3fff, /* more of them, or not the first */
	NDP_SOLICIT_ROUTER = 133,
	NDP_SOLICIT = 135,
	NDP_ADVERTISE = 136,
	NDP_HOPS = 255,
	PROTOCOL_ICMPV6 = 58,
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POLICY_TAPS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_interface);
	__type(value, struct policy_tap);
} taps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, POLICY_TAPS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_interface);
	__type(value, struct policy_tap_counts);
} tap_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, POLICY_FLOWS_MAX);
	__type(key, struct policy_flow_key);
	__type(value, struct policy_flow);
} flows SEC(".maps");

struct arp_ethernet {
	__be16 hardware, protocol;
	__u8 hardware_bytes, protocol_bytes;
	__be16 operation;
	__u8 sender_mac[6], sender[4], target_mac[6], target[4];
};

/* A packet, and what is known of it so far. */
struct packet {
	void *at, *end;
	__u32 interface;
	__u64 bytes;
	struct policy_flow_key flow;
};

static __always_inline void mapped(const void *address4, __u8 *ret)
{
	__builtin_memset(ret, 0, 10);
	ret[10] = ret[11] = 0xff;
	__builtin_memcpy(ret + 12, address4, 4);
}

static __always_inline bool same(const void *a, const void *b, unsigned int bytes)
{
	const __u8 *x = a, *y = b;
	__u8 difference = 0;

	for (unsigned int i = 0; i < bytes; i++)
		difference |= x[i] ^ y[i];
	return !difference;
}

static __always_inline bool is_zero(const void *a, unsigned int bytes)
{
	const __u8 *x = a;
	__u8 all = 0;

	for (unsigned int i = 0; i < bytes; i++)
		all |= x[i];
	return !all;
}

/* The link-local address that a machine makes of its MAC (RFC 4291, appendix A). */
static __always_inline bool is_own_link_local(const struct policy_tap *tap, const __u8 *a)
{
	const __u8 *m = tap->mac;

	return a[0] == 0xfe && a[1] == 0x80 && is_zero(a + 2, 6) && a[8] == (m[0] ^ 2) &&
	       a[9] == m[1] && a[10] == m[2] && a[11] == 0xff && a[12] == 0xfe && a[13] == m[3] &&
	       a[14] == m[4] && a[15] == m[5];
}

static __always_inline void flow_count(const struct packet *packet, __u32 rule)
{
	struct policy_flow *flow = bpf_map_lookup_elem(&flows, &packet->flow);
	__u64 now = bpf_ktime_get_boot_ns();
	struct policy_flow first = {
		.packets = 1, .bytes = packet->bytes, .first_ns = now, .last_ns = now, .rule = rule
	};

	if (!flow) {
		(void)bpf_map_update_elem(&flows, &packet->flow, &first, BPF_ANY);
		return;
	}
	__sync_fetch_and_add(&flow->packets, 1);
	__sync_fetch_and_add(&flow->bytes, packet->bytes);
	flow->last_ns = now;
}

/* Where it goes to stands in packet->flow. */
static __always_inline int destination_verdict(const struct policy_tap *tap, struct packet *packet)
{
	const struct policy_destination *to = NULL;
	struct policy_flow_key *flow = &packet->flow;

	if (!metadata_is6((const __u32 *)flow->address))
		to = destination_find(tap->policy, flow->address);
	if (to && destination_ports(to, flow->protocol, flow->port)) {
		flow_count(packet, to->rule);
		return POLICY_TAP_PASSED;
	}
	flow->refused = 1;
	flow_count(packet, to ? to->rule : 0);
	return POLICY_TAP_REFUSED;
}

/* The header behind the addresses; packet->at is at it. */
static __always_inline int transport_verdict(const struct policy_tap *tap, struct packet *packet,
					     __u8 protocol)
{
	const struct udphdr *ports = packet->at; /* TCP's stand in the same place */
	const struct icmphdr *icmp = packet->at;

	packet->flow.protocol = protocol;
	switch (protocol) {
	case IPPROTO_TCP:
		if (packet->at + sizeof(struct tcphdr) > packet->end)
			return POLICY_TAP_MALFORMED;
		packet->flow.port = bpf_ntohs(ports->dest);
		break;
	case IPPROTO_UDP:
		if (packet->at + sizeof(struct udphdr) > packet->end)
			return POLICY_TAP_MALFORMED;
		packet->flow.port = bpf_ntohs(ports->dest);
		break;
	case IPPROTO_ICMP:
	case PROTOCOL_ICMPV6:
		if (packet->at + sizeof(struct icmphdr) > packet->end)
			return POLICY_TAP_MALFORMED;
		packet->flow.port = icmp->type;
		break;
	default:
		return POLICY_TAP_MALFORMED;
	}
	return destination_verdict(tap, packet);
}

static __always_inline int ipv4_verdict(const struct policy_tap *tap, struct packet *packet)
{
	const struct iphdr *ip = packet->at;

	if (packet->at + sizeof(*ip) > packet->end || ip->version != 4 || ip->ihl != 5 ||
	    (ip->frag_off & bpf_htons(IPV4_FRAGMENT)) || ip->protocol == PROTOCOL_ICMPV6)
		return POLICY_TAP_MALFORMED;
	if (is_zero(tap->address4, 4) || !same(&ip->saddr, tap->address4, 4))
		return POLICY_TAP_SPOOFED;
	mapped(&ip->daddr, packet->flow.address);
	packet->at += sizeof(*ip);
	return transport_verdict(tap, packet, ip->protocol);
}

/* Neighbours are found as RFC 4861 has it: it may ask for any, and answer for itself. */
static __always_inline bool is_discovery(const struct packet *packet, const struct ipv6hdr *ip)
{
	const struct icmp6hdr *icmp = packet->at;

	return ip->nexthdr == PROTOCOL_ICMPV6 && ip->hop_limit == NDP_HOPS &&
	       packet->at + sizeof(*icmp) <= packet->end &&
	       (icmp->icmp6_type == NDP_SOLICIT_ROUTER || icmp->icmp6_type == NDP_SOLICIT ||
		icmp->icmp6_type == NDP_ADVERTISE);
}

static __always_inline int discovery_verdict(const struct policy_tap *tap,
					     const struct packet *packet, const __u8 *source)
{
	const struct icmp6hdr *icmp = packet->at;
	const __u8 *target = (const __u8 *)(icmp + 1);

	if (!is_zero(source, 16) && !same(source, tap->address6, 16) &&
	    !is_own_link_local(tap, source))
		return POLICY_TAP_SPOOFED;
	if (icmp->icmp6_type != NDP_ADVERTISE)
		return POLICY_TAP_PASSED;
	if ((void *)(target + 16) > packet->end)
		return POLICY_TAP_MALFORMED;
	return same(target, tap->address6, 16) || is_own_link_local(tap, target) ?
		       POLICY_TAP_PASSED :
		       POLICY_TAP_SPOOFED;
}

static __always_inline int ipv6_verdict(const struct policy_tap *tap, struct packet *packet)
{
	const struct ipv6hdr *ip = packet->at;

	/* Headers between this and the transport's are refused with its default: a fragment, too */
	if (packet->at + sizeof(*ip) > packet->end || ip->version != 6 ||
	    ip->nexthdr == IPPROTO_ICMP)
		return POLICY_TAP_MALFORMED;
	packet->at += sizeof(*ip);
	if (is_zero(tap->address6, 16))
		return POLICY_TAP_SPOOFED;
	if (is_discovery(packet, ip))
		return discovery_verdict(tap, packet, (const __u8 *)&ip->saddr);
	if (!same(&ip->saddr, tap->address6, 16))
		return POLICY_TAP_SPOOFED;
	__builtin_memcpy(packet->flow.address, &ip->daddr, 16);
	return transport_verdict(tap, packet, ip->nexthdr);
}

/* It asks and answers for its own address alone. */
static __always_inline int arp_verdict(const struct policy_tap *tap, const struct packet *packet)
{
	const struct arp_ethernet *arp = packet->at;

	if (packet->at + sizeof(*arp) > packet->end || arp->hardware != bpf_htons(ARP_ETHERNET) ||
	    arp->protocol != bpf_htons(ETHERTYPE_IPV4) || arp->hardware_bytes != 6 ||
	    arp->protocol_bytes != 4)
		return POLICY_TAP_MALFORMED;
	if (!same(arp->sender_mac, tap->mac, 6) || is_zero(tap->address4, 4))
		return POLICY_TAP_SPOOFED;
	return is_zero(arp->sender, 4) || same(arp->sender, tap->address4, 4) ? POLICY_TAP_PASSED :
										POLICY_TAP_SPOOFED;
}

static __always_inline int packet_verdict(const struct policy_tap *tap, struct packet *packet)
{
	const struct ethhdr *ethernet = packet->at;

	if (packet->at + sizeof(*ethernet) > packet->end)
		return POLICY_TAP_MALFORMED;
	if (!same(ethernet->h_source, tap->mac, 6))
		return POLICY_TAP_SPOOFED;
	packet->at += sizeof(*ethernet);
	switch (bpf_ntohs(ethernet->h_proto)) {
	case ETHERTYPE_ARP:
		return arp_verdict(tap, packet);
	case ETHERTYPE_IPV4:
		return ipv4_verdict(tap, packet);
	case ETHERTYPE_IPV6:
		return ipv6_verdict(tap, packet);
	default:
		return POLICY_TAP_MALFORMED;
	}
}

SEC("xdp")
int dsec_tap(struct xdp_md *context)
{
	const struct policy_interface interface = { .index = context->ingress_ifindex };
	const struct policy_tap *tap = bpf_map_lookup_elem(&taps, &interface);
	struct packet packet = { .at = (void *)(long)context->data,
				 .end = (void *)(long)context->data_end,
				 .flow = { .interface = interface.index } };
	struct policy_tap_counts *counts;
	unsigned int verdict;

	if (!tap)
		return XDP_PASS;
	packet.bytes = (__u64)(packet.end - packet.at);
	verdict = (unsigned int)packet_verdict(tap, &packet);
	counts = bpf_map_lookup_elem(&tap_counts, &interface);
	if (counts && verdict < POLICY_TAP_VERDICTS) {
		counts->packets[verdict]++;
		counts->bytes[verdict] += packet.bytes;
	}
	return verdict == POLICY_TAP_PASSED ? XDP_PASS : XDP_DROP;
}
