/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tells the engine which of its sandboxes make processes and threads faster than they may, counted
 * as they end. Loaded by guard_churn.c. One that was told is not told again for a moment, so that
 * a storm costs its own processes a look at a map each and nobody else anything.
 *
 * Must hold: a cgroup that is no slot of this engine is not in the map; what runs in a slot runs in
 * a leaf right below it, but PID 1, which is ours.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/policy.h"
#include "bpf/churn_rule.h"

char program_license[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POLICY_SANDBOXES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_cgroup);
	__type(value, struct policy_churn);
} churn SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, POLICY_CHURN_RING_BYTES);
} churn_events SEC(".maps");

SEC("tp_btf/sched_process_exit")
int BPF_PROG(dsec_churn, struct task_struct *task)
{
	const int level = task->cgroups->dfl_cgrp->level;
	const __u64 now_ns = bpf_ktime_get_ns();
	struct policy_churn_event *event;
	struct policy_cgroup slot;
	struct policy_churn *known;
	struct churn_rule rule;
	__u64 told_ns;

	/* The dying task is the current one, and still in its cgroup. */
	if (level < POLICY_SLOT_DEPTH + 1)
		return 0;
	slot.cgroup_id = bpf_get_current_ancestor_cgroup_id(level - 1);
	known = bpf_map_lookup_elem(&churn, &slot);
	if (!known)
		return 0;
	rule.interval_ns = known->interval_ns;
	rule.burst_ns = known->burst_ns;
	if (churn_allow(&rule, &known->full_at_ns, now_ns))
		return 0;
	told_ns = known->told_ns;
	if (now_ns - told_ns < POLICY_CHURN_TOLD_NS ||
	    __sync_val_compare_and_swap(&known->told_ns, told_ns, now_ns) != told_ns)
		return 0;
	event = bpf_ringbuf_reserve(&churn_events, sizeof(*event), 0);
	if (!event)
		return 0; /* told again, while it goes on */
	event->leaf_id = bpf_get_current_cgroup_id();
	event->cgroup_id = slot.cgroup_id;
	event->sandbox = known->sandbox;
	event->shard = known->shard;
	event->slot = known->slot;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Run by guard_churn_leave(). Not 0: that slot is not this sandbox's. */
SEC("syscall")
int dsec_churn_leave(struct policy_churn_leave *asked)
{
	const struct policy_cgroup slot = { .cgroup_id = asked->cgroup_id };
	struct policy_churn *known = bpf_map_lookup_elem(&churn, &slot);
	struct churn_rule rule;

	if (!known || known->sandbox != asked->sandbox)
		return 1;
	rule.interval_ns = known->interval_ns;
	rule.burst_ns = known->burst_ns;
	known->full_at_ns = churn_leave(&rule, bpf_ktime_get_ns(), asked->left);
	known->told_ns = 0;
	return 0;
}
