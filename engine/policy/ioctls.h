/* What entries of ioctls.allow and ioctls.deny come to, as rules. Pure. */
#pragma once

#include <stdint.h>

#include "bpf/guard_policy.h"
#include "engine/policy/fields.h"

struct policy;
struct policy_entry;

enum { IOCTL_RULES_MAX = IOCTL_GROUP_MAX + 1 };

/*
 * The rules that an entry adds to those that the policy has; how many. What both lists name is
 * refused. The first entry of ioctls.allow adds the one that refuses all others, first.
 */
uint32_t ioctl_rules(const struct policy *policy, const struct policy_entry *entry,
		     struct guard_rule ret[static IOCTL_RULES_MAX]);
/* Whether `policy` refuses at least what that rule of `wider` does. */
bool ioctl_is_kept(const struct policy *policy, const struct policy *wider,
		   const struct guard_rule *rule);
