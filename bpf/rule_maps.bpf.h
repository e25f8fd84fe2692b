/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps of policies and what every LSM program asks of them. rules.bpf.c owns the maps;
 * guard_lsm.c gives them to the other objects. After vmlinux.h.
 */
#pragma once

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "bpf/policy.h"

#define RULES_HASH(name, entries, key_type, value_type)                                            \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_HASH);                                                   \
		__uint(max_entries, entries);                                                      \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                              \
		__type(key, struct key_type);                                                      \
		__type(value, struct value_type);                                                  \
	} name SEC(".maps")

RULES_HASH(sandboxes, POLICY_SANDBOXES_MAX, policy_cgroup, policy_sandbox);
RULES_HASH(policies, POLICY_POLICIES_MAX, policy_number, policy_summary);
RULES_HASH(rules, POLICY_RULES_MAX, policy_rule_key, policy_rule);
RULES_HASH(paths, POLICY_PATHS_MAX, policy_path_key, policy_path);
RULES_HASH(ioctls, POLICY_VALUES_MAX, policy_value_key, policy_refusal);
RULES_HASH(families, POLICY_VALUES_MAX, policy_value_key, policy_refusal);
RULES_HASH(unix_names, POLICY_VALUES_MAX, policy_name_key, policy_refusal);

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, POLICY_CREATIONS_MAX);
	__type(key, struct policy_cgroup);
	__type(value, struct policy_creations);
} creations SEC(".maps");
