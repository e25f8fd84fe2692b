/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where sandboxes that have a way out may go. Attached by guard_egress.c to the instance's root
 * cgroup: calls are refused and told, packets are the last wall and are counted by destination.
 *
 * Must hold: nothing leaves by an interface but TCP and UDP, whole and without options, from the
 * sandbox's own address to where its policy says; metadata services never, port 53 only to the
 * resolver; what goes over the loopback is its own affair. What a cap stops was allowed before, and
 * is counted as capped alone. What a name allows by TLS alone leaves to the forwarder, and is held
 * and counted as what it was meant for.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/policy.h"
#include "bpf/policy_egress.h"
#include "bpf/churn_rule.h"
#include "bpf/destinations.bpf.h"
#include "bpf/egress_redirect.bpf.h"
#include "bpf/egress_tops.bpf.h"
#include "bpf/metadata.bpf.h"
#include "bpf/violation.bpf.h"

char program_license[] SEC("license") = "Dual BSD/GPL";

/* LATE: dropped as by a full queue, so that TCP slows down and nobody is told EPERM. */
enum { HOOK_DENY = 0, HOOK_ALLOW = 1, HOOK_LATE = 2, ERROR_NOT_PERMITTED = 1 };
enum { CALL_REDIRECT = 2 /* allowed: by the forwarder */ };
enum { SECOND_NS = 1000000000 };
enum { ETHERTYPE_4 = 0x0800, ETHERTYPE_6 = 0x86dd, LOOPBACK = 1, FRAGMENT = 0x1fff };
enum { PORT_DNS = 53, PROTOCOL_MPTCP = 262 };

#define MAPPED bpf_htonl(0xffff)

const volatile __u32 slot_level = 0;

/* Of policies: guard_egress.c counts them. */
__u32 drops = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POLICY_SANDBOXES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_cgroup);
	__type(value, struct policy_egress);
} egress SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POLICY_LEARNED_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_learned_key);
	__type(value, struct policy_learned);
} learned SEC(".maps");

/* For user space alone: a sandbox has a copy of its policy's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POLICY_POLICIES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_number);
	__type(value, struct policy_egress_caps);
} egress_caps SEC(".maps");

/* Where something is to go; IPv4 mapped. */
struct target {
	__u32 word[4];
	__u32 protocol;
	__u16 port; /* as people write it */
};

struct verdict {
	__u32 rule; /* that let it pass, or did not */
	bool passes;
	bool is_open; /* not refused by a rule, but for want of one: a name may let it pass */
	bool is_tls;  /* by the forwarder */
	bool is_kept; /* it passes by destinations, which a policy has for good */
	__u32 drops;  /* as they were counted before that was found */
};

/* Who sends, and whether it begins to: what is open may go where names have led. */
struct sender {
	const struct policy_egress *self;
	__u64 cgroup_id;
	bool begins;
};

/* ---- verdicts ---- */

static __always_inline bool is_mapped(const struct target *to)
{
	return !(to->word[0] | to->word[1]) && to->word[2] == MAPPED;
}

static __always_inline bool is_own6(const struct policy_egress *self, const __u32 *word)
{
	return word[0] == self->address6[0] && word[1] == self->address6[1] &&
	       word[2] == self->address6[2] && word[3] == self->address6[3];
}

/* To itself, by whatever name. */
static __always_inline bool is_local(const struct policy_egress *self, const struct target *to)
{
	const __u32 *w = to->word;

	if (is_mapped(to))
		return !w[3] || bpf_ntohl(w[3]) >> 24 == 127 || w[3] == self->address4;
	if (!(w[0] | w[1] | w[2]) && (!w[3] || w[3] == bpf_htonl(1)))
		return true;
	return is_own6(self, w);
}

/* To many, or to "here": 0/8, multicast, broadcast. */
static __always_inline bool is_nobody(const struct target *to)
{
	const __u32 first = bpf_ntohl(is_mapped(to) ? to->word[3] : to->word[0]) >> 24;

	return is_mapped(to) ? first == 0 || first == 127 || first >= 224 : first == 0xff;
}

static __always_inline bool is_resolver(const struct policy_egress *self, const struct target *to)
{
	return self->resolver4 && is_mapped(to) && to->word[3] == self->resolver4 &&
	       to->port == bpf_ntohs(self->resolver_port);
}

static __always_inline bool is_forwarder(const struct policy_egress *self, __u32 address4,
					 __u16 port)
{
	return self->tls_port && address4 == self->resolver4 && port == self->tls_port;
}

static __always_inline struct verdict refused_by(__u32 rule)
{
	return (struct verdict){ .rule = rule, .passes = false };
}

