/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a policy says of processes and of families of sockets, for LSM hooks. Attached once by
 * guard_lsm.c.
 */
#include "vmlinux.h"
#include <bpf/bpf_tracing.h>

#include "bpf/lsm.bpf.h"
#include "bpf/processes.bpf.h"

char program_license[] SEC("license") = "Dual BSD/GPL";

enum { PTRACE_MODE_ATTACHING = 2, PRCTL_CORE_SCHED = 62 };

static __always_inline int process_check(const struct subject *subject, __u32 what, __u32 hook,
					 __u64 argument)
{
	struct policy_refusal refusal = {};

	if (!subject->policy)
		return -ERROR_PERMISSION;
	refusal.rule = subject->policy->processes[what & (POLICY_PROCESS_RULES - 1)];
	if (!refusal.rule)
		return 0;
	refusal.is_audit = subject->policy->processes_audited & (1u << what);
	return refusal_judge(subject, &refusal, hook, argument);
}

static __always_inline int refused(__u32 what, __u32 hook, __u64 argument)
{
	struct subject subject;

	return subject_find(&subject) ? process_check(&subject, what, hook, argument) : 0;
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

/* Number of the other one, as the engine sees it. */
static __always_inline __u64 task_number(struct task_struct *task)
{
	const __u32 zero = 0;
	const struct policy_engine *place = bpf_map_lookup_elem(&engine_place, &zero);

	return place && place->pidns_inode ? (__u32)pid_number(BPF_CORE_READ(task, signal), place) :
					     0;
}

/* What it does to another one: outside of its sandbox, or within (0: that is free). */
struct deed {
	__u32 outside, inside, hook, signal;
};

static __always_inline int other_check(struct task_struct *task, const struct deed *deed)
{
	struct subject subject;
	__u32 what;

	if (!subject_find(&subject))
		return 0;
	what = task_slot(task) != subject.cgroup_id ? deed->outside : deed->inside;
	if (!what)
		return 0;
	return process_check(&subject, what, deed->hook,
			     deed->hook == POLICY_HOOK_SIGNAL ?
				     task_number(task) << 32 | deed->signal :
				     task_number(task));
}

SEC("lsm/ptrace_access_check")
int BPF_PROG(dsec_ptrace, struct task_struct *child, unsigned int mode)
{
	const struct deed deed = { PTRACE_OUTSIDE, mode & PTRACE_MODE_ATTACHING ? PTRACE_INSIDE : 0,
				   POLICY_HOOK_PTRACE, 0 };

	return other_check(child, &deed);
}

SEC("lsm/ptrace_traceme")
int BPF_PROG(dsec_traceme, struct task_struct *parent)
{
	const struct deed deed = { PTRACE_OUTSIDE, PTRACE_INSIDE, POLICY_HOOK_PTRACE, 0 };

	return other_check(parent, &deed);
}

SEC("lsm/task_kill")
int BPF_PROG(dsec_kill, struct task_struct *task, struct kernel_siginfo *info, int signal)
{
	const struct deed deed = { SIGNAL_OUTSIDE, 0, POLICY_HOOK_SIGNAL, (__u32)signal };

	return other_check(task, &deed);
}

SEC("lsm/bpf")
int BPF_PROG(dsec_bpf, int command)
{
	return refused(BPF_CALL, POLICY_HOOK_BPF, (__u32)command);
}

SEC("lsm/perf_event_open")
int BPF_PROG(dsec_perf)
{
	return refused(PERF, POLICY_HOOK_PERF, 0);
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
		return refused(IO_URING, POLICY_HOOK_IO_URING, 0);
	return bpf_strncmp(text, sizeof(fault), fault) ?
		       0 :
		       refused(USERFAULTFD, POLICY_HOOK_USERFAULTFD, 0);
}

SEC("lsm/uring_allowed")
int BPF_PROG(dsec_uring)
{
	return refused(IO_URING, POLICY_HOOK_IO_URING, 0);
}

SEC("lsm/uring_sqpoll")
int BPF_PROG(dsec_uring_poll)
{
	return refused(IO_URING, POLICY_HOOK_IO_URING, 0);
}

SEC("lsm/uring_cmd")
int BPF_PROG(dsec_uring_cmd)
{
	return refused(IO_URING, POLICY_HOOK_IO_URING, 0);
}

SEC("lsm/uring_override_creds")
int BPF_PROG(dsec_uring_cred)
{
	return refused(IO_URING, POLICY_HOOK_IO_URING, 0);
}

SEC("lsm/key_alloc")
int BPF_PROG(dsec_key_alloc)
{
	return refused(KEYCTL, POLICY_HOOK_KEYCTL, 0);
}

SEC("lsm/key_permission")
int BPF_PROG(dsec_key)
{
	return refused(KEYCTL, POLICY_HOOK_KEYCTL, 0);
}

SEC("lsm/userns_create")
int BPF_PROG(dsec_userns)
{
	return refused(USERNS, POLICY_HOOK_USERNS, 0);
}

/* Which CPUs a task runs on is its own affair, and asked by the same hook. */
static __always_inline bool is_harmless(void)
{
#ifdef __TARGET_ARCH_x86
	enum { CALL_SETSCHEDULER = 144, CALL_SETAFFINITY = 203, IDLE = 5 };
	const struct pt_regs *call = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

	if (call->orig_ax == CALL_SETSCHEDULER)
		return call->si == IDLE; /* a worker's, before a call's program; it gains nothing */
	return call->orig_ax == CALL_SETAFFINITY;
#else
	enum { CALL_SETAFFINITY = 122 };
	const struct pt_regs *call = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

	return call->syscallno == CALL_SETAFFINITY;
#endif
}

SEC("lsm/task_setscheduler")
int BPF_PROG(dsec_scheduler)
{
	return is_harmless() ? 0 : refused(SETSCHEDULER, POLICY_HOOK_SCHEDULER, 0);
}

SEC("lsm/task_setnice")
int BPF_PROG(dsec_nice)
{
	return refused(SETSCHEDULER, POLICY_HOOK_SCHEDULER, 0);
}

SEC("lsm/task_setioprio")
int BPF_PROG(dsec_ioprio)
{
	return refused(SETSCHEDULER, POLICY_HOOK_SCHEDULER, 0);
}

/* 0 goes on to what the kernel answers. */
SEC("lsm/task_prctl")
int BPF_PROG(dsec_prctl, int option)
{
	return option == PRCTL_CORE_SCHED ? refused(CORE_SCHED, POLICY_HOOK_CORE_SCHED, 0) : 0;
}

SEC("lsm/sb_mount")
int BPF_PROG(dsec_no_mount)
{
	return refused(MOUNT, POLICY_HOOK_MOUNT_CALL, 0);
}

SEC("lsm/sb_umount")
int BPF_PROG(dsec_no_umount)
{
	return refused(MOUNT, POLICY_HOOK_MOUNT_CALL, 0);
}

SEC("lsm/move_mount")
int BPF_PROG(dsec_no_move)
{
	return refused(MOUNT, POLICY_HOOK_MOUNT_CALL, 0);
}

SEC("lsm/sb_remount")
int BPF_PROG(dsec_no_remount)
{
	return refused(MOUNT, POLICY_HOOK_MOUNT_CALL, 0);
}

SEC("lsm/sb_pivotroot")
int BPF_PROG(dsec_no_pivot)
{
	return refused(MOUNT, POLICY_HOOK_MOUNT_CALL, 0);
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
	return refusal ? refusal_judge(&subject, refusal, POLICY_HOOK_SOCKET,
				       (__u64)(__u32)family << 32 | (__u64)(__u16)type << 16 |
					       (__u16)protocol) :
			 0;
}
