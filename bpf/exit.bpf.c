/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tells the engine which of its sandboxes' processes died: PID 1s and execs, which are its
 * children (CLONE_PARENT), and nothing else that dies inside. Loaded by guard.c.
 *
 * Must hold: no death is lost while there is room in the spill, and whoever waits on a ring is
 * woken for a death in the spill: it is put there first, then counted, then a second try at the
 * ring either wakes the reader or proves that the ring is still full, so that the reader has yet
 * to drain it and looks at the count after that.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "bpf/pid.bpf.h"
#include "bpf/policy.h"

char program_license[] SEC("license") = "Dual BSD/GPL";

/* Macros in the kernel, so not in its BTF. */
enum { TASK_SIGNAL_GROUP_EXIT = 4, ERROR_EXISTS = 17 };

/* The largest page, so that it is a valid size for the pattern of the inner maps anywhere. */
enum { RING_PATTERN_BYTES = 65536 };

const volatile __u64 root_cgroup_id = 0;

struct policy_engine engine = {};

extern struct cgroup *bpf_cgroup_from_id(u64 id) __ksym;
extern void bpf_cgroup_release(struct cgroup *cgroup) __ksym;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, POLICY_SHARDS_MAX);
	__type(key, struct policy_cgroup);
	__type(value, struct policy_shard);
} shards SEC(".maps");

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_PATTERN_BYTES);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, POLICY_SHARDS_MAX);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* Preallocated: an allocation could fail in the very burst that the spill is for. */
struct spill {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct policy_process));
	__uint(value_size, sizeof(struct policy_death));
};

/* clang describes a struct only where it is used by value; guard.c looks these two up. */
const struct policy_process process_type = {};
const struct policy_death death_type = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, POLICY_SHARDS_MAX);
	__type(key, __u32);
	__array(values, struct spill);
} spills SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POLICY_SHARDS_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct policy_death_counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct policy_process);
	__type(value, struct policy_report);
} reported SEC(".maps");

/* False for the second of two last threads that saw each other gone. */
static __always_inline bool report_claim(const struct policy_process *process)
{
	struct policy_report report = { .at_ns = bpf_ktime_get_ns() };

	/* Another failure than -EEXIST must not cost the death. */
	return bpf_map_update_elem(&reported, process, &report, BPF_NOEXIST) != -ERROR_EXISTS;
}

static __always_inline void death_spill(void *ring, __u32 shard,
					const struct policy_process *process,
					const struct policy_death *death)
{
	struct policy_death_counts *count = bpf_map_lookup_elem(&counts, &shard);
	void *spill = bpf_map_lookup_elem(&spills, &shard);
	struct policy_death *wake;

	if (!spill || !count)
		return;
	if (bpf_map_update_elem(spill, process, death, BPF_ANY))
		__sync_fetch_and_add(&count->dropped, 1);
	else
		__sync_fetch_and_add(&count->spilled, 1);
	wake = bpf_ringbuf_reserve(ring, sizeof(*wake), 0);
	if (wake) {
		__builtin_memset(wake, 0, sizeof(*wake));
		bpf_ringbuf_submit(wake, 0);
	}
}

/* Threads that were released are in sum_sched_runtime; the leader stays until it is waited for. */
static __always_inline void death_account(struct policy_death *death, struct task_struct *task,
					  struct signal_struct *signal)
{
	death->cpu_ns = signal->sum_sched_runtime + task->se.sum_exec_runtime + signal->cutime +
			signal->cstime;
	if (task != task->group_leader)
		death->cpu_ns += task->group_leader->se.sum_exec_runtime;
	death->peak_pages = signal->maxrss > signal->cmaxrss ? signal->maxrss : signal->cmaxrss;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(dsec_exit, struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;
	struct signal_struct *signal = task->signal;
	struct policy_process process = {};
	struct policy_death death = {};
	struct policy_cgroup cgroup;
	struct policy_shard *shard;
	struct policy_death *record;
	const __u32 root_level = engine.root_level;
	__u32 index;
	void *ring;

	if (signal->live.counter)
		return 0; /* others of this process live */
	if (task->cgroups->dfl_cgrp->level < (int)root_level + POLICY_SLOT_DEPTH)
		return 0;
	if (pid_number(leader->real_parent->signal, &engine) != engine.pid)
		return 0;
	/* The dying task is the current one, and still in its cgroup. */
	cgroup.cgroup_id = bpf_get_current_ancestor_cgroup_id(root_level + 1);
	shard = bpf_map_lookup_elem(&shards, &cgroup);
	if (!shard)
		return 0;
	index = shard->index;
	ring = bpf_map_lookup_elem(&rings, &index);
	process.start_ns = leader->start_boottime;
	process.pid = leader->pid;
	if (!ring || !report_claim(&process))
		return 0;

	death.cgroup_id = bpf_get_current_ancestor_cgroup_id(root_level + POLICY_SLOT_DEPTH);
	death.pid = pid_number(signal, &engine);
	if (signal->flags & TASK_SIGNAL_GROUP_EXIT)
		death.code = signal->group_exit_code;
	else
		death.code = leader->exit_code;
	death_account(&death, task, signal);
	record = bpf_ringbuf_reserve(ring, sizeof(*record), 0);
	if (!record) {
		death_spill(ring, index, &process, &death);
		return 0;
	}
	*record = death;
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/*
 * Run once by guard_open(), for what user space cannot know inside namespaces: how deep they are.
 * The result is not 0 where the root is no cgroup that the caller sees.
 */
SEC("syscall")
int dsec_engine(void *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 pid = (__u64)BPF_CORE_READ(task, thread_pid);
	struct upid upid = {};
	struct cgroup *root;

	root = bpf_cgroup_from_id(root_cgroup_id);
	if (!root)
		return 1;
	engine.root_level = root->level;
	bpf_cgroup_release(root);
	engine.pidns_level = BPF_CORE_READ((struct pid *)pid, level);
	pid += bpf_core_field_offset(struct pid, numbers) +
	       engine.pidns_level * bpf_core_type_size(struct upid);
	if (bpf_core_read(&upid, sizeof(upid), (struct upid *)pid))
		return 1;
	engine.pidns_inode = BPF_CORE_READ(upid.ns, ns.inum);
	return 0;
}
