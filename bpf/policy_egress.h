/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What egress.bpf.c and the engine share: sandboxes that have a way out, and what went through it.
 * Where it may lead are destinations, as in policy.h. Included where that is.
 */
#pragma once

#ifndef __bpf__
#include <stddef.h>
#include <linux/types.h>
#endif

enum { POLICY_EGRESS_FLOWS_MAX = 65536 /* the latest ones of all sandboxes */ };

/* These only grow while the sandbox is there. */
struct policy_egress_counts {
	__u64 sent_packets, sent_bytes;
	__u64 refused; /* calls: connect, send */
	__u64 dropped; /* packets that no call was refused for */
};

/* egress: policy_cgroup of a slot -> policy_egress. Absent: the programs say nothing of it. */
struct policy_egress {
	__u32 policy;	   /* whose destinations hold */
	__u32 address4;	   /* its own, in network order, as all here; 0: it has none */
	__u32 address6[4]; /* the same */
	__u32 resolver4;   /* where names are asked, whatever the program says; 0: nowhere */
	__u16 resolver_port;
	__u16 reserved;
	struct policy_egress_counts counts;
};

/* egress_flows: policy_egress_flow_key -> policy_flow. */
struct policy_egress_flow_key {
	__u64 cgroup_id; /* of the slot */
	__u16 port;	 /* as people write it */
	__u8 protocol;
	__u8 reserved[5];
	__u8 address[16]; /* IPv4 as ::ffff:a.b.c.d */
};

_Static_assert(sizeof(struct policy_egress_counts) == 32, "no padding");
_Static_assert(sizeof(struct policy_egress) == 64, "no padding");
_Static_assert(sizeof(struct policy_egress_flow_key) == 32, "no padding");
