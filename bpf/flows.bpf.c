/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ends every TCP and UDP socket of the network namespace that whoever opens the iterator is in, and
 * writes a byte for each. Loaded by guard_flows.c for one use.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char program_license[] SEC("license") = "Dual BSD/GPL";

extern int bpf_sock_destroy(struct sock_common *sock) __ksym;

static __always_inline int flow_end(struct seq_file *seq, struct sock_common *sock)
{
	const char one = '.';

	/* The family is looked at so that the object knows the whole type, as the kernel's does. */
	if (sock->skc_family && bpf_sock_destroy(sock) == 0)
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
