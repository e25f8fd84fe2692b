/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose the current task is, for LSM programs. After vmlinux.h.
 *
 * Must hold: a task above the slots costs no helper call. A sandbox whose policy is not there has
 * lost it, and may nothing that a policy could forbid.
 */
#pragma once

#include "bpf/rule_maps.bpf.h"
#include "bpf/violation.bpf.h"

enum { ERROR_PERMISSION = 1, ERROR_NO_ENTRY = 2, ERROR_ACCESS = 13 };

const volatile __u32 slot_level = 0;

struct subject {
	__u64 cgroup_id;
	struct policy_sandbox *sandbox;
	struct policy_summary *policy;
};

/* Whether a policy holds for the current task. */
static __always_inline bool subject_find(struct subject *ret)
{
	const struct task_struct *task = bpf_get_current_task_btf();
	struct policy_number number = {};
	struct policy_cgroup slot;

	if (task->cgroups->dfl_cgrp->level < (int)slot_level)
		return false;
	slot.cgroup_id = bpf_get_current_ancestor_cgroup_id(slot_level);
	ret->cgroup_id = slot.cgroup_id;
	ret->sandbox = bpf_map_lookup_elem(&sandboxes, &slot);
	if (!ret->sandbox || !ret->sandbox->policy)
		return false;
	number.policy = ret->sandbox->policy;
	ret->policy = bpf_map_lookup_elem(&policies, &number);
	return true;
}

/* What a rule says of a call. */
struct verdict {
	__u32 rule;
	__u32 hook;
	__s32 error;	/* positive; 0: it is only told of */
	__u64 argument; /* by hook */
};

static __always_inline struct violation violation_of(const struct subject *subject,
						     const struct verdict *verdict)
{
	return (struct violation){
		.cgroup_id = subject->cgroup_id,
		.rule = verdict->rule,
		.hook = (__u16)verdict->hook,
		.verdict = verdict->error ? POLICY_DENIED : POLICY_AUDITED,
		.error = verdict->error,
		.policy = subject->sandbox->policy,
		.phase = subject->sandbox->phase,
	};
}

/* What a call gets is said by constants: the verifier knows no others. */
static __noinline int verdict_tell(const struct violation *v, __u64 argument)
{
	struct policy_violation *record;

	if (!v)
		return 0;
	record = violation_begin(v);
	if (record) {
		record->argument = argument;
		violation_end(record);
	}
	return 0;
}

static __always_inline int refusal_judge(const struct subject *subject,
					 const struct policy_refusal *refusal, __u32 hook,
					 __u64 argument)
{
	const struct verdict verdict = { refusal->rule, hook,
					 refusal->is_audit ? 0 : ERROR_PERMISSION, argument };
	const struct violation v = violation_of(subject, &verdict);

	(void)verdict_tell(&v, argument); /* refused all the same */
	return refusal->is_audit ? 0 : -ERROR_PERMISSION;
}

/* By type and number: a 32-bit program's structures have other sizes. NULL: it may be. */
static __always_inline const struct policy_refusal *ioctl_refusal(const struct subject *subject,
								  __u32 command, __u32 *ret_hook)
{
	struct policy_value_key key = { subject->sandbox->policy, command & 0xffff };
	const struct policy_refusal *refusal = bpf_map_lookup_elem(&ioctls, &key);

	*ret_hook = POLICY_HOOK_IOCTL;
	if (!refusal) {
		*ret_hook = POLICY_HOOK_IOCTL_OTHER;
		key.value = POLICY_IOCTL_OTHERS;
		refusal = bpf_map_lookup_elem(&ioctls, &key);
	}
	return refusal && refusal->rule ? refusal : NULL;
}
