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

#include "bpf/policy.h"

enum {
	POLICY_EGRESS_FLOWS_MAX = 65536, /* the latest ones of all sandboxes */
	POLICY_EGRESS_TOPS_MAX = 32,	 /* of a sandbox */
	POLICY_LEARNED_MAX = 262144,	 /* of all sandboxes */
	POLICY_REDIRECTS_MAX = 65536,	 /* connections that nobody has taken yet */
	/* Packets to the resolver, for each sandbox: so many a second, and so many at once. */
	POLICY_ASKED_INTERVAL_NS = 5000000,
	POLICY_ASKED_BURST = 256,
};

/* These only grow while the sandbox is there. */
struct policy_egress_counts {
	__u64 sent_bytes;
	__u64 connections;    /* begun: TCP's, and places that UDP was sent to anew */
	__u64 refused;	      /* calls: connect, send */
	__u64 dropped;	      /* packets that no call was refused for */
	__u64 capped_calls;   /* that the policy allows, and a cap did not */
	__u64 capped_packets; /* likewise */
};

/* egress_caps: policy_number -> policy_egress_caps. 0: no cap. Read as a sandbox is told. */
struct policy_egress_caps {
	__u64 connections, bytes; /* of a sandbox, in its life */
	__u64 connections_per_s, bytes_per_s;
};

/* egress: policy_cgroup of a slot -> policy_egress. Absent: the programs say nothing of it. */
struct policy_egress {
	__u32 policy;	   /* whose destinations hold */
	__u32 address4;	   /* its own, in network order, as all here; 0: it has none */
	__u32 address6[4]; /* the same */
	__u32 resolver4;   /* where names are asked, whatever the program says; 0: nowhere */
	__u16 resolver_port;
	__u16 tls_port; /* of the same address: the forwarder's; 0: there is none */
	__u32 use;	/* which of the slot's sandboxes it is: its flows are no other's */
	__u32 reserved2;
	struct policy_egress_caps caps;
	__u64 connections_full_ns, bytes_full_ns; /* when those a second have all their room */
	__u64 asked_full_ns; /* when its bucket of packets to the resolver is full again */
	struct policy_egress_counts counts;
};

/*
 * learned: policy_learned_key -> policy_learned: where else a sandbox may go, since a name that its
 * policy allows has that address. What `destinations` denies it does not give.
 */
struct policy_learned_key {
	__u64 cgroup_id;  /* of the slot */
	__u8 address[16]; /* IPv4 as ::ffff:a.b.c.d */
	__u32 policy;	  /* under which it was learned */
	__u32 reserved;
};

struct policy_learned_range {
	struct policy_ports ports;
	__u64 until_ns; /* CLOCK_MONOTONIC: then nothing new goes there; what is open stays */
};

struct policy_learned {
	__u32 range_count;
	__u32 reserved;
	struct policy_learned_range ranges[POLICY_PORT_RANGES_MAX];
};

/*
 * redirects: policy_redirect_key -> policy_redirect: where a connection to the forwarder was to go.
 * It is written as the first packet leaves, and taken away by the forwarder.
 */
struct policy_redirect_key {
	__u32 address4; /* of the sandbox, in network order, as its port */
	__u16 port;
	__u16 reserved;
};

struct policy_redirect {
	__u8 address[16]; /* IPv4 as ::ffff:a.b.c.d */
	__u16 port;	  /* as people write it */
	__u16 reserved[3];
};

/* egress_flows: policy_egress_flow_key -> policy_egress_flow. */
struct policy_egress_flow_key {
	__u64 cgroup_id; /* of the slot */
	__u32 use;	 /* as in policy_egress */
	__u16 port;	 /* as people write it */
	__u8 protocol;
	__u8 reserved;
	__u8 address[16]; /* IPv4 as ::ffff:a.b.c.d */
};

/*
 * The policy's destinations let it pass: then what goes there needs no look at them, as long as the
 * sandbox has that policy, and none was dropped.
 */
struct policy_egress_flow {
	__u64 bytes;
	__u64 first_ns; /* since boot, without time asleep, to a tick */
	__u32 rule;
	__u32 policy; /* that let it pass; 0: not by its destinations alone */
	__u32 drops;  /* how many policies had been dropped */
	__u32 reserved;
};

/*
 * egress_tops: policy_cgroup of a slot -> policy_egress_tops, where most of its bytes went: a place
 * gets in with its first packet, and by having more than the least of them when its bytes double.
 */
struct policy_egress_top {
	__u8 address[16];
	__u16 port;
	__u8 protocol;
	__u8 reserved;
	__u32 rule;  /* that let it pass */
	__u64 bytes; /* when it was looked at last, at least; 0: nothing is here */
};

struct policy_egress_tops {
	__u32 is_busy; /* somebody writes here: others come again */
	__u32 reserved;
	struct policy_egress_top tops[POLICY_EGRESS_TOPS_MAX];
};

_Static_assert(sizeof(struct policy_egress_counts) == 48, "no padding");
_Static_assert(sizeof(struct policy_egress_caps) == 32, "no padding");
_Static_assert(sizeof(struct policy_egress) == 144, "no padding");
_Static_assert(sizeof(struct policy_egress_top) == 32, "no padding");
_Static_assert(sizeof(struct policy_egress_tops) == 8 + 32 * 32, "no padding");
_Static_assert(sizeof(struct policy_learned_key) == 32, "no padding");
_Static_assert(sizeof(struct policy_learned) == 136, "no padding");
_Static_assert(sizeof(struct policy_redirect_key) == 8, "no padding");
_Static_assert(sizeof(struct policy_redirect) == 24, "no padding");
_Static_assert(sizeof(struct policy_egress_flow_key) == 32, "no padding");
_Static_assert(sizeof(struct policy_egress_flow) == 32, "no padding");
