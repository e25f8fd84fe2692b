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
	POLICY_VERSION = 10,   /* grows with every change of a struct below */
	POLICY_SLOT_DEPTH = 2, /* levels from the instance's root to a slot */
	POLICY_SANDBOXES_MAX = 131072,
	POLICY_SHARDS_MAX = 4096,
	POLICY_TAPS_MAX = 16384,
	POLICY_DESTINATIONS_MAX = 65536, /* of all policies */
	POLICY_FLOWS_MAX = 65536,	 /* the latest ones */
	/* Of all policies: */
	POLICY_POLICIES_MAX = 4096,
	POLICY_RULES_MAX = 262144,
	POLICY_PATHS_MAX = 524288,
	POLICY_VALUES_MAX = 131072, /* ioctls, families, names: each */
};

struct policy_cgroup {
	__u64 cgroup_id;
};

/* networks: policy_cgroup of a slot -> policy_network. Absent means POLICY_NETWORK_NONE. */
enum policy_network_mode {
	POLICY_NETWORK_NONE = 0,
	POLICY_NETWORK_PRIVATE = 1,
	POLICY_NETWORK_SHARED = 2, /* as private, but abstract names are everybody's there */
};

struct policy_network {
	__u32 mode; /* enum policy_network_mode */
	__u32 reserved;
};

/*
 * sandboxes: policy_cgroup of a slot -> policy_sandbox: all that says what a sandbox may do, so
 * that one update changes it. Absent: no policy.
 */
struct policy_sandbox {
	__u64 sandbox; /* its id, for people */
	__u32 policy;  /* 0: none */
	__u32 version; /* grows with each change */
	__u32 phase;
	__u32 shard;
	__u32 device; /* of its root's file system, as in super_block.s_dev; 0: no file rules */
	__u32 flags;
};

/* policies: number of a policy -> policy_summary. It is put there last and taken away first. */
struct policy_number {
	__u32 policy;
};

enum { POLICY_NAME_BYTES = 64, POLICY_PROCESS_RULES = 16 };

enum policy_content {
	POLICY_HAS_FILES = 1,
	POLICY_HAS_IOCTLS = 2,
	POLICY_HAS_FAMILIES = 4,
	POLICY_HAS_UNIX_NAMES = 8,
};

struct policy_summary {
	char name[POLICY_NAME_BYTES];
	__u32 rule_count;
	__u32 content;			       /* enum policy_content */
	__u16 processes[POLICY_PROCESS_RULES]; /* by guard_process: its rule; 0: may */
	__u32 processes_audited;	       /* bit by guard_process: told, not refused */
	__u32 reserved;
};

/* rules: what people see of a rule. */
struct policy_rule_key {
	__u32 policy, rule; /* from 1 */
};

enum { POLICY_RULE_TEXT_BYTES = 96 };

struct policy_rule {
	__u32 kind, bits, value, is_audit;
	char text[POLICY_RULE_TEXT_BYTES]; /* as in the document, cut */
};

/*
 * paths: every component of a path of a rule has an entry, by the hash of all components up to it
 * (policy_path_hash.h): that of the last one says what the rule forbids, those before it are
 * ancestors, that may not be moved away.
 */
struct policy_path_key {
	__u64 hash;
	__u32 policy;
	__u32 reserved;
};

/* Of policy_path.bits, beside guard_file_bits. */
enum policy_path_bits {
	POLICY_PATH_CONNECT = 64, /* a unix socket that may not be reached */
	POLICY_PATH_ANCESTOR = 128,
};

struct policy_path {
	__u32 bits;		      /* what is refused here */
	__u32 bits_below;	      /* and at all that is below */
	__u32 audited, audited_below; /* told, not refused */
	__u32 rule; /* the last one of its rules; the first one below it where it has none */
	__u32 reserved;
};

/* ioctls, families: value as in the rule. unix_names: hash of the name. */
struct policy_value_key {
	__u32 policy, value;
};

/* ioctls: where a policy says what may be, all others, and in the name of which rule. */
enum { POLICY_IOCTL_OTHERS = 1 << 16 };

struct policy_name_key {
	__u64 hash;
	__u32 policy;
	__u32 reserved;
};

struct policy_refusal {
	__u32 rule; /* 0: it may be */
	__u32 is_audit;
};

/*
 * creations: policy_cgroup of a slot -> policy_creations: how fast it makes files, by churn_rule.h;
 * the latest that made any. Where LSM programs are.
 */
struct policy_creations {
	__u64 sandbox; /* whose it is: another's begins anew */
	__u64 full_at_ns;
	__u64 told_ns;
};

/* More files at once, and a second after that, are a storm; told once a second while it lasts. */
enum {
	POLICY_CREATIONS_MAX = 4096, /* slots seen last */
	POLICY_CREATIONS_PER_S = 5000,
	POLICY_CREATIONS_AT_ONCE = 50000,
	POLICY_CREATIONS_TOLD_NS = 1000000000,
};

