/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tells of calls that a filter of seccomp refused before any LSM hook was asked, where a rule of
 * the sandbox's policy forbids them, too. It runs at the end of each filter, so only for processes
 * that have one, and costs those a comparison where nothing was refused. Attached once by
 * guard_lsm.c.
 *
 * Must hold: it decides nothing. What a filter refuses and no rule speaks of is told to nobody:
 * honest programs ask for such things all the time.
 */
#include "vmlinux.h"
#include <bpf/bpf_tracing.h>

#include "bpf/lsm.bpf.h"
#include "bpf/processes.bpf.h"

char program_license[] SEC("license") = "Dual BSD/GPL";

/* As the kernel numbers them on this machine; those from 424 on have one number everywhere. */
enum {
#ifdef __TARGET_ARCH_x86
	CALL_IOCTL = 16,
	CALL_SOCKET = 41,
	CALL_SOCKETPAIR = 53,
	CALL_CLONE = 56,
	CALL_PIVOT_ROOT = 155,
	CALL_PRCTL = 157,
	CALL_MOUNT = 165,
	CALL_UMOUNT = 166,
	CALL_ADD_KEY = 248,
	CALL_REQUEST_KEY = 249,
	CALL_KEYCTL = 250,
	CALL_UNSHARE = 272,
	CALL_PERF = 298,
	CALL_BPF = 321,
	CALL_USERFAULTFD = 323,
#else
	CALL_IOCTL = 29,
	CALL_UMOUNT = 39,
	CALL_MOUNT = 40,
	CALL_PIVOT_ROOT = 41,
	CALL_UNSHARE = 97,
	CALL_PRCTL = 167,
	CALL_SOCKET = 198,
	CALL_SOCKETPAIR = 199,
	CALL_ADD_KEY = 217,
	CALL_REQUEST_KEY = 218,
	CALL_KEYCTL = 219,
	CALL_CLONE = 220,
	CALL_PERF = 241,
	CALL_BPF = 280,
	CALL_USERFAULTFD = 282,
#endif
	CALL_RING_SETUP = 425,
	CALL_RING_REGISTER = 427,
	CALL_OPEN_TREE = 428,
	CALL_FSPICK = 433,
	CALL_MOUNT_SETATTR = 442,
	CALL_OPEN_TREE_ATTR = 467,
};

enum { REFUSED = -1, NEW_USER_NAMESPACE = 0x10000000, PRCTL_CORE_SCHED = 62 };

struct call {
	__u64 number; /* as above */
	__u64 first, second, third;
	__s32 error; /* positive: what the filter says it got */
};

#ifdef __TARGET_ARCH_x86

enum { THREAD_IS_COMPAT = 2, X32_BIT = 0x40000000, X32_IOCTL = 514 };

/* The 32-bit table's number, where a rule may speak of it; else one that is nobody's. */
static __always_inline __u64 number_of_compat(__u64 number)
{
	switch (number) {
	case 54:
		return CALL_IOCTL;
	case 359:
		return CALL_SOCKET;
	case 360:
		return CALL_SOCKETPAIR;
	case 120:
		return CALL_CLONE;
	case 172:
		return CALL_PRCTL;
	case 21:
		return CALL_MOUNT;
	case 22: /* umount(2) had no flags then */
	case 52:
		return CALL_UMOUNT;
	case 217:
		return CALL_PIVOT_ROOT;
	case 286:
		return CALL_ADD_KEY;
	case 287:
		return CALL_REQUEST_KEY;
	case 288:
		return CALL_KEYCTL;
	case 310:
		return CALL_UNSHARE;
	case 336:
		return CALL_PERF;
	case 357:
		return CALL_BPF;
	case 374:
		return CALL_USERFAULTFD;
	default:
		return number >= CALL_RING_SETUP ? number : ~0ull;
	}
}

static __always_inline void call_read(struct call *ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	ret->error = -(__s32)regs->ax;
	ret->number = regs->orig_ax;
	if (BPF_CORE_READ(task, thread_info.status) & THREAD_IS_COMPAT) {
		ret->number = number_of_compat(ret->number);
		ret->first = (__u32)regs->bx;
		ret->second = (__u32)regs->cx;
		ret->third = (__u32)regs->dx;
		return;
	}
	if (ret->number & X32_BIT) {
		ret->number &= ~(__u64)X32_BIT;
		ret->number = ret->number == X32_IOCTL ? CALL_IOCTL : ret->number;
	}
	ret->first = regs->di;
	ret->second = regs->si;
	ret->third = regs->dx;
}

#else

