/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a policy says of processes and of families of sockets, for LSM hooks. Attached once by
 * guard_lsm.c.
 */
#include "vmlinux.h"
#include <bpf/bpf_tracing.h>

#include "bpf/lsm.bpf.h"

char program_license[] SEC("license") = "Dual BSD/GPL";

/* As in guard_policy.h. */
enum {
	PTRACE_OUTSIDE = 1,
	SIGNAL_OUTSIDE,
	PTRACE_INSIDE,
	BPF_CALL,
	PERF,
	USERFAULTFD,
	KEYCTL,
	USERNS,
	IO_URING,
	SETSCHEDULER,
	CORE_SCHED,
	MOUNT,
};

enum { PTRACE_MODE_ATTACHING = 2, PRCTL_CORE_SCHED = 62 };

static __always_inline int process_check(const struct subject *subject, __u32 what)
{
	if (!subject->policy)
		return -ERROR_PERMISSION;
	if (!subject->policy->processes[what & (POLICY_PROCESS_RULES - 1)])
		return 0;
	return subject->policy->processes_audited & (1u << what) ? 0 : -ERROR_PERMISSION;
}

static __always_inline int refused(__u32 what)
{
	struct subject subject;

	return subject_find(&subject) ? process_check(&subject, what) : 0;
}

/* The slot's cgroup that the task is in; 0: none. */
static __always_inline __u64 task_slot(struct task_struct *task)
{
	struct cgroup *group = BPF_CORE_READ(task, cgroups, dfl_cgrp), *slot = NULL;

	if (BPF_CORE_READ(group, level) < (int)slot_level)
		return 0;
	(void)bpf_probe_read_kernel(&slot, sizeof(slot),
				    (void *)group +
					    bpf_core_field_offset(struct cgroup, ancestors) +
					    slot_level * sizeof(slot));
	return BPF_CORE_READ(slot, kn, id);
}

static __always_inline int other_check(struct task_struct *task, __u32 outside, __u32 inside)
{
	struct subject subject;

	if (!subject_find(&subject))
		return 0;
	if (task_slot(task) != subject.cgroup_id)
		return process_check(&subject, outside);
	return inside ? process_check(&subject, inside) : 0;
}

SEC("lsm/ptrace_access_check")
int BPF_PROG(dsec_ptrace, struct task_struct *child, unsigned int mode)
{
	return other_check(child, PTRACE_OUTSIDE, mode & PTRACE_MODE_ATTACHING ? PTRACE_INSIDE : 0);
}

SEC("lsm/ptrace_traceme")
int BPF_PROG(dsec_traceme, struct task_struct *parent)
{
	return other_check(parent, PTRACE_OUTSIDE, PTRACE_INSIDE);
}

SEC("lsm/task_kill")
int BPF_PROG(dsec_kill, struct task_struct *task)
{
	return other_check(task, SIGNAL_OUTSIDE, 0);
}

SEC("lsm/bpf")
int BPF_PROG(dsec_bpf, int command)
{
	return refused(BPF_CALL);
}

SEC("lsm/perf_event_open")
int BPF_PROG(dsec_perf)
{
	return refused(PERF);
}

/* The one hook on every kernel where both are made; uring_allowed came after 6.12. */
SEC("lsm/inode_init_security_anon")
int BPF_PROG(dsec_anon, struct inode *inode, const struct qstr *name)
{
	static const char uring[] = "[io_uring]", fault[] = "[userfaultfd]";
	char text[16] = {};

	if (bpf_probe_read_kernel_str(text, sizeof(text), BPF_CORE_READ(name, name)) < 0)
		return 0;
	if (!bpf_strncmp(text, sizeof(uring), uring))
		return refused(IO_URING);
	return bpf_strncmp(text, sizeof(fault), fault) ? 0 : refused(USERFAULTFD);
}

SEC("lsm/uring_allowed")
int BPF_PROG(dsec_uring)
{
	return refused(IO_URING);
}

SEC("lsm/uring_sqpoll")
int BPF_PROG(dsec_uring_poll)
{
	return refused(IO_URING);
}

SEC("lsm/uring_cmd")
int BPF_PROG(dsec_uring_cmd)
{
	return refused(IO_URING);
}

SEC("lsm/uring_override_creds")
int BPF_PROG(dsec_uring_cred)
{
	return refused(IO_URING);
}

SEC("lsm/key_alloc")
int BPF_PROG(dsec_key_alloc)
{
	return refused(KEYCTL);
}

SEC("lsm/key_permission")
int BPF_PROG(dsec_key)
{
	return refused(KEYCTL);
}

SEC("lsm/userns_create")
int BPF_PROG(dsec_userns)
{
	return refused(USERNS);
}

SEC("lsm/task_setscheduler")
int BPF_PROG(dsec_scheduler)
{
	return refused(SETSCHEDULER);
}

SEC("lsm/task_setnice")
int BPF_PROG(dsec_nice)
{
	return refused(SETSCHEDULER);
}

SEC("lsm/task_setioprio")
int BPF_PROG(dsec_ioprio)
{
	return refused(SETSCHEDULER);
}

/* 0 goes on to what the kernel answers. */
SEC("lsm/task_prctl")
int BPF_PROG(dsec_prctl, int option)
{
	return option == PRCTL_CORE_SCHED ? refused(CORE_SCHED) : 0;
}

SEC("lsm/sb_mount")
int BPF_PROG(dsec_no_mount)
{
	return refused(MOUNT);
}

SEC("lsm/sb_umount")
int BPF_PROG(dsec_no_umount)
{
	return refused(MOUNT);
}

SEC("lsm/move_mount")
int BPF_PROG(dsec_no_move)
{
	return refused(MOUNT);
}

SEC("lsm/sb_pivotroot")
int BPF_PROG(dsec_no_pivot)
{
	return refused(MOUNT);
}

SEC("lsm/socket_create")
int BPF_PROG(dsec_family, int family, int type, int protocol, int is_kernels)
{
	struct policy_value_key key = { .value = (__u32)family };
	const struct policy_refusal *refusal;
	struct subject subject;

	if (is_kernels || !subject_find(&subject))
		return 0;
	if (!subject.policy)
		return -ERROR_PERMISSION;
	if (!(subject.policy->content & POLICY_HAS_FAMILIES))
		return 0;
	key.policy = subject.sandbox->policy;
	refusal = bpf_map_lookup_elem(&families, &key);
	return refusal && !refusal->is_audit ? -ERROR_PERMISSION : 0;
}