_Static_assert(sizeof(struct policy_creations) == 24, "no padding");
_Static_assert(sizeof(struct policy_sandbox) == 32, "no padding");
_Static_assert(sizeof(struct policy_summary) == 112, "no padding");
_Static_assert(sizeof(struct policy_rule) == 112, "no padding");
_Static_assert(sizeof(struct policy_path_key) == 16, "no padding");
_Static_assert(sizeof(struct policy_path) == 24, "no padding");
_Static_assert(sizeof(struct policy_name_key) == 16, "no padding");

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

/* churn: policy_cgroup of a slot -> policy_churn, by churn_rule.h. Absent: as many as it likes. */
struct policy_churn {
	__u64 interval_ns, burst_ns;
	__u64 full_at_ns; /* when its bucket is full again */
	__u64 told_ns;
	__u64 sandbox; /* the engine's number for whose slot it is */
	__u32 shard, slot;
	__u32 processes_max, reserved; /* that it may have, without a controller for it */
};

/* hogs: policy_cgroup of a leaf that was seen on a CPU -> policy_hog, by churn_rule.h. */
struct policy_hog {
	__u64 full_at_ns; /* when its bucket of CPU time is full again */
	__u64 told_ns;
	__u64 sandbox;	      /* whose it is: another's begins anew */
	__u64 samples, forks; /* seen on a CPU so often; of those inside fork() or clone() */
};

enum policy_churn_what {
	POLICY_CHURN_ENDS, /* processes and threads are made, and end, too fast */
	POLICY_CHURN_TIME, /* the leaf computes long */
};

/* Record of the ring of churn: a bucket was empty. */
struct policy_churn_event {
	__u64 leaf_id;	 /* of the cgroup of whoever ended, or was on the CPU */
	__u64 cgroup_id; /* of the slot */
	__u64 sandbox;
	__u32 shard, slot;
	__u32 what, processes_max;
};

/* Context of the program that leaves room for only so many in a slot's bucket. */
struct policy_churn_leave {
	__u64 cgroup_id, sandbox;
	__u32 left, reserved;
};

/* A slot is told of once in so long: it takes a while until something is done about it. */
enum { POLICY_CHURN_TOLD_NS = 1000000, POLICY_CHURN_RING_BYTES = 1 << 17 };