static __always_inline struct verdict refused_by_none(void)
{
	return (struct verdict){ .rule = POLICY_RULE_EGRESS, .is_open = true };
}

static __always_inline struct verdict ports_verdict(const struct policy_destination *to,
						    const struct target *target)
{
	const struct policy_ports *range = destination_ports(to, target->protocol, target->port);

	if (range)
		return (struct verdict){ .rule = range->rule, .passes = true, .is_kept = true };
	return to->range_count ? refused_by_none() : refused_by(to->rule);
}

/* By the addresses that names were found to have. What one of them has directly, all do. */
static __always_inline struct verdict learned_verdict(const struct sender *from,
						      const struct target *to)
{
	struct policy_learned_key key = { .cgroup_id = from->cgroup_id,
					  .policy = from->self->policy };
	struct verdict verdict = refused_by(POLICY_RULE_EGRESS);
	const struct policy_learned *found;

	__builtin_memcpy(key.address, to->word, sizeof(key.address));
	found = bpf_map_lookup_elem(&learned, &key);
	for (unsigned int i = 0; found && i < POLICY_PORT_RANGES_MAX; i++) {
		const struct policy_learned_range *range = &found->ranges[i];

		if (i >= found->range_count)
			break;
		if (range->ports.protocol != to->protocol || to->port < range->ports.first ||
		    to->port > range->ports.last ||
		    (from->begins && bpf_ktime_get_ns() >= range->until_ns))
			continue;
		verdict = (struct verdict){ .rule = range->ports.rule,
					    .passes = true,
					    .is_tls = range->ports.is_tls };
		if (!verdict.is_tls)
			break; /* directly, whatever others say */
	}
	return verdict;
}

static __always_inline struct policy_egress_flow_key flow_key(const struct sender *from,
							      const struct target *to)
{
	struct policy_egress_flow_key key = { .cgroup_id = from->cgroup_id,
					      .use = from->self->use,
					      .port = to->port,
					      .protocol = (__u8)to->protocol };

	__builtin_memcpy(key.address, to->word, sizeof(key.address));
	return key;
}

/* Something went there, let pass by what holds still. */
static __always_inline bool flow_is_kept(const struct policy_egress_flow *flow,
					 const struct sender *from)
{
	return flow && flow->policy == from->self->policy && flow->drops == drops;
}

static __always_inline struct verdict target_verdict(const struct sender *from,
						     const struct target *to,
						     const struct policy_egress_flow *flow)
{
	const struct policy_egress *self = from->self;
	const struct policy_destination *found;
	struct verdict verdict;
	__u32 drops_seen;

	if (flow_is_kept(flow, from))
		return (struct verdict){
			.rule = flow->rule, .passes = true, .is_kept = true, .drops = flow->drops
		};
	if (is_resolver(self, to))
		return (struct verdict){ .rule = POLICY_RULE_DNS, .passes = true };
	if (metadata_is6(to->word))
		return refused_by(POLICY_RULE_METADATA_ADDRESS);
	if (to->port == PORT_DNS)
		return refused_by(POLICY_RULE_DNS);
	if (is_nobody(to))
		return refused_by(POLICY_RULE_EGRESS);
	drops_seen = *(volatile __u32 *)&drops;
	found = destination_find(self->policy, to->word);
	verdict = found ? ports_verdict(found, to) : refused_by_none();
	verdict.drops = drops_seen;
	return verdict.is_open ? learned_verdict(from, to) : verdict;
}

/* ---- caps ---- */

static __always_inline bool is_resolving(const struct verdict *verdict)
{
	return verdict->rule == POLICY_RULE_DNS;
}

/* One more connection; false: a cap says no. */
static __always_inline bool connection_take(struct policy_egress *self)
{
	const struct policy_egress_caps *caps = &self->caps;
	struct churn_rule rule = { .burst_ns = SECOND_NS };
	__u64 before = __sync_fetch_and_add(&self->counts.connections, 1);

	if (!caps->connections || before < caps->connections) {
		if (!caps->connections_per_s)
			return true;
		rule.interval_ns = SECOND_NS / caps->connections_per_s;
		if (churn_allow(&rule, &self->connections_full_ns, bpf_ktime_get_ns()))
			return true;
	}
	__sync_fetch_and_add(&self->counts.connections, -1);
	return false;
}

/*
 * So many bytes of a packet, counted as sent where it says HOOK_ALLOW. A second's room may be
 * overdrawn by one packet, or one larger than that would never leave.
 */
