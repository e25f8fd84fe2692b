/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How every BPF program tells that a rule was broken: violation_begin() counts it, and gives a
 * record where it is to be told; the program writes down what only it knows, and violation_end()
 * sends it. The maps are one set for all programs: guard_violations.c makes them, and guard.c gives
 * them to each object before it is loaded. After vmlinux.h.
 *
 * Must hold: counts are exact; a record is told late or never before anybody waits; a program that
 * cannot tell denies all the same.
 */
#pragma once

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "bpf/pid.bpf.h"
#include "bpf/policy.h"

enum { VIOLATION_RING_PATTERN_BYTES = 65536, VIOLATION_ANY = 0, VIOLATION_NEW_ONLY = 1 };

struct violation_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, VIOLATION_RING_PATTERN_BYTES);
};

/* By the cgroup of a shard. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, POLICY_SHARDS_MAX);
	__type(key, struct policy_cgroup);
	__array(values, struct violation_ring);
} violations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4 * POLICY_SANDBOXES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_tally_key);
	__type(value, struct policy_tally);
} tallies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POLICY_SANDBOXES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_cgroup);
	__type(value, struct policy_tally_head);
} tally_heads SEC(".maps");

/* Where the engine is: one entry, written once before anything is attached. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct policy_engine);
} engine_place SEC(".maps");

static const struct policy_tally_head violation_no_head;

/* What a program says of it at once. */
struct violation {
	__u64 cgroup_id; /* of the slot */
	__u32 rule;
	__u16 hook;
	__u8 verdict;
	__s32 error; /* positive */
	__u32 policy, phase;
};

static __always_inline struct policy_tally_head *violation_head(__u64 cgroup_id)
{
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	struct policy_tally_head *head = bpf_map_lookup_elem(&tally_heads, &slot);

	if (head)
		return head;
	/* Somebody else may be first; then theirs is found. */
	(void)bpf_map_update_elem(&tally_heads, &slot, &violation_no_head, VIOLATION_NEW_ONLY);
	return bpf_map_lookup_elem(&tally_heads, &slot);
}

/* The tally of a rule and a hook, made when it is the first; NULL: there is no room for one. */
static __always_inline struct policy_tally *violation_tally(const struct violation *v)
{
	const struct policy_tally_key key = { v->cgroup_id, v->rule, v->hook };
	struct policy_tally *tally = bpf_map_lookup_elem(&tallies, &key);
	struct policy_tally_head *head;
	struct policy_tally first = {};
	__u32 at;

	if (tally)
		return tally;
	head = violation_head(v->cgroup_id);
	if (!head)
		return NULL;
	if (head->key_count < POLICY_TALLIES_MAX) {
		at = __sync_fetch_and_add(&head->key_count, 1);
		first.first_ns = bpf_ktime_get_ns();
		if (at < POLICY_TALLIES_MAX &&
		    !bpf_map_update_elem(&tallies, &key, &first, VIOLATION_NEW_ONLY)) {
			head->names[at].rule = v->rule;
			head->names[at].hook = v->hook;
		}
		/* Another CPU may have made it: then the place stays empty. */
		tally = bpf_map_lookup_elem(&tallies, &key);
	}
	if (!tally)
		__sync_fetch_and_add(&head->others, 1);
	return tally;
}

/* Whose process it is, for people: name and number, and the exec by the cgroup below the slot. */
static __always_inline void violation_process(struct policy_violation *record,
					      const struct policy_engine *place)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct cgroup *group = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	const __u32 level = place->root_level + POLICY_SLOT_DEPTH + 1;
	__u64 leaf = 0;
	const char *name;

	(void)bpf_core_read_str(record->comm, sizeof(record->comm), &task->comm);
	if (place->pidns_inode)
		record->pid = pid_number(BPF_CORE_READ(task, signal), place);
	if (BPF_CORE_READ(group, level) < (int)level)
		return; /* PID 1 is in none */
	leaf = (__u64)group + bpf_core_field_offset(struct cgroup, ancestors) +
	       level * sizeof(struct cgroup *);
	if (bpf_probe_read_kernel(&group, sizeof(group), (void *)leaf))
		return;
	name = BPF_CORE_READ(group, kn, name);
	(void)bpf_probe_read_kernel_str(record->leaf, sizeof(record->leaf), name);
}

/* Counted and not told: what no process can be named for. */
static __always_inline void violation_count(const struct violation *v)
{
	struct policy_tally *tally = violation_tally(v);

	if (!tally)
		return;
	__sync_fetch_and_add(&tally->count, 1);
	tally->last_ns = bpf_ktime_get_ns();
}

/* Counted; a record of it, to be ended, where it is told. */
static __always_inline struct policy_violation *violation_begin(const struct violation *v)
{
	struct policy_tally *tally = violation_tally(v);
	struct policy_violation *record = NULL;
	struct policy_engine *place;
	struct policy_cgroup shard;
	const __u32 zero = 0;
	__u64 now_ns, count;
	void *ring;

	if (!tally)
		return NULL;
	count = __sync_fetch_and_add(&tally->count, 1) + 1;
	now_ns = bpf_ktime_get_ns();
	tally->last_ns = now_ns;
	if (tally->told >= POLICY_TOLD_BURST && now_ns - tally->told_ns < POLICY_TOLD_INTERVAL_NS)
		return NULL;
	place = bpf_map_lookup_elem(&engine_place, &zero);
	if (!place)
		return NULL;
	shard.cgroup_id = bpf_get_current_ancestor_cgroup_id(place->root_level + 1);
	ring = bpf_map_lookup_elem(&violations, &shard);
	if (ring)
		record = bpf_ringbuf_reserve(ring, sizeof(*record), 0);
	if (!record) {
		__sync_fetch_and_add(&tally->lost, 1);
		return NULL;
	}
	__sync_fetch_and_add(&tally->told, 1);
	tally->told_ns = now_ns;
	__builtin_memset(record, 0, sizeof(*record));
	record->time_ns = now_ns;
	record->cgroup_id = v->cgroup_id;
	record->count = count;
	record->rule = v->rule;
	record->hook = v->hook;
	record->verdict = v->verdict;
	record->error = v->error;
	record->policy = v->policy;
	record->phase = v->phase;
	violation_process(record, place);
	return record;
}

static __always_inline void violation_end(struct policy_violation *record)
{
	bpf_ringbuf_submit(record, 0);
}