/* Who is on a CPU is looked at once a sample: a hog uses more than a share of a CPU for long. */
enum {
	POLICY_HOGS_MAX = 4096, /* leaves seen last */
	POLICY_HOG_SAMPLE_NS = 10000000,
	POLICY_HOG_SHARE = 4, /* a fourth of a CPU */
	POLICY_HOG_TOLD_NS = 100000000,
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

enum { POLICY_PORT_RANGES_MAX = 8, POLICY_NUMBER_BITS = 32, POLICY_ADDRESS_BITS = 128 };

struct policy_ports {
	__u16 first, last; /* both included; for ICMP: its types */
	__u8 protocol;	   /* IPPROTO_TCP, _UDP, _ICMP, _ICMPV6 */
	__u8 is_tls;	   /* of `learned` alone: by the forwarder, to who names its host */
	__u16 rule;	   /* that allows them */
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

/*
 * What a program inside tried and a rule forbids, or asks to be told of. The numbers of hooks are
 * told to clients (enum dsec_hook), so they only grow.
 */
enum policy_hook {
	POLICY_HOOK_SOCKET = 1,	      /* argument: family << 32 | type << 16 | protocol */
	POLICY_HOOK_UNIX_CONNECT = 2, /* text: a name, "@" first where it is abstract; or a path */
	POLICY_HOOK_UNIX_SEND = 3,
	POLICY_HOOK_OPEN = 4, /* argument: the open flags; text: a path, here and below */
	POLICY_HOOK_CREATE = 5,
	POLICY_HOOK_REMOVE = 6,
	POLICY_HOOK_RENAME = 7,
	POLICY_HOOK_LINK = 8,
	POLICY_HOOK_TRUNCATE = 9,
	POLICY_HOOK_METADATA = 10, /* mode, owner, times, extended attributes */
	POLICY_HOOK_STAT = 11,
	POLICY_HOOK_EXECUTE = 12,
	POLICY_HOOK_MOUNT = 13,
	POLICY_HOOK_IOCTL = 14,	 /* argument: the command */
	POLICY_HOOK_PTRACE = 15, /* argument: pid of the other one, as the engine sees it */
	POLICY_HOOK_SIGNAL = 16, /* argument: the same << 32 | signal */
	POLICY_HOOK_BPF = 17,	 /* argument: the command */
	POLICY_HOOK_PERF = 18,
	POLICY_HOOK_USERFAULTFD = 19,
	POLICY_HOOK_KEYCTL = 20,
	POLICY_HOOK_USERNS = 21,
	POLICY_HOOK_IO_URING = 22,
	POLICY_HOOK_SCHEDULER = 23,
	POLICY_HOOK_CORE_SCHED = 24,
	POLICY_HOOK_CONNECT = 25, /* address, port, protocol: of the other end, here and below */
	POLICY_HOOK_BIND = 26,
	POLICY_HOOK_SEND = 27,
	POLICY_HOOK_DNS = 28, /* text: the name that was asked for */
	POLICY_HOOK_TLS = 29, /* text: the name that was shown */
	/* Python keeps what it compiled beside its source: a creation there; text: as for OPEN. */
	POLICY_HOOK_BYTECODE = 30,
	POLICY_HOOK_FETCH = 31, /* no program's: what a package proxy saw; text: the path */
	/* A call that mounts, whatever the place. */
	POLICY_HOOK_MOUNT_CALL = 32,
	POLICY_HOOK_IOCTL_OTHER = 33, /* one that is not among those that may be; as IOCTL */
	POLICY_HOOKS,
};

/* Rules of every policy, and of sandboxes without one; those of a document count from 1. */
enum policy_own_rule {
	POLICY_RULE_OWN = 0x8000,
	POLICY_RULE_NETWORK_NONE = POLICY_RULE_OWN, /* no inet sockets */
	POLICY_RULE_ABSTRACT,			    /* no abstract unix names */
	POLICY_RULE_PLATFORM,			    /* watched: the kernel's memory is covered */
	POLICY_RULE_OUTSIDE,			    /* no ptrace, no signal to who is outside */
	POLICY_RULE_METADATA_ADDRESS,		    /* no cloud metadata service */
	POLICY_RULE_NEIGHBOUR,			    /* no other sandbox, and no host, by network */
	POLICY_RULE_EGRESS,			    /* nothing of the policy allows it */
	POLICY_RULE_DNS,			    /* names are asked of the resolver alone */
	POLICY_RULE_EGRESS_CAP,			    /* no more than the policy's caps */
	POLICY_RULE_SOCKETS,	/* no more sockets than a sandbox of network `shared` may have */
	POLICY_RULE_FILE_STORM, /* watched: files are made faster than anybody's work does */
	POLICY_RULES_END,
};

enum policy_verdict { POLICY_DENIED = 1, POLICY_AUDITED = 2 };

enum policy_text { POLICY_TEXT_NONE, POLICY_TEXT_NAME, POLICY_TEXT_PATH };

enum { POLICY_COMM_BYTES = 16, POLICY_LEAF_BYTES = 16, POLICY_TEXT_BYTES = 192 };

/*
 * Record of a shard's ring of violations. Text of kind PATH is the names from the last one to the
 * first below the root of the file system, each with a NUL, as a walk upwards meets them; without
 * the first ones where `is_cut`.
 */
struct policy_violation {
	__u64 time_ns;	 /* CLOCK_MONOTONIC */
	__u64 cgroup_id; /* of the slot */
	__u64 count;	 /* of its tally, this one included */
	__u64 argument;	 /* by hook */
	__u32 rule;	 /* enum policy_own_rule, or from 1 in `policy` */
	__u32 policy, phase;
	__s32 pid;   /* of the process, in the engine's pid namespace; 0: unknown */
	__s32 error; /* that it got, positive; 0: none */
	__u16 hook;
	__u8 verdict;
	__u8 family;	  /* of the address: 4, 6; 0: none */
	__u8 address[16]; /* IPv4 as ::ffff:a.b.c.d */
	__u16 port;	  /* as people write it */
	__u8 protocol;
	__u8 text_kind; /* enum policy_text */
	__u16 text_bytes;
	__u8 is_cut;
	__u8 reserved;
	char comm[POLICY_COMM_BYTES];
	char leaf[POLICY_LEAF_BYTES]; /* name of the cgroup below the slot: "e7"; "": none */
	char text[POLICY_TEXT_BYTES];
};

/* tallies: how often each rule was broken at each hook, exactly, however few were told. */
struct policy_tally_key {
	__u64 cgroup_id; /* of the slot */
	__u32 rule, hook;
};

struct policy_tally {
	__u64 count; /* all */
	__u64 told;  /* of them records in the ring */
	__u64 lost;  /* of them to be told, when the ring was full */
	__u64 first_ns, last_ns, told_ns;
};

/* A slot has so many tallies at most; what breaks still more rules is counted in one number. */
enum { POLICY_TALLIES_MAX = 63 };

struct policy_tally_name {
	__u16 rule, hook; /* hook 0: it is being made */
};

/* tally_heads: which tallies a slot has. */
struct policy_tally_head {
	__u64 others;	 /* violations that have no tally */
	__u32 key_count; /* may be more than there is room for */
	struct policy_tally_name names[POLICY_TALLIES_MAX];
};

/* So many of a tally are told at once, then one in so long. */
enum { POLICY_TOLD_BURST = 16, POLICY_TOLD_INTERVAL_NS = 100000000 };

_Static_assert(sizeof(struct policy_violation) == 304, "no padding");
_Static_assert(sizeof(struct policy_tally_key) == 16, "no padding");
_Static_assert(sizeof(struct policy_tally) == 48, "no padding");
_Static_assert(sizeof(struct policy_tally_head) == 264, "no padding");
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
_Static_assert(sizeof(struct policy_churn) == 56, "no padding");
_Static_assert(sizeof(struct policy_churn_event) == 40, "no padding");
_Static_assert(sizeof(struct policy_hog) == 40, "no padding");
_Static_assert(sizeof(struct policy_churn_leave) == 24, "no padding");