static __always_inline int bytes_take(struct policy_egress *self, __u32 bytes)
{
	const struct policy_egress_caps *caps = &self->caps;
	__u64 before = __sync_fetch_and_add(&self->counts.sent_bytes, bytes);
	struct churn_rule rule;
	int verdict = HOOK_DENY;

	if (!caps->bytes || before + bytes <= caps->bytes) {
		if (!caps->bytes_per_s)
			return HOOK_ALLOW;
		rule.interval_ns = bytes * (__u64)SECOND_NS / caps->bytes_per_s;
		rule.burst_ns = rule.interval_ns + SECOND_NS;
		if (churn_allow(&rule, &self->bytes_full_ns, bpf_ktime_get_ns()))
			return HOOK_ALLOW;
		verdict = HOOK_LATE;
	}
	__sync_fetch_and_add(&self->counts.sent_bytes, -(__u64)bytes);
	return verdict;
}

/* Calls get no further when all bytes of its life are gone, or a connection is one too many. */
static __always_inline bool call_is_capped(struct policy_egress *self, const struct target *to,
					   const struct verdict *verdict, __u16 hook)
{
	if (self->caps.bytes && self->counts.sent_bytes >= self->caps.bytes)
		return true;
	return hook == POLICY_HOOK_CONNECT && to->protocol == IPPROTO_TCP &&
	       !is_resolving(verdict) && !connection_take(self);
}

/* ---- calls ---- */

static __always_inline struct policy_egress *current_egress(struct policy_cgroup *ret_slot)
{
	ret_slot->cgroup_id = bpf_get_current_ancestor_cgroup_id(slot_level);
	return ret_slot->cgroup_id ? bpf_map_lookup_elem(&egress, ret_slot) : NULL;
}

/* Where it was to go is kept; false: it cannot go by the forwarder. */
static __always_inline bool call_redirect(struct bpf_sock_addr *call,
					  const struct policy_egress *self, const struct target *to)
{
	if (!self->tls_port || !is_mapped(to) || !redirect_keep(call->sk, to->word, to->port))
		return false;
	call->user_port = self->tls_port;
	return true;
}

/* CALL_REDIRECT: its port is the forwarder's already, and *ret_forwarder4 its address. */
static __always_inline int call_verdict(struct bpf_sock_addr *call, struct target *to, __u16 hook,
					__u32 *ret_forwarder4)
{
	struct policy_cgroup slot;
	struct policy_egress *self = current_egress(&slot);
	const struct sender from = { .self = self, .cgroup_id = slot.cgroup_id, .begins = true };
	struct violation refusal = { .hook = hook,
				     .verdict = POLICY_DENIED,
				     .error = ERROR_NOT_PERMITTED };
	struct policy_egress_flow_key key;
	struct policy_violation *record;
	struct verdict verdict;

	if (!self)
		return HOOK_ALLOW;
	to->port = bpf_ntohs(call->user_port);
	to->protocol = call->protocol == PROTOCOL_MPTCP ? IPPROTO_TCP : call->protocol;
	if (is_local(self, to))
		return HOOK_ALLOW;
	key = flow_key(&from, to);
	verdict = target_verdict(&from, to, bpf_map_lookup_elem(&egress_flows, &key));
	if (!verdict.passes) {
		__sync_fetch_and_add(&self->counts.refused, 1);
	} else if (call_is_capped(self, to, &verdict, hook)) {
		__sync_fetch_and_add(&self->counts.capped_calls, 1);
		verdict = refused_by(POLICY_RULE_EGRESS_CAP);
	} else if (!verdict.is_tls) {
		return HOOK_ALLOW;
	} else if (call_redirect(call, self, to)) {
		*ret_forwarder4 = self->resolver4;
		return CALL_REDIRECT;
	} else {
		__sync_fetch_and_add(&self->counts.refused, 1);
		verdict = refused_by(POLICY_RULE_EGRESS);
	}
	refusal.cgroup_id = slot.cgroup_id;
	refusal.rule = verdict.rule;
	refusal.policy = self->policy;
	record = violation_begin(&refusal);
	if (record) {
		record->family = is_mapped(to) ? 4 : 6;
		__builtin_memcpy(record->address, to->word, sizeof(record->address));
		record->port = to->port;
		record->protocol = to->protocol;
		violation_end(record);
	}
	return HOOK_DENY;
}

static __always_inline int call4_verdict(struct bpf_sock_addr *call, __u16 hook)
{
	struct target to = { .word = { 0, 0, MAPPED, call->user_ip4 } };
	__u32 forwarder4 = 0;
	int verdict = call_verdict(call, &to, hook, &forwarder4);

	if (verdict != CALL_REDIRECT)
		return verdict;
	call->user_ip4 = forwarder4;
	return HOOK_ALLOW;
}

