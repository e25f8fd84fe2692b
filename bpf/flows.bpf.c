/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ends TCP and UDP sockets of the network namespace that whoever opens the iterator is in, and
 * writes a byte for each: all, or where many sandboxes live in it those of one, by its addresses,
 * or by its cgroup where they have none. Loaded by guard_flows.c for one use.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char program_license[] SEC("license") = "Dual BSD/GPL";

enum { INET6 = 10, STATE_TIME_WAIT = 6, STATE_NEW_SYN_RECEIVED = 12, LEVELS_MAX = 32 };

/* In network order; 0: all sockets. */
const volatile __u32 address4 = 0;
const volatile __u32 address6[4] = {};
const volatile __u64 cgroup_id = 0;

extern int bpf_sock_destroy(struct sock_common *sock) __ksym;

/* Listening without an address: nothing else has none. */
static __always_inline bool is_below_cgroup(const struct sock_common *common)
{
	const struct sock *sock = (const struct sock *)common;
	struct cgroup *group;

	/* What is no whole socket has its addresses. */
	if (common->skc_state == STATE_TIME_WAIT || common->skc_state == STATE_NEW_SYN_RECEIVED)
		return false;
	group = BPF_CORE_READ(sock, sk_cgrp_data.cgroup);
	for (int i = 0; i < LEVELS_MAX && group; i++) {
		if (BPF_CORE_READ(group, kn, id) == cgroup_id)
			return true;
		group = (struct cgroup *)BPF_CORE_READ(group, self.parent); /* its first member */
	}
	return false;
}

static __always_inline bool is_wanted(const struct sock_common *sock)
{
	const __be32 *own = sock->skc_v6_rcv_saddr.in6_u.u6_addr32;

	if (!address4 || sock->skc_rcv_saddr == address4)
		return true;
	if (sock->skc_family == INET6 && (own[0] | own[1] | own[2] | own[3]))
		return own[0] == address6[0] && own[1] == address6[1] && own[2] == address6[2] &&
		       own[3] == address6[3];
	return !sock->skc_rcv_saddr && is_below_cgroup(sock);
}

static __always_inline int flow_end(struct seq_file *seq, struct sock_common *sock)
{
	const char one = '.';

	/* The family is looked at so that the object knows the whole type, as the kernel's does. */
	if (sock->skc_family && is_wanted(sock) && bpf_sock_destroy(sock) == 0)
		bpf_seq_write(seq, &one, sizeof(one));
	return 0;
}

SEC("iter/tcp")
int dsec_cut_tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sock = ctx->sk_common;

	return sock ? flow_end(ctx->meta->seq, sock) : 0;
}

SEC("iter/udp")
int dsec_cut_udp(struct bpf_iter__udp *ctx)
{
	struct udp_sock *sock = ctx->udp_sk;

	return sock ? flow_end(ctx->meta->seq, (struct sock_common *)sock) : 0;
}
