/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the BPF programs and the engine share: every key and value of every map. A BPF program
 * includes vmlinux.h before it. All are named structs, so that `bpftool map dump` prints fields
 * (an array's index stays a plain __u32: the kernel accepts no struct there).
 *
 * Sandboxes are known by the id of their slot's cgroup, two levels below the instance's root; what
 * runs in cgroups below it inherits, because programs look up the ancestor at that level.
 */
#pragma once

#ifndef __bpf__
#include <stddef.h>
#include <linux/types.h>
#endif

enum {
	POLICY_VERSION = 3,    /* grows with every change of a struct below */
	POLICY_SLOT_DEPTH = 2, /* levels from the instance's root to a slot */
	POLICY_SANDBOXES_MAX = 131072,
	POLICY_SHARDS_MAX = 4096,
	POLICY_TAPS_MAX = 16384,
	POLICY_DESTINATIONS_MAX = 65536, /* of all policies */
	POLICY_FLOWS_MAX = 65536,	 /* the latest ones */
};

struct policy_cgroup {
	__u64 cgroup_id;
};

/* networks: policy_cgroup of a slot -> policy_network. Absent means POLICY_NETWORK_NONE. */
enum policy_network_mode {
	POLICY_NETWORK_NONE = 0,
	POLICY_NETWORK_PRIVATE = 1,
};

struct policy_network {
	__u32 mode; /* enum policy_network_mode */
	__u32 reserved;
};

/* shards: policy_cgroup of a shard -> policy_shard. */
struct policy_shard {
	__u32 index; /* in rings, spills, counts */
	__u32 reserved;
};

/* One process, for ever: pids come again. Key of a shard's spill, and of reported. */
struct policy_process {
	__u64 start_ns; /* since boot */
	__s32 pid;	/* global */
	__u32 reserved;
};

/* Record of a shard's ring and value of its spill (deaths that found the ring full). */
struct policy_death {
	__u64 cgroup_id;  /* of the slot */
	__s32 pid;	  /* in the engine's pid namespace; 0: no death, only a wake-up */
	__s32 code;	  /* as in a wait status */
	__u64 cpu_ns;	  /* of the process and of those of its children that it waited for */
	__u64 peak_pages; /* most resident memory of the process, or of one of those */
};

/* counts[shard] only grow; the engine compares. */
struct policy_death_counts {
	__u64 spilled; /* found the ring full, are or were in the spill */
	__u64 dropped; /* found the spill full too */
};

/* reported: whose death was told, since the last two threads of a process can both look last. */
struct policy_report {
	__u64 at_ns;
};

/* Whose children are watched. */
struct policy_engine {
	__s32 pid; /* in its own pid namespace */
	__u32 pidns_level;
	__u32 pidns_inode;
	__u32 root_level; /* of the instance's root in the whole cgroup tree */
};

/*
 * destinations: where a policy lets packets go, by the longest prefix that has an entry. The trie
 * compares bytes from `policy` on, so the policy stands first.
 */
struct policy_destination_key {
	__u32 prefix_bits; /* 32 for the policy, and those of the address */
	__u32 policy;
	__u8 address[16]; /* IPv6, or IPv4 as ::ffff:a.b.c.d */
};

enum { POLICY_PORT_RANGES_MAX = 8 };

struct policy_ports {
	__u16 first, last; /* both included; for ICMP: its types */
	__u8 protocol;	   /* IPPROTO_TCP, _UDP, _ICMP, _ICMPV6 */
	__u8 reserved[3];
};

/* What matches none of its ranges is refused in the name of `rule`. */
struct policy_destination {
	__u32 rule;
	__u32 range_count;
	struct policy_ports ranges[POLICY_PORT_RANGES_MAX];
};

/* taps: the network interface of a virtual machine -> whose it is. */
struct policy_interface {
	__u32 index;
};

struct policy_tap {
	__u64 cgroup_id; /* of the sandbox */
	__u32 policy;
	__u8 mac[6]; /* all that it may send from */
	__u8 reserved[2];
	__u8 address4[4], address6[16]; /* zero: it has none */
};

/* tap_counts: what came out of a machine, by what became of it. Per CPU. */
enum policy_tap_verdict {
	POLICY_TAP_PASSED,
	POLICY_TAP_REFUSED,   /* by a destination, or for want of one */
	POLICY_TAP_SPOOFED,   /* from an address that is not its own */
	POLICY_TAP_MALFORMED, /* short, fragmented, with options, of another protocol */
	POLICY_TAP_VERDICTS,
};

struct policy_tap_counts {
	__u64 packets[POLICY_TAP_VERDICTS];
	__u64 bytes[POLICY_TAP_VERDICTS];
};

/* flows: policy_flow_key -> policy_flow, the latest that passed or was refused. */
struct policy_flow_key {
	__u32 interface; /* 0: not of a virtual machine */
	__u16 port;	 /* of the destination; for ICMP: its type */
	__u8 protocol;
	__u8 refused;
	__u8 address[16];
};

struct policy_flow {
	__u64 packets, bytes;
	__u64 first_ns, last_ns; /* since boot */
	__u32 rule;
	__u32 reserved;
};

_Static_assert(sizeof(struct policy_cgroup) == 8, "no padding");
_Static_assert(sizeof(struct policy_destination_key) == 24, "no padding");
_Static_assert(sizeof(struct policy_destination) == 72, "no padding");
_Static_assert(sizeof(struct policy_tap) == 40, "no padding");
_Static_assert(sizeof(struct policy_flow_key) == 24, "no padding");
_Static_assert(sizeof(struct policy_flow) == 40, "no padding");
_Static_assert(sizeof(struct policy_network) == 8, "no padding");
_Static_assert(sizeof(struct policy_shard) == 8, "no padding");
_Static_assert(sizeof(struct policy_death) == 32, "no padding");
_Static_assert(sizeof(struct policy_death_counts) == 16, "no padding");
_Static_assert(sizeof(struct policy_process) == 16, "no padding");
_Static_assert(sizeof(struct policy_report) == 8, "no padding");
_Static_assert(sizeof(struct policy_engine) == 16, "no padding");
