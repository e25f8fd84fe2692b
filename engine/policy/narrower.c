/*
 * Compares what two policies refuse. Called by policy_want.c on the control thread, since large
 * ones take milliseconds, and by tests. Must hold: a rule counts as kept only where what refuses
 * it refuses at least as much, at the same paths and below them.
 */
#include "engine/policy/narrower.h"

#include <string.h>

#include "engine/policy/compile.h"
#include "engine/policy/egress.h"
#include "engine/policy/ioctls.h"
#include "engine/policy/names.h"

/* Of `path` itself, or of all that is below `above`. */
static bool path_is_within(const char *path, const char *above)
{
	size_t bytes = strlen(above);

	return !strncmp(path, above, bytes) && path[bytes] == '/';
}

/* What a rule refuses at the path of another, and where that has all below it, there, too. */
static uint32_t file_bits_at(const struct guard_rule *by, const struct guard_rule *rule)
{
	const bool same = !strcmp(by->text, rule->text);
	const bool reaches = by->bits & GUARD_FILE_SUBTREE;

	if (same ? !reaches && rule->bits & GUARD_FILE_SUBTREE :
		   !reaches || !path_is_within(rule->text, by->text))
		return 0;
	/* What is not there is neither read, written nor run. */
	return by->bits & GUARD_FILE_HIDE ? ~0u : by->bits;
}

static bool value_is_kept(const struct guard_rule *by, const struct guard_rule *rule)
{
	if (rule->kind == GUARD_RULE_PROCESS && rule->value == GUARD_PROCESS_PTRACE_OUTSIDE &&
	    by->value == GUARD_PROCESS_PTRACE)
		return true;
	return rule->kind == GUARD_RULE_UNIX ? !strcmp(by->text, rule->text) :
					       by->value == rule->value;
}

static bool rule_is_kept(const struct policy *policy, const struct policy *wider,
			 const struct guard_rule *rule)
{
	uint32_t missing = rule->bits & ~(uint32_t)GUARD_FILE_SUBTREE;

	if (rule->kind == GUARD_RULE_IOCTL)
		return ioctl_is_kept(policy, wider, rule);
	for (uint32_t i = 0; i < policy->guard.rule_count; i++) {
		const struct guard_rule *by = &policy->rules[i];

		if (by->kind != rule->kind || by->is_audit)
			continue;
		if (rule->kind != GUARD_RULE_FILE && value_is_kept(by, rule))
			return true;
		if (rule->kind != GUARD_RULE_FILE)
			continue;
		missing &= ~file_bits_at(by, rule);
		if (!missing)
			return true;
	}
	return false;
}

uint32_t policy_lacks(const struct policy *policy, const struct policy *wider)
{
	if (policy == wider)
		return 0;
	for (uint32_t i = 0; i < wider->guard.rule_count; i++)
		if (!wider->rules[i].is_audit &&
		    wider->rules[i].kind < GUARD_RULE_DESTINATION && /* those: see below */
		    !rule_is_kept(policy, wider, &wider->rules[i]))
			return i + 1;
	return 0;
}

/* 0: there is none. */
static bool cap_is_within(uint64_t cap, uint64_t wider)
{
	return !wider || (cap && cap <= wider);
}

static bool caps_are_within(const struct guard_caps *caps, const struct guard_caps *wider)
{
	return cap_is_within(caps->connections, wider->connections) &&
	       cap_is_within(caps->bytes, wider->bytes) &&
	       cap_is_within(caps->connections_per_s, wider->connections_per_s) &&
	       cap_is_within(caps->bytes_per_s, wider->bytes_per_s);
}

bool policy_goes_no_further(const struct policy *policy, const struct policy *wider)
{
	return egress_is_within(&policy->guard, &wider->guard) &&
	       names_are_within(&policy->guard, &wider->guard) &&
	       (!policy->guard.has_egress ||
		caps_are_within(&policy->guard.caps, &wider->guard.caps));
}
