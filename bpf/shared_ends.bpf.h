/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counts the ends of TCP connections of sandboxes of network `shared`: those that programs made or
 * accepted, those that nobody accepted yet, and those whose program has closed them while bytes
 * wait. Each may hold as many bytes as its buffers take. After shared_map.bpf.h.
 *
 * Must hold: what is counted follows from the two states alone, so that nothing is kept by socket;
 * an end counts for the sandbox whose address it has, so that one that outlives it counts for
 * nobody.
 */
#pragma once

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "bpf/shared_map.bpf.h"

extern void *bpf_rdonly_cast(const void *from, __u32 type) __ksym;

enum { STATE_SYN_RECEIVED = 3, STATE_CLOSE = 7, STATE_NEW_SYN_RECEIVED = 12, PROTOCOL_TCP = 6 };

static __always_inline int end_counts(int state)
{
	return state != STATE_CLOSE && state != TCP_LISTENING && state != STATE_SYN_RECEIVED &&
	       state != STATE_NEW_SYN_RECEIVED;
}

static __always_inline bool end_has_address(const struct sock *sock)
{
	const __u32 mask = bpf_htonl(~(__u32)(POLICY_SHARED_V4_COUNT - 1));

	if (sock->__sk_common.skc_family == INET6 &&
	    sock->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[0] == bpf_htonl(POLICY_SHARED_V6_0))
		return true;
	return (sock->__sk_common.skc_rcv_saddr & mask) == bpf_htonl(POLICY_SHARED_V4);
}

static __always_inline bool end_is_of(const struct sock *sock, const struct policy_shared *self)
{
	return sock->__sk_common.skc_rcv_saddr == self->address4 ||
	       (sock->__sk_common.skc_family == INET6 &&
		sock->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[3] == self->address6[3]);
}

/* Whose the socket is, by its cgroup; NULL: nobody's in network `shared`. */
static __always_inline struct policy_shared *end_shared(const struct sock *sock)
{
	const struct cgroup *group = sock->sk_cgrp_data.cgroup;
	struct policy_cgroup slot = {};
	const void *at;

	if (!group || group->level < (int)slot_level)
		return NULL;
	at = (const void *)group + bpf_core_field_offset(struct cgroup, ancestors) +
	     slot_level * sizeof(struct cgroup *);
	if (bpf_probe_read_kernel(&group, sizeof(group), at))
		return NULL;
	group = bpf_rdonly_cast(group, bpf_core_type_id_kernel(struct cgroup));
	slot.cgroup_id = group->kn->id;
	return bpf_map_lookup_elem(&shared, &slot);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(dsec_end, const struct sock *sock, int before, int after)
{
	const int more = end_counts(after) - end_counts(before);
	struct policy_shared *self;

	if (!more || sock->sk_protocol != PROTOCOL_TCP || !end_has_address(sock))
		return 0;
	self = end_shared(sock);
	if (self && end_is_of(sock, self))
		__sync_fetch_and_add(&self->connections, more);
	return 0;
}
