/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Keeps sandboxes of network `shared` apart, which live in one network namespace: each has one
 * address of each family (10.64.0.0/10, fd5e:ec::/64, local there by route alone), and whatever it
 * calls loopback or "any" is that one. Attached by guard_shared.c to the instance's root cgroup.
 *
 * Must hold: a sandbox reaches itself and nothing else; what a call could get wrong the packet
 * programs drop; a socket that holds a port is counted once, however it got it, and until it ends;
 * TCP's that connects has one as long as it is the end of a connection, and is counted as that.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "bpf/policy.h"
#include "bpf/policy_shared.h"
#include "bpf/shared_map.bpf.h"
#include "bpf/shared_refuse.bpf.h"
#include "bpf/shared_ends.bpf.h"
#include "bpf/shared_packets.bpf.h"

char program_license[] SEC("license") = "Dual BSD/GPL";

/* ---- sockets that hold a port ---- */

/* False: it has as many as it may have. */
static __always_inline bool held_count(struct policy_shared *self, bool is_datagram)
{
	if (__sync_fetch_and_add(&self->ports, 1) >= self->ports_max)
		goto none;
	if (!is_datagram)
		return true;
	if (__sync_fetch_and_add(&self->datagrams, 1) < self->datagrams_max)
		return true;
	__sync_fetch_and_add(&self->datagrams, -1);
none:
	__sync_fetch_and_add(&self->ports, -1);
	return false;
}

static __always_inline void held_forget(struct policy_shared *self, bool is_datagram)
{
	__sync_fetch_and_add(&self->ports, -1);
	if (is_datagram)
		__sync_fetch_and_add(&self->datagrams, -1);
}

/* NULL: there is no memory, or no room is left for it. */
static __always_inline struct held *socket_hold(struct policy_shared *self, struct bpf_sock *socket)
{
	struct held *held = bpf_sk_storage_get(&sockets, socket, NULL, 0);
	const bool is_datagram = socket->type == DATAGRAM;

	if (held && held->is_counted)
		return held;
	if (!held_count(self, is_datagram))
		return NULL;
	if (!held)
		held = bpf_sk_storage_get(&sockets, socket, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!held) {
		held_forget(self, is_datagram);
		return NULL;
	}
	held->slot.cgroup_id = bpf_get_current_ancestor_cgroup_id(slot_level);
	held->generation = self->generation;
	held->is_datagram = is_datagram;
	held->is_counted = true;
	return held;
}

SEC("cgroup/sock_release")
int dsec_release(struct bpf_sock *socket)
{
	struct held *held = bpf_sk_storage_get(&sockets, socket, NULL, 0);
	struct policy_cgroup slot;
	struct policy_shared *self;

	if (!held || !held->is_counted)
		return HOOK_ALLOW;
	slot = held->slot;
	self = bpf_map_lookup_elem(&shared, &slot);
	if (self && self->generation == held->generation)
		held_forget(self, held->is_datagram);
	return HOOK_ALLOW;
}

/* Of what the kernel has, TCP and UDP: everything else would go round the programs below. */
SEC("cgroup/sock_create")
int dsec_create(struct bpf_sock *socket)
{
	struct policy_shared *self = current_shared();
	__u32 type = socket->type, protocol = socket->protocol;
	struct policy_violation *record;

	if (!self)
		return HOOK_ALLOW;
	if (type == STREAM && (!protocol || protocol == IPPROTO_TCP))
		return HOOK_ALLOW;
	if (type == DATAGRAM && (!protocol || protocol == IPPROTO_UDP))
		return HOOK_ALLOW;
	/* Programs ask for MPTCP or a ping by themselves, and go on without. */
	if (type == STREAM || type == DATAGRAM)
		return refuse(self, ERROR_NO_PROTOCOL);
	record = refusal_begin(POLICY_RULE_NEIGHBOUR, POLICY_HOOK_SOCKET);
	if (record) {
		record->argument = (__u64)socket->family << 32 | type << 16 | (protocol & 0xffff);
		violation_end(record);
	}
	return refuse(self, 0);
}

/* ---- bind ---- */

/* Who listens there, or has it bound, to be released. */
static __always_inline struct bpf_sock *peer_find(struct bpf_sock_addr *call,
						  struct bpf_sock_tuple *tuple, __u32 bytes)
{
	return call->type == STREAM ?
		       bpf_sk_lookup_tcp(call, tuple, bytes, BPF_F_CURRENT_NETNS, 0) :
		       bpf_sk_lookup_udp(call, tuple, bytes, BPF_F_CURRENT_NETNS, 0);
}

