/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What shared.bpf.c and the engine share: sandboxes that live in one network namespace, each by an
 * address of its own. As in policy.h, and included where it is.
 */
#pragma once

#ifndef __bpf__
#include <stddef.h>
#include <linux/types.h>
#endif

enum {
	/* 10.64.0.0/10 and fd5e:ec::/64, host order: nothing of a namespace has them but routes. */
	POLICY_SHARED_V4 = 0x0a400000,
	POLICY_SHARED_V4_COUNT = 1 << 22,
	/* A namespace with a way out has so many of them, which lead to it alone. */
	POLICY_SHARED_BLOCK = 1 << 16,
	/* Ports that bind(0) is given, apart from those that the kernel gives connect(). */
	POLICY_PORT_FIRST = 10000,
	POLICY_PORT_COUNT = 22768,
	/* Those that the kernel gives connect(): ip_local_port_range there. Nobody binds them. */
	POLICY_PORT_KERNEL_FIRST = 36000,
	POLICY_PORT_KERNEL_LAST = 49999,
	/* Words of `hints` (policy_shared_hint()) and of `strangers`. */
	POLICY_SHARED_HINTS = 1 << 16,
	/* Of policy_shared.leads_out. */
	POLICY_LEADS_OUT_4 = 1,
	POLICY_LEADS_OUT_6 = 2,
};

#define POLICY_SHARED_V6_0 0xfd5e00ecu

/* These only grow while the sandbox is there. What leaves is counted by policy_egress. */
struct policy_shared_counts {
	__u64 refused; /* calls: bind, connect, send, socket */
	__u64 dropped; /* packets */
};

/* shared: policy_cgroup of a slot -> policy_shared. Absent: the programs say nothing of it. */
struct policy_shared {
	__u64 generation;  /* of this entry, never used again: a late close counts for nobody */
	__u32 address4;	   /* network order */
	__u32 port_next;   /* of bind(0), modulo POLICY_PORT_COUNT */
	__u32 address6[4]; /* network order */
	__s64 ports;	   /* sockets that hold a port */
	__s64 datagrams;   /* of them UDP's */
	__s64 connections; /* ends of TCP connections, also those that no program has any more */
	__u32 ports_max, datagrams_max, connections_max;
	__u32 leads_out; /* POLICY_LEADS_OUT_*: there is a way out, egress says where to */
	struct policy_shared_counts counts;
};

/*
 * What the word of an address says where the sandbox of that cgroup has it. One word, so that it is
 * never half of one sandbox's and half of another's; no other live cgroup makes that word of that
 * address, since the lower halves of their ids differ. Absent or somebody else's: ask `shared`.
 */
static inline __u64 policy_shared_hint(__u64 cgroup_id, __u32 address4)
{
	return cgroup_id ^ (__u64)address4 << 32;
}

/* Where it is, by the address in host order; or a stranger's, by its cgroup. */
static inline __u32 policy_shared_at(__u64 number)
{
	return number & (POLICY_SHARED_HINTS - 1);
}

_Static_assert(sizeof(struct policy_shared_counts) == 16, "no padding");
_Static_assert(sizeof(struct policy_shared) == 88, "no padding");
