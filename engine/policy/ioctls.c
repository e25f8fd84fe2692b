/*
 * Ioctls of a policy: which numbers its lists name, and whether another policy refuses as much.
 * Called by compile.c and narrower.c. Must hold: no number has two rules; what is named by both
 * lists is refused, in whatever order they stand and whoever extends whom.
 */
#include "engine/policy/ioctls.h"

#include "engine/policy/compile.h"
#include "engine/policy/document.h"

static bool entry_names(const struct policy_entry *entry, uint32_t number)
{
	const uint16_t *group;

	if (entry->is_number)
		return entry->value == number;
	for (group = policy_ioctl_group((uint32_t)entry->value); *group; group++)
		if (*group == number)
			return true;
	return false;
}

static bool is_denied(const struct policy *policy, uint32_t number)
{
	for (uint32_t i = 0; i < policy->entry_count; i++)
		if (policy->entries[i].field == FIELD_IOCTLS_DENY &&
		    entry_names(&policy->entries[i], number))
			return true;
	return false;
}

/* The rule of a number; NULL: it has none. */
static const struct guard_rule *rule_of(const struct policy *policy, uint32_t number)
{
	for (uint32_t i = 0; i < policy->guard.rule_count; i++) {
		const struct guard_rule *rule = &policy->rules[i];

		if (rule->kind == GUARD_RULE_IOCTL && rule->value == number)
			return rule;
	}
	return NULL;
}

static void number_add(const struct policy *policy, const struct guard_rule *rule,
		       struct guard_rule *ret, uint32_t *count)
{
	const bool is_allowed = rule->bits & GUARD_IOCTL_ALLOW;

	if (!rule_of(policy, rule->value) && !(is_allowed && is_denied(policy, rule->value)))
		ret[(*count)++] = *rule;
}

uint32_t ioctl_rules(const struct policy *policy, const struct policy_entry *entry,
		     struct guard_rule ret[static IOCTL_RULES_MAX])
{
	const bool is_allowed = entry->field == FIELD_IOCTLS_ALLOW;
	struct guard_rule rule = { .kind = GUARD_RULE_IOCTL, .value = GUARD_IOCTL_NONE };
	const uint16_t *group;
	uint32_t count = 0;

	rule.bits = GUARD_IOCTL_OTHERS;
	if (is_allowed)
		number_add(policy, &rule, ret, &count);
	rule.bits = is_allowed ? GUARD_IOCTL_ALLOW : 0;
	rule.value = (uint32_t)entry->value;
	if (entry->is_number) {
		number_add(policy, &rule, ret, &count);
		return count;
	}
	for (group = policy_ioctl_group((uint32_t)entry->value); *group; group++) {
		rule.value = *group;
		number_add(policy, &rule, ret, &count); /* groups overlap */
	}
	return count;
}

/* Whether it refuses that number: by name, or as one of all others. */
static bool number_is_refused(const struct policy *policy, uint32_t number)
{
	const struct guard_rule *rule = rule_of(policy, number);

	if (!rule)
		rule = rule_of(policy, GUARD_IOCTL_NONE);
	return rule && !rule->is_audit && !(rule->bits & GUARD_IOCTL_ALLOW);
}

bool ioctl_is_kept(const struct policy *policy, const struct policy *wider,
		   const struct guard_rule *rule)
{
	if (rule->bits & GUARD_IOCTL_ALLOW)
		return true; /* it refuses nothing */
	if (!(rule->bits & GUARD_IOCTL_OTHERS))
		return number_is_refused(policy, rule->value);
	if (!number_is_refused(policy, GUARD_IOCTL_NONE))
		return false;
	for (uint32_t i = 0; i < policy->guard.rule_count; i++)
		if (policy->rules[i].kind == GUARD_RULE_IOCTL &&
		    policy->rules[i].bits & GUARD_IOCTL_ALLOW &&
		    number_is_refused(wider, policy->rules[i].value))
			return false;
	return true;
}