static __always_inline bool port_is_free(struct bpf_sock_addr *call, __u32 address4, __u16 port)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *there;

	tuple.ipv4.saddr = tuple.ipv4.daddr = address4;
	tuple.ipv4.dport = port;
	there = peer_find(call, &tuple, sizeof(tuple.ipv4));
	if (!there)
		return true;
	bpf_sk_release(there);
	return false;
}

/*
 * A port that any socket of the namespace has bound, whatever its address, is skipped by every
 * connect() of all. So those that the kernel gives connect() are for nobody else, and bind(0) is
 * given others: one after the other, since what was closed may be in TIME_WAIT.
 */
static __always_inline bool port_choose(struct bpf_sock_addr *call, struct policy_shared *self)
{
	__u16 port = bpf_ntohs(call->user_port);

	if (port)
		return port < POLICY_PORT_KERNEL_FIRST || port > POLICY_PORT_KERNEL_LAST;
	for (int i = 0; i < 8; i++) {
		__u32 at = __sync_fetch_and_add(&self->port_next, 1);

		port = bpf_htons(POLICY_PORT_FIRST + at % POLICY_PORT_COUNT);
		if (port_is_free(call, self->address4, port))
			break;
	}
	call->user_port = port;
	return true;
}

static __always_inline int bind_as(struct bpf_sock_addr *call, struct policy_shared *self,
				   __u32 said, __u32 address4)
{
	struct bpf_sock *socket = call->sk;
	struct held *held;

	if (!socket)
		return HOOK_DENY;
	if (!port_choose(call, self))
		return refuse(self, ERROR_ADDRESS_USED);
	held = socket_hold(self, socket);
	if (!held)
		return refuse_room(self, POLICY_HOOK_BIND, call->protocol);
	held->local_said = said;
	held->local4 = address4;
	return HOOK_ALLOW_LOW_PORT;
}

SEC("cgroup/bind4")
int dsec_bind4(struct bpf_sock_addr *call)
{
	struct policy_shared *self = current_shared();
	__u32 asked = call->user_ip4;

	if (!self)
		return HOOK_ALLOW;
	if (call->family != INET) /* an IPv4 address for an IPv6 socket */
		return refuse(self, ERROR_NO_ADDRESS);
	if (!is_local4(asked) && asked != self->address4)
		return refuse(self, ERROR_NO_ADDRESS);
	call->user_ip4 = self->address4;
	if (asked == self->address4)
		return bind_as(call, self, SAID_REAL, asked);
	return bind_as(call, self, asked ? SAID_LOOPBACK4 : SAID_ANY4, asked);
}

static __always_inline bool is_v6only(struct bpf_sock_addr *call)
{
	struct bpf_sock_addr_kern *kernel = bpf_cast_to_kern_ctx(call);
	struct sock *socket = kernel->sk;

	return BPF_CORE_READ_BITFIELD_PROBED(&socket->__sk_common, skc_ipv6only);
}

SEC("cgroup/bind6")
int dsec_bind6(struct bpf_sock_addr *call)
{
	struct policy_shared *self = current_shared();
	struct address6 asked = address_get(call);

	if (!self)
		return HOOK_ALLOW;
	if (is_any6(&asked)) {
		/* Of both families: the servers of Node, Java and Go. */
		address_set(call, is_v6only(call) ? own6(self) : mapped(self->address4));
		return bind_as(call, self, SAID_ANY6, 0);
	}
	if (is_loopback6(&asked)) {
		address_set(call, own6(self));
		return bind_as(call, self, SAID_LOOPBACK6, 0);
	}
	if (is_own6(self, &asked))
		return bind_as(call, self, SAID_REAL, 0);
	if (is_mapped(&asked) && (is_local4(asked.word[3]) || asked.word[3] == self->address4)) {
		address_set(call, mapped(self->address4));
		return bind_as(call, self,
			       asked.word[3] == self->address4 ? SAID_REAL : SAID_MAPPED,
			       asked.word[3]);
	}
	return refuse(self, ERROR_NO_ADDRESS);
}

SEC("cgroup/post_bind4")
int dsec_bound4(struct bpf_sock *socket)
{
	struct policy_shared *self = current_shared();

	return !self || socket->src_ip4 == self->address4;
}