/* The verifier wants the context's words one by one. */
static __always_inline int call6_verdict(struct bpf_sock_addr *call, __u16 hook)
{
	struct target to = { .word = { call->user_ip6[0], call->user_ip6[1], call->user_ip6[2],
				       call->user_ip6[3] } };
	__u32 forwarder4 = 0;
	int verdict = call_verdict(call, &to, hook, &forwarder4);

	if (verdict != CALL_REDIRECT)
		return verdict;
	call->user_ip6[3] = forwarder4; /* it is mapped already */
	return HOOK_ALLOW;
}

SEC("cgroup/connect4")
int dsec_go4(struct bpf_sock_addr *call)
{
	return call4_verdict(call, POLICY_HOOK_CONNECT);
}

SEC("cgroup/connect6")
int dsec_go6(struct bpf_sock_addr *call)
{
	return call6_verdict(call, POLICY_HOOK_CONNECT);
}

SEC("cgroup/sendmsg4")
int dsec_say4(struct bpf_sock_addr *call)
{
	return call4_verdict(call, POLICY_HOOK_SEND);
}

SEC("cgroup/sendmsg6")
int dsec_say6(struct bpf_sock_addr *call)
{
	return call6_verdict(call, POLICY_HOOK_SEND);
}

/* ---- what a program is told ---- */

/* The end that it asked for, where a socket's connection was redirected; NULL: it was not. */
static __always_inline const struct policy_redirect *call_asked(struct bpf_sock_addr *call,
								__u32 address4)
{
	struct policy_cgroup slot;
	struct policy_egress *self = current_egress(&slot);

	return self && is_forwarder(self, address4, (__u16)call->user_port) ?
		       redirect_of(call->sk) :
		       NULL;
}

SEC("cgroup/getpeername4")
int dsec_asked4(struct bpf_sock_addr *call)
{
	const struct policy_redirect *asked = call_asked(call, call->user_ip4);

	if (asked) {
		call->user_ip4 = *(const __u32 *)(asked->address + 12);
		call->user_port = bpf_htons(asked->port);
	}
	return HOOK_ALLOW;
}

SEC("cgroup/getpeername6")
int dsec_asked6(struct bpf_sock_addr *call)
{
	const struct policy_redirect *asked;

	if (call->user_ip6[2] != MAPPED)
		return HOOK_ALLOW;
	asked = call_asked(call, call->user_ip6[3]);
	if (asked) {
		call->user_ip6[3] = *(const __u32 *)(asked->address + 12);
		call->user_port = bpf_htons(asked->port);
	}
	return HOOK_ALLOW;
}

/* ---- packets ---- */

/*
 * Where a packet goes to; false: it is none that may leave. The kernel has the headers of what it
 * sends in one piece; what is in more has options, and is refused.
 */
static __always_inline bool packet4_read(struct __sk_buff *packet, const struct policy_egress *self,
					 struct target *ret)
{
	const struct iphdr *ip = (void *)(long)packet->data;
	const __be16 *ports = (void *)(ip + 1);

	if ((void *)(ports + 2) > (void *)(long)packet->data_end || ip->ihl != 5 ||
	    (ip->frag_off & bpf_htons(FRAGMENT)) || !self->address4 || ip->saddr != self->address4)
		return false;
	ret->word[2] = MAPPED;
	ret->word[3] = ip->daddr;
	ret->protocol = ip->protocol;
	ret->port = bpf_ntohs(ports[1]);
	return true;
}

static __always_inline bool packet6_read(struct __sk_buff *packet, const struct policy_egress *self,
					 struct target *ret)
{
	const struct ipv6hdr *ip = (void *)(long)packet->data;
	const __be16 *ports = (void *)(ip + 1);

	if ((void *)(ports + 2) > (void *)(long)packet->data_end || !self->address6[0] ||
	    !is_own6(self, (const __u32 *)&ip->saddr))
		return false;
	__builtin_memcpy(ret->word, &ip->daddr, sizeof(ret->word));
	ret->protocol = ip->nexthdr;
	ret->port = bpf_ntohs(ports[1]);
	return true;
}

static __always_inline bool packet_read(struct __sk_buff *packet, const struct policy_egress *self,
					struct target *ret)
{
	bool is_read = false;

	if (packet->protocol == bpf_htons(ETHERTYPE_4))
		is_read = packet4_read(packet, self, ret);
	else if (packet->protocol == bpf_htons(ETHERTYPE_6))
		is_read = packet6_read(packet, self, ret);
	return is_read && (ret->protocol == IPPROTO_TCP || ret->protocol == IPPROTO_UDP);
}

