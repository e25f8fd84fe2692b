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
	POLICY_VERSION = 2,    /* grows with every change of a struct below */
	POLICY_SLOT_DEPTH = 2, /* levels from the instance's root to a slot */
	POLICY_SANDBOXES_MAX = 131072,
	POLICY_SHARDS_MAX = 4096,
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

_Static_assert(sizeof(struct policy_cgroup) == 8, "no padding");
_Static_assert(sizeof(struct policy_network) == 8, "no padding");
_Static_assert(sizeof(struct policy_shard) == 8, "no padding");
_Static_assert(sizeof(struct policy_death) == 32, "no padding");
_Static_assert(sizeof(struct policy_death_counts) == 16, "no padding");
_Static_assert(sizeof(struct policy_process) == 16, "no padding");
_Static_assert(sizeof(struct policy_report) == 8, "no padding");
_Static_assert(sizeof(struct policy_engine) == 16, "no padding");