SEC("cgroup/post_bind6")
int dsec_bound6(struct bpf_sock *socket)
{
	struct policy_shared *self = current_shared();
	struct address6 bound = { { socket->src_ip6[0], socket->src_ip6[1], socket->src_ip6[2],
				    socket->src_ip6[3] } };

	return !self || is_own6(self, &bound) ||
	       (is_mapped(&bound) && bound.word[3] == self->address4);
}

/* ---- connect ---- */

static __always_inline bool source_any6(const struct bpf_sock *socket)
{
	return !(socket->src_ip6[0] | socket->src_ip6[1] | socket->src_ip6[2] | socket->src_ip6[3]);
}

/* The sandbox's own source, without a port. The families of socket and address may differ. */
static __always_inline bool source_bind(struct bpf_sock_addr *call, struct bpf_sock *socket,
					struct address6 source)
{
	struct sockaddr_in6 address6 = { .sin6_family = INET6 };
	struct sockaddr_in address4 = { .sin_family = INET };

	if (call->family == INET) {
		if (socket->src_ip4)
			return true;
		address4.sin_addr.s_addr = source.word[3];
		return bpf_bind(call, (struct sockaddr *)&address4, sizeof(address4)) == 0;
	}
	if (!source_any6(socket))
		return true;
	__builtin_memcpy(&address6.sin6_addr, &source, sizeof(source));
	return bpf_bind(call, (struct sockaddr *)&address6, sizeof(address6)) == 0;
}

/* Without a note of it, getpeername() tells the loopback of the address's family. */
static __always_inline bool is_told_by_itself(__u32 said, __u32 address4)
{
	return said == SAID_REAL || (said != SAID_LOOPBACK6 && address4 == LOOPBACK4);
}

/* False: there is no memory, or no room is left for it. */
static __always_inline bool connect_note(struct bpf_sock_addr *call, struct policy_shared *self,
					 __u32 said, __u32 address4)
{
	struct bpf_sock *socket = call->sk;
	struct held *held;

	if (!socket)
		return false;
	if (call->type == STREAM) {
		held = bpf_sk_storage_get(&sockets, socket, NULL, 0);
		if (!held && self->ports >= self->ports_max)
			return false;
		if (!held && is_told_by_itself(said, address4))
			return true;
		if (!held)
			held = bpf_sk_storage_get(&sockets, socket, NULL,
						  BPF_SK_STORAGE_GET_F_CREATE);
	} else {
		held = socket_hold(self, socket);
	}
	if (!held)
		return false;
	held->peer_said = said;
	held->peer4 = address4;
	return true;
}

static __always_inline int connect_as(struct bpf_sock_addr *call, struct policy_shared *self,
				      struct address6 source, __u32 said, __u32 address4)
{
	struct bpf_sock *socket = call->sk;

	if (!socket)
		return HOOK_DENY;
	if (call->type == STREAM && self->connections >= self->connections_max)
		return refuse_room(self, POLICY_HOOK_CONNECT, call->protocol);
	if (!connect_note(call, self, said, address4))
		return refuse_room(self, POLICY_HOOK_CONNECT, call->protocol);
	/* What goes to a local address of IPv4 comes from that very address by itself. */
	if (!(said == SAID_LOOPBACK4 && call->family == INET) && !source_bind(call, socket, source))
		return refuse(self, ERROR_NO_ADDRESS);
	return HOOK_ALLOW;
}

SEC("cgroup/connect4")
int dsec_connect4(struct bpf_sock_addr *call)
{
	struct policy_shared *self = current_shared();
	__u32 asked = call->user_ip4;
	struct address6 foreign;

	if (!self)
		return HOOK_ALLOW;
	if (is_local4(asked)) {
		call->user_ip4 = self->address4;
		return connect_as(call, self, mapped(self->address4), SAID_LOOPBACK4,
				  asked ? asked : LOOPBACK4);
	}
	if (asked != self->address4 && !is_way_out(self, asked)) {
		foreign = mapped(asked);
		return refuse_peer(call, self, &foreign, POLICY_HOOK_CONNECT);
	}
	return connect_as(call, self, mapped(self->address4), SAID_REAL, 0);
}

