/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose the current task is, for LSM programs. After vmlinux.h.
 *
 * Must hold: a task above the slots costs no helper call. A sandbox whose policy is not there has
 * lost it, and may nothing that a policy could forbid.
 */
#pragma once

#include "bpf/rule_maps.bpf.h"

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