static __always_inline void call_read(struct call *ret)
{
	const struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

	ret->error = -(__s32)regs->regs[0];
	ret->number = (__u64)regs->syscallno;
	ret->first = regs->orig_x0;
	ret->second = regs->regs[1];
	ret->third = regs->regs[2];
}

#endif

/* What a call is to the rules of processes. */
struct kind {
	__u32 process; /* as in processes.bpf.h; 0: nothing */
	__u32 hook;
	__u64 argument;
};

static __always_inline struct kind kind_of(const struct call *call)
{
	switch (call->number) {
	case CALL_BPF:
		return (struct kind){ BPF_CALL, POLICY_HOOK_BPF, (__u32)call->first };
	case CALL_PERF:
		return (struct kind){ PERF, POLICY_HOOK_PERF, 0 };
	case CALL_USERFAULTFD:
		return (struct kind){ USERFAULTFD, POLICY_HOOK_USERFAULTFD, 0 };
	case CALL_ADD_KEY:
	case CALL_REQUEST_KEY:
	case CALL_KEYCTL:
		return (struct kind){ KEYCTL, POLICY_HOOK_KEYCTL, 0 };
	case CALL_UNSHARE:
	case CALL_CLONE:
		return (struct kind){ call->first & NEW_USER_NAMESPACE ? USERNS : 0,
				      POLICY_HOOK_USERNS, 0 };
	case CALL_PRCTL:
		return (struct kind){ (__u32)call->first == PRCTL_CORE_SCHED ? CORE_SCHED : 0,
				      POLICY_HOOK_CORE_SCHED, 0 };
	case CALL_RING_SETUP ... CALL_RING_REGISTER:
		return (struct kind){ IO_URING, POLICY_HOOK_IO_URING, 0 };
	case CALL_MOUNT:
	case CALL_UMOUNT:
	case CALL_PIVOT_ROOT:
	case CALL_OPEN_TREE ... CALL_FSPICK:
	case CALL_MOUNT_SETATTR:
	case CALL_OPEN_TREE_ATTR:
		return (struct kind){ MOUNT, POLICY_HOOK_MOUNT_CALL, 0 };
	default:
		return (struct kind){ 0 };
	}
}

static __always_inline void refusal_tell(const struct subject *subject,
					 const struct policy_refusal *refusal,
					 const struct call *call, const struct kind *kind)
{
	const struct verdict verdict = { refusal->rule, kind->hook,
					 refusal->is_audit ? 0 : call->error, 0 };
	const struct violation v = violation_of(subject, &verdict);

	(void)verdict_tell(&v, kind->argument); /* refused all the same */
}

static __always_inline void ioctl_tell(const struct subject *subject, const struct call *call)
{
	struct kind kind = { .argument = (__u32)call->second };
	const struct policy_refusal *refusal =
		ioctl_refusal(subject, (__u32)call->second, &kind.hook);

	if (refusal)
		refusal_tell(subject, refusal, call, &kind);
}

static __always_inline void socket_tell(const struct subject *subject, const struct call *call)
{
	const struct policy_value_key key = { subject->sandbox->policy, (__u32)call->first };
	const struct policy_refusal *refusal = bpf_map_lookup_elem(&families, &key);
	const struct kind kind = { .hook = POLICY_HOOK_SOCKET,
				   .argument = (__u64)(__u32)call->first << 32 |
					       (__u64)(__u16)call->second << 16 |
					       (__u16)call->third };

	if (refusal)
		refusal_tell(subject, refusal, call, &kind);
}

/* As the programs of file.bpf.c and process.bpf.c would have told of it. */
static __always_inline void call_tell(const struct subject *subject, const struct call *call)
{
	struct policy_refusal refusal = {};
	struct kind kind;

	if (call->number == CALL_IOCTL) {
		ioctl_tell(subject, call);
		return;
	}
	if (call->number == CALL_SOCKET || call->number == CALL_SOCKETPAIR) {
		socket_tell(subject, call);
		return;
	}
	kind = kind_of(call);
	if (!kind.process)
		return;
	refusal.rule = subject->policy->processes[kind.process & (POLICY_PROCESS_RULES - 1)];
	refusal.is_audit = subject->policy->processes_audited >> (kind.process & 31) & 1;
	if (refusal.rule)
		refusal_tell(subject, &refusal, call, &kind);
}

SEC("fexit/__secure_computing")
int BPF_PROG(dsec_filtered)
{
	struct subject subject;
	struct call call = {};
	__u64 answer = 0;

	if (bpf_get_func_ret(ctx, &answer) || (__s32)answer != REFUSED)
		return 0;
	if (!subject_find(&subject) || !subject.policy)
		return 0;
	call_read(&call);
	if (call.error > 0)
		call_tell(&subject, &call);
	return 0;
}