/* Whether ::1 at this port is a server of both families, which is bound to the mapped address. */
static __always_inline bool peer_is_dual(struct bpf_sock_addr *call, struct policy_shared *self)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *there;
	bool is_dual;

	__builtin_memcpy(tuple.ipv6.saddr, self->address6, 16);
	__builtin_memcpy(tuple.ipv6.daddr, self->address6, 16);
	tuple.ipv6.dport = call->user_port;
	there = peer_find(call, &tuple, sizeof(tuple.ipv6));
	if (there) {
		bpf_sk_release(there);
		return false;
	}
	if (is_v6only(call))
		return false;
	__builtin_memset(&tuple, 0, sizeof(tuple));
	tuple.ipv4.saddr = tuple.ipv4.daddr = self->address4;
	tuple.ipv4.dport = call->user_port;
	there = peer_find(call, &tuple, sizeof(tuple.ipv4));
	if (!there)
		return false;
	is_dual = there->family == INET6;
	bpf_sk_release(there);
	return is_dual;
}

SEC("cgroup/connect6")
int dsec_connect6(struct bpf_sock_addr *call)
{
	struct policy_shared *self = current_shared();
	struct address6 asked = address_get(call), to;

	if (!self)
		return HOOK_ALLOW;
	if (is_mapped(&asked) && (is_local4(asked.word[3]) || asked.word[3] == self->address4)) {
		to = mapped(self->address4);
		address_set(call, to);
		if (asked.word[3] == self->address4)
			return connect_as(call, self, to, SAID_REAL, 0);
		return connect_as(call, self, to, SAID_MAPPED,
				  asked.word[3] ? asked.word[3] : LOOPBACK4);
	}
	if (is_any6(&asked) || is_loopback6(&asked)) {
		to = peer_is_dual(call, self) ? mapped(self->address4) : own6(self);
		address_set(call, to);
		return connect_as(call, self, to, SAID_LOOPBACK6, 0);
	}
	if (is_mapped(&asked) && is_way_out(self, asked.word[3]))
		return connect_as(call, self, mapped(self->address4), SAID_REAL, 0);
	if (!is_own6(self, &asked) && !is_way_out6(self, &asked))
		return refuse_peer(call, self, &asked, POLICY_HOOK_CONNECT);
	return connect_as(call, self, own6(self), SAID_REAL, 0);
}

/* ---- datagrams without a connection ---- */

/* The kernel gave it a port before it asks here: the first datagram counts it. */
static __always_inline bool sender_holds(struct bpf_sock_addr *call, struct policy_shared *self)
{
	struct bpf_sock *socket = call->sk;

	return socket && socket_hold(self, socket);
}

SEC("cgroup/sendmsg4")
int dsec_send4(struct bpf_sock_addr *call)
{
	struct policy_shared *self = current_shared();
	__u32 asked = call->user_ip4;
	struct address6 foreign;
	bool is_away;

	if (!self)
		return HOOK_ALLOW;
	is_away = !is_local4(asked) && asked != self->address4;
	if (is_away && !is_way_out(self, asked)) {
		foreign = mapped(asked);
		return refuse_peer(call, self, &foreign, POLICY_HOOK_SEND);
	}
	if (!sender_holds(call, self))
		return refuse_room(self, POLICY_HOOK_SEND, call->protocol);
	call->msg_src_ip4 = self->address4; /* whatever IP_PKTINFO says */
	if (!is_away)
		call->user_ip4 = self->address4;
	return HOOK_ALLOW;
}

/* The kernel takes no mapped address from here: it asks dsec_send4 about those. */
SEC("cgroup/sendmsg6")
int dsec_send6(struct bpf_sock_addr *call)
{
	struct policy_shared *self = current_shared();
	struct address6 asked = address_get(call);
	bool is_away;

	if (!self)
		return HOOK_ALLOW;
	is_away = !is_any6(&asked) && !is_loopback6(&asked) && !is_own6(self, &asked);
	if (is_away && !is_way_out6(self, &asked))
		return refuse_peer(call, self, &asked, POLICY_HOOK_SEND);
	if (!sender_holds(call, self))
		return refuse_room(self, POLICY_HOOK_SEND, call->protocol);
	call->msg_src_ip6[0] = self->address6[0];
	call->msg_src_ip6[1] = self->address6[1];
	call->msg_src_ip6[2] = self->address6[2];
	call->msg_src_ip6[3] = self->address6[3];
	if (!is_away)
		address_set(call, own6(self));
	return HOOK_ALLOW;
}

/* ---- what a program is told ---- */

