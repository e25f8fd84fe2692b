/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How fast a sandbox makes files, for file.bpf.c. What passes is counted against a bucket of its
 * own; when that is empty it is told of, once in a while, and goes on: nothing is refused here.
 */
#pragma once

#include "bpf/churn_rule.h"
#include "bpf/file_tell.bpf.h"

static __always_inline struct policy_creations *creations_of(const struct subject *subject)
{
	const struct policy_cgroup slot = { .cgroup_id = subject->cgroup_id };
	struct policy_creations *known = bpf_map_lookup_elem(&creations, &slot);
	const struct policy_creations anew = { .sandbox = subject->sandbox->sandbox };

	if (known && known->sandbox == anew.sandbox)
		return known;
	/* Without room for it, it is looked at again with the next file. */
	(void)bpf_map_update_elem(&creations, &slot, &anew, VIOLATION_ANY);
	return bpf_map_lookup_elem(&creations, &slot);
}

/* Whoever makes it: what is copied in is made by a helper inside, which looks like any other. */
static __always_inline void creation_count(struct dentry *dentry)
{
	const __u64 interval_ns = 1000000000 / POLICY_CREATIONS_PER_S;
	const struct churn_rule rule = { interval_ns, interval_ns * POLICY_CREATIONS_AT_ONCE };
	const struct verdict storm = { POLICY_RULE_FILE_STORM, POLICY_HOOK_CREATE, 0, 0 };
	const __u64 now_ns = bpf_ktime_get_ns();
	struct policy_creations *known;
	struct subject subject;
	struct violation v;
	__u64 told_ns;

	if (!subject_find(&subject))
		return;
	known = creations_of(&subject);
	if (!known || churn_allow(&rule, &known->full_at_ns, now_ns))
		return;
	told_ns = known->told_ns;
	if (now_ns - told_ns < POLICY_CREATIONS_TOLD_NS ||
	    __sync_val_compare_and_swap(&known->told_ns, told_ns, now_ns) != told_ns)
		return;
	v = violation_of(&subject, &storm);
	(void)file_tell(&v, (__u64)dentry, 0);
}