/* What a policy lets through, as far as its caps do. */
static __always_inline int packet_pass(struct policy_egress *self, const struct verdict *verdict,
				       const struct policy_egress_flow_key *key,
				       struct policy_egress_flow *flow, __u32 bytes)
{
	const struct violation capped = { .cgroup_id = key->cgroup_id,
					  .rule = POLICY_RULE_EGRESS_CAP,
					  .hook = POLICY_HOOK_SEND };
	const struct policy_egress_flow first = {
		.bytes = bytes,
		.first_ns = flow ? flow->first_ns : bpf_ktime_get_coarse_ns(),
		.rule = verdict->rule,
		.policy = verdict->is_kept ? self->policy : 0,
		.drops = verdict->drops,
	};
	int passes = bytes_take(self, bytes);

	if (passes == HOOK_ALLOW && !flow && key->protocol == IPPROTO_UDP &&
	    !is_resolving(verdict) && !connection_take(self)) {
		__sync_fetch_and_add(&self->counts.sent_bytes, -(__u64)bytes);
		passes = HOOK_LATE;
	}
	if (passes != HOOK_ALLOW) {
		__sync_fetch_and_add(&self->counts.capped_packets, 1);
		violation_count(&capped);
		return passes;
	}
	flow_count(key, flow, &first);
	return HOOK_ALLOW;
}

/* Whoever asks faster than that asks nobody. */
static __always_inline bool asks_too_much(struct policy_egress *self, const struct verdict *verdict)
{
	const struct churn_rule rule = { .interval_ns = POLICY_ASKED_INTERVAL_NS,
					 .burst_ns = (__u64)POLICY_ASKED_BURST *
						     POLICY_ASKED_INTERVAL_NS };

	return is_resolving(verdict) &&
	       !churn_allow(&rule, &self->asked_full_ns, bpf_ktime_get_ns());
}

/*
 * What goes to the forwarder goes to where its connection was redirected from, and the first packet
 * tells the forwarder where that is. False: no call of ours sent it there.
 */
static __always_inline bool
packet_redirected(struct __sk_buff *packet, const struct policy_egress *self, struct target *target)
{
	struct bpf_sock *socket = packet->sk;
	const struct policy_redirect *redirect;
	struct tcphdr tcp;

	socket = socket ? bpf_sk_fullsock(socket) : NULL;
	redirect = redirect_of(socket);
	if (!redirect || target->protocol != IPPROTO_TCP ||
	    bpf_skb_load_bytes(packet, sizeof(struct iphdr), &tcp, sizeof(tcp)))
		return false;
	if (tcp.syn && !redirect_tell(self->address4, tcp.source, redirect))
		return false;
	__builtin_memcpy(target->word, redirect->address, sizeof(target->word));
	target->port = redirect->port;
	return true;
}

/* Where a packet goes to, as a policy sees it; false: it is none that may leave. */
static __always_inline bool packet_target(struct __sk_buff *packet,
					  const struct policy_egress *self, struct target *ret)
{
	if (!packet_read(packet, self, ret))
		return false;
	if (!is_mapped(ret) || !is_forwarder(self, ret->word[3], bpf_htons(ret->port)))
		return true;
	return packet_redirected(packet, self, ret);
}

SEC("cgroup_skb/egress")
int dsec_way(struct __sk_buff *packet)
{
	struct policy_egress *self;
	struct policy_cgroup slot;
	struct verdict verdict;
	struct target to = {};

	if (packet->ifindex == LOOPBACK)
		return HOOK_ALLOW;
	slot.cgroup_id = bpf_skb_ancestor_cgroup_id(packet, slot_level);
	if (!slot.cgroup_id)
		return HOOK_ALLOW;
	self = bpf_map_lookup_elem(&egress, &slot);
	if (!self)
		return HOOK_ALLOW;
	if (packet_target(packet, self, &to)) {
		const struct sender from = { .self = self, .cgroup_id = slot.cgroup_id };
		const struct policy_egress_flow_key key = flow_key(&from, &to);
		struct policy_egress_flow *flow = bpf_map_lookup_elem(&egress_flows, &key);

		verdict = target_verdict(&from, &to, flow);
		if (verdict.passes && !asks_too_much(self, &verdict))
			return packet_pass(self, &verdict, &key, flow, packet->len);
	}
	__sync_fetch_and_add(&self->counts.dropped, 1);
	return HOOK_DENY;
}
