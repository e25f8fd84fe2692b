/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tells the engine which of its sandboxes make processes and threads faster than they may, counted
 * as they end, and which of their leaves compute long, of who is on each CPU a hundred times a
 * second; and how much of that was in fork(). Loaded by guard_churn.c. One that was told is not
 * told again for a moment, so that a storm costs its own processes a look at a map each and nobody
 * else anything.
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

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, POLICY_HOGS_MAX);
	__type(key, struct policy_cgroup);
	__type(value, struct policy_hog);
} hogs SEC(".maps");

/* CPU time that a leaf may use at once, before it counts as a hog; set before it is loaded. */
const volatile __u64 hog_burst_ns;

static __always_inline void tell(const struct policy_churn *known, __u64 cgroup_id, __u32 what)
{
	struct policy_churn_event *event = bpf_ringbuf_reserve(&churn_events, sizeof(*event), 0);

	if (!event)
		return; /* told again, while it goes on */
	event->leaf_id = bpf_get_current_cgroup_id();
	event->cgroup_id = cgroup_id;
	event->sandbox = known->sandbox;
	event->shard = known->shard;
	event->slot = known->slot;
	event->what = what;
	event->processes_max = known->processes_max;
	bpf_ringbuf_submit(event, 0);
}

static __always_inline _Bool may_tell(__u64 *told_at_ns, __u64 now_ns, __u64 pause_ns)
{
	__u64 told_ns = *told_at_ns;

	return now_ns - told_ns >= pause_ns &&
	       __sync_val_compare_and_swap(told_at_ns, told_ns, now_ns) == told_ns;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(dsec_churn, struct task_struct *task)
{
	const int level = task->cgroups->dfl_cgrp->level;
	const __u64 now_ns = bpf_ktime_get_ns();
	struct policy_cgroup slot;
	struct policy_churn *known;
	struct churn_rule rule;

	/* The dying task is the current one, and still in its cgroup. */
	if (level < POLICY_SLOT_DEPTH + 1)
		return 0;
	slot.cgroup_id = bpf_get_current_ancestor_cgroup_id(level - 1);
	known = bpf_map_lookup_elem(&churn, &slot);
	if (!known || !known->interval_ns)
		return 0;
	rule.interval_ns = known->interval_ns;
	rule.burst_ns = known->burst_ns;
	if (!churn_allow(&rule, &known->full_at_ns, now_ns) &&
	    may_tell(&known->told_ns, now_ns, POLICY_CHURN_TOLD_NS))
		tell(known, slot.cgroup_id, POLICY_CHURN_ENDS);
	return 0;
}

/* Whether it is making a process or a thread, or failing to. */
static __always_inline _Bool is_forking(struct task_struct *task)
{
	const struct pt_regs *call = (struct pt_regs *)bpf_task_pt_regs(task);
#ifdef __TARGET_ARCH_x86
	enum { CALL_CLONE = 56, CALL_FORK = 57, CALL_VFORK = 58, CALL_CLONE3 = 435 };
	const __u64 number = call->orig_ax;

	return number == CALL_CLONE || number == CALL_FORK || number == CALL_VFORK ||
	       number == CALL_CLONE3;
#else
	enum { CALL_CLONE = 220, CALL_CLONE3 = 435 };

	return call->syscallno == CALL_CLONE || call->syscallno == CALL_CLONE3;
#endif
}

/* A sample of a CPU. The bucket's moment runs as many times faster as the share is small. */
SEC("perf_event")
int dsec_hog(void *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct churn_rule rule = {
		.interval_ns = (__u64)POLICY_HOG_SAMPLE_NS * POLICY_HOG_SHARE,
		.burst_ns = hog_burst_ns * POLICY_HOG_SHARE,
	};
	const int level = task->cgroups->dfl_cgrp->level;
	const __u64 now_ns = bpf_ktime_get_ns();
	struct policy_hog anew = { 0 }, *hog;
	struct policy_cgroup slot, leaf;
	struct policy_churn *known;

	if (level < POLICY_SLOT_DEPTH + 1)
		return 0;
	slot.cgroup_id = bpf_get_current_ancestor_cgroup_id(level - 1);
	known = bpf_map_lookup_elem(&churn, &slot);
	if (!known)
		return 0;
	leaf.cgroup_id = bpf_get_current_cgroup_id();
	hog = bpf_map_lookup_elem(&hogs, &leaf);
	if (!hog || hog->sandbox != known->sandbox) {
		anew.sandbox = known->sandbox;
		/* Without room for it, it is looked at again with the next sample. */
		(void)bpf_map_update_elem(&hogs, &leaf, &anew, BPF_ANY);
		return 0;
	}
	__sync_fetch_and_add(&hog->samples, 1);
	if (is_forking(task))
		__sync_fetch_and_add(&hog->forks, 1);
	if (!churn_allow(&rule, &hog->full_at_ns, now_ns) &&
	    may_tell(&hog->told_ns, now_ns, POLICY_HOG_TOLD_NS))
		tell(known, slot.cgroup_id, POLICY_CHURN_TIME);
	return 0;
}

/* Run by guard_churn_leave(). Not 0: that slot is not this sandbox's. */
SEC("syscall")
int dsec_churn_leave(struct policy_churn_leave *asked)
{
	const struct policy_cgroup slot = { .cgroup_id = asked->cgroup_id };
	struct policy_churn *known = bpf_map_lookup_elem(&churn, &slot);
	struct churn_rule rule;

	if (!known || known->sandbox != asked->sandbox || !known->interval_ns)
		return 1;
	rule.interval_ns = known->interval_ns;
	rule.burst_ns = known->burst_ns;
	known->full_at_ns = churn_leave(&rule, bpf_ktime_get_ns(), asked->left);
	known->told_ns = 0;
	return 0;
}