/* Of an address of its own: as loopback. False: it is none. */
static __always_inline bool tell_loopback6(struct bpf_sock_addr *call, struct policy_shared *self)
{
	struct address6 real = address_get(call);

	if (is_own6(self, &real))
		address_set(call, loopback6());
	else if (is_mapped(&real) && real.word[3] == self->address4)
		address_set(call, mapped(LOOPBACK4));
	else
		return false;
	return true;
}

SEC("cgroup/recvmsg4")
int dsec_recv4(struct bpf_sock_addr *call)
{
	struct policy_shared *self = current_shared();

	if (self && call->user_ip4 == self->address4)
		call->user_ip4 = LOOPBACK4;
	return HOOK_ALLOW;
}

SEC("cgroup/recvmsg6")
int dsec_recv6(struct bpf_sock_addr *call)
{
	struct policy_shared *self = current_shared();

	if (self)
		(void)tell_loopback6(call, self); /* a foreign one stays as it is */
	return HOOK_ALLOW;
}

static __always_inline struct held *call_held(struct bpf_sock_addr *call)
{
	struct bpf_sock *socket = call->sk;

	return socket ? bpf_sk_storage_get(&sockets, socket, NULL, 0) : NULL;
}

SEC("cgroup/getpeername4")
int dsec_peer4(struct bpf_sock_addr *call)
{
	struct policy_shared *self = current_shared();
	struct held *held;

	if (!self || call->user_ip4 != self->address4)
		return HOOK_ALLOW;
	held = call_held(call);
	call->user_ip4 = held && held->peer_said == SAID_LOOPBACK4 ? held->peer4 : LOOPBACK4;
	return HOOK_ALLOW;
}

SEC("cgroup/getpeername6")
int dsec_peer6(struct bpf_sock_addr *call)
{
	struct policy_shared *self = current_shared();
	struct held *held;

	if (!self || !tell_loopback6(call, self))
		return HOOK_ALLOW;
	held = call_held(call);
	if (held && held->peer_said == SAID_LOOPBACK6)
		address_set(call, loopback6());
	else if (held && held->peer_said == SAID_MAPPED)
		address_set(call, mapped(held->peer4));
	return HOOK_ALLOW;
}

/* Listening, or without a peer: what was bound is told, else what the peer sees. */
static __always_inline bool is_unpaired(struct bpf_sock *socket)
{
	return !socket->dst_port || socket->state == TCP_LISTENING;
}

/* Its peer is outside. */
static __always_inline bool leads_away6(const struct bpf_sock *socket,
					const struct policy_shared *self)
{
	const struct address6 peer = { { socket->dst_ip6[0], socket->dst_ip6[1], socket->dst_ip6[2],
					 socket->dst_ip6[3] } };

	if (is_mapped(&peer))
		return peer.word[3] && peer.word[3] != self->address4;
	return !is_any6(&peer) && !is_own6(self, &peer);
}

SEC("cgroup/getsockname4")
int dsec_name4(struct bpf_sock_addr *call)
{
	struct policy_shared *self = current_shared();
	struct bpf_sock *socket = call->sk;
	struct held *held;

	if (!self || !socket || call->user_ip4 != self->address4)
		return HOOK_ALLOW;
	/* Of a connection that leads away, the one it has. */
	if (socket->dst_ip4 && socket->dst_ip4 != self->address4)
		return HOOK_ALLOW;
	held = bpf_sk_storage_get(&sockets, socket, NULL, 0);
	call->user_ip4 = LOOPBACK4;
	if (held && is_unpaired(socket) && held->local_said == SAID_ANY4)
		call->user_ip4 = 0;
	else if (held && held->local_said == SAID_LOOPBACK4)
		call->user_ip4 = held->local4;
	return HOOK_ALLOW;
}

SEC("cgroup/getsockname6")
int dsec_name6(struct bpf_sock_addr *call)
{
	struct policy_shared *self = current_shared();
	struct bpf_sock *socket = call->sk;
	struct held *held;

	if (!self || !socket || leads_away6(socket, self) || !tell_loopback6(call, self))
		return HOOK_ALLOW;
	held = bpf_sk_storage_get(&sockets, socket, NULL, 0);
	if (!held)
		return HOOK_ALLOW;
	if (is_unpaired(socket) && held->local_said == SAID_ANY6)
		address_set(call, any6);
	else if (held->local_said == SAID_MAPPED)
		address_set(call, mapped(held->local4));
	else if (held->peer_said == SAID_LOOPBACK6)
		address_set(call, loopback6());
	return HOOK_ALLOW;
}
