/*
 * Turns compiled policies into entries of maps, and says which sandbox has which. Called by the
 * engine; the maps are guard_lsm.c's.
 *
 * Must hold: a policy's summary is there only while all of its rules are, for programs that find no
 * summary refuse everything; a sandbox changes by one update.
 */
#include "bpf/guard_policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include <bpf/bpf.h>

#include "bpf/guard.h"
#include "bpf/guard_apparmor.h"
#include "bpf/guard_lsm.h"
#include "bpf/policy.h"
#include "bpf/policy_path_hash.h"

enum {
	FILE_BITS = GUARD_FILE_WRITE | GUARD_FILE_REPLACE | GUARD_FILE_METADATA |
		    GUARD_FILE_EXECUTE | GUARD_FILE_HIDE | GUARD_FILE_SUBTREE,
	KERNEL_MINOR_BITS = 20,
};

/* One policy on its way into the maps, or out of them. */
struct work {
	const struct guard_lsm *lsm;
	uint32_t policy;
	bool is_drop;
	struct policy_summary summary;
};

static int map_put(const struct work *work, enum guard_map map, const void *key, const void *value)
{
	int fd = guard_lsm_map_fd(work->lsm, map), r;

	if (!work->is_drop)
		return bpf_map_update_elem(fd, key, value, BPF_ANY);
	r = bpf_map_delete_elem(fd, key);
	return r == -ENOENT ? 0 : r;
}

static uint64_t name_hash(const char *name, size_t bytes)
{
	__u64 words[POLICY_HASHED_BYTES / 8] = {};

	memcpy(words, name, bytes < sizeof(words) ? bytes : sizeof(words));
	return policy_name_hash(words, (uint32_t)bytes);
}

/* What is there already, of another rule, stays. */
static int path_put(const struct work *work, uint64_t hash, const struct policy_path *value)
{
	const bool is_ancestor = !(value->bits & ~(uint32_t)POLICY_PATH_ANCESTOR) &&
				 !value->audited;
	const struct policy_path_key key = { .policy = work->policy, .hash = hash };
	struct policy_path there = {};

	if (!work->is_drop)
		(void)bpf_map_lookup_elem(guard_lsm_map_fd(work->lsm, GUARD_MAP_PATHS), &key,
					  &there);
	there.bits |= value->bits;
	there.bits_below |= value->bits_below;
	there.audited |= value->audited;
	there.audited_below |= value->audited_below;
	if (!is_ancestor || !there.rule)
		there.rule = value->rule;
	return map_put(work, GUARD_MAP_PATHS, &key, &there);
}

static int path_rule(struct work *work, const struct guard_rule *rule, uint32_t bits,
		     uint32_t number)
{
	const struct policy_path ancestor = { .bits = rule->is_audit ? 0 : POLICY_PATH_ANCESTOR,
					      .rule = rule->is_audit ? 0 : number };
	const uint32_t below = bits & GUARD_FILE_SUBTREE ? bits & ~GUARD_FILE_SUBTREE : 0;
	const uint32_t here = bits & ~GUARD_FILE_SUBTREE;
	struct policy_path value = { .rule = number };
	uint64_t hash = POLICY_HASH_SEED;
	const char *at = rule->text;
	int r = 0;

	if (!at || *at != '/')
		return -EINVAL;
	*(rule->is_audit ? &value.audited : &value.bits) = here;
	*(rule->is_audit ? &value.audited_below : &value.bits_below) = below;
	work->summary.content |= POLICY_HAS_FILES;
	at += strspn(at, "/");
	for (int depth = 0; r == 0; depth++) {
		const size_t bytes = strcspn(at, "/");

		if (depth == POLICY_DEPTH_MAX)
			return -EINVAL;
		if (!bytes)
			return path_put(work, hash, &value);
		r = path_put(work, hash, &ancestor);
		hash = hash * POLICY_HASH_FACTOR + name_hash(at, bytes);
		at += bytes;
		at += strspn(at, "/");
	}
	return r;
}

static int unix_rule(struct work *work, const struct guard_rule *rule, uint32_t number)
{
	const struct policy_refusal refusal = { .rule = number, .is_audit = rule->is_audit };
	struct policy_name_key key = { .policy = work->policy };

	if (!rule->text || *rule->text != '@')
		return path_rule(work, rule, POLICY_PATH_CONNECT, number);
	key.hash = name_hash(rule->text + 1, strlen(rule->text + 1));
	work->summary.content |= POLICY_HAS_UNIX_NAMES;
	return map_put(work, GUARD_MAP_UNIX_NAMES, &key, &refusal);
}

static int value_rule(struct work *work, const struct guard_rule *rule, uint32_t number)
{
	const bool is_ioctl = rule->kind == GUARD_RULE_IOCTL;
	const bool is_others = is_ioctl && rule->bits & GUARD_IOCTL_OTHERS;
	const bool is_allowed = is_ioctl && rule->bits & GUARD_IOCTL_ALLOW;
	const struct policy_refusal refusal = { .rule = is_allowed ? 0 : number,
						.is_audit = rule->is_audit };
	const struct policy_value_key key = { .policy = work->policy, .value = rule->value };

	if (is_ioctl && (is_others ? rule->value != GUARD_IOCTL_NONE : rule->value > UINT16_MAX))
		return -EINVAL;
	work->summary.content |= is_ioctl ? POLICY_HAS_IOCTLS : POLICY_HAS_FAMILIES;
	return map_put(work, is_ioctl ? GUARD_MAP_IOCTLS : GUARD_MAP_FAMILIES, &key, &refusal);
}

static int rule_put(struct work *work, const struct guard_rule *rule, uint32_t number)
{
	switch ((enum guard_rule_kind)rule->kind) {
	case GUARD_RULE_FILE:
		if (!rule->bits || rule->bits & ~(uint32_t)FILE_BITS)
			return -EINVAL;
		return path_rule(work, rule, rule->bits, number);
	case GUARD_RULE_UNIX:
		return unix_rule(work, rule, number);
	case GUARD_RULE_IOCTL:
	case GUARD_RULE_FAMILY:
		return value_rule(work, rule, number);
	case GUARD_RULE_PROCESS:
		if (!rule->value || rule->value > GUARD_PROCESS_MOUNT)
			return -EINVAL;
		work->summary.processes[rule->value] = (uint16_t)number;
		if (rule->is_audit)
			work->summary.processes_audited |= 1U << rule->value;
		return 0;
	case GUARD_RULE_DESTINATION:
	case GUARD_RULE_NAME:
	case GUARD_RULE_CAP:
		return 0; /* guard_egress.c's; shown with the others */
	}
	return -EINVAL;
}

static int rules_put(struct work *work, const struct guard_policy *policy)
{
	int r = 0, failed = 0;

	for (uint32_t i = 0; i < policy->rule_count; i++) {
		const struct guard_rule *rule = &policy->rules[i];
		const struct policy_rule_key key = { .policy = work->policy, .rule = i + 1 };
		struct policy_rule shown = { .kind = rule->kind,
					     .bits = rule->bits,
					     .value = rule->value,
					     .is_audit = rule->is_audit };

		snprintf(shown.text, sizeof(shown.text), "%s", rule->label ? rule->label : "");
		r = rule_put(work, rule, i + 1);
		if (r == 0)
			r = map_put(work, GUARD_MAP_RULES, &key, &shown);
		if (r < 0 && !work->is_drop)
			return r;
		failed = r < 0 ? r : failed;
	}
	return failed;
}

int guard_policy_load(struct guard *guard, const struct guard_policy *policy)
{
	struct work work = { .lsm = guard_lsm_of(guard), .policy = policy->number };
	const struct policy_number key = { .policy = policy->number };
	struct policy_summary there;
	int fd, r;

	if (!work.lsm)
		return -EOPNOTSUPP;
	if (!policy->number || policy->rule_count > GUARD_POLICY_RULES_MAX)
		return -EINVAL;
	r = guard_lsm_enforce(guard);
	if (r < 0)
		return r;
	fd = guard_lsm_map_fd(work.lsm, GUARD_MAP_POLICIES);
	if (bpf_map_lookup_elem(fd, &key, &there) == 0)
		return -EEXIST;
	work.summary.rule_count = policy->rule_count;
	snprintf(work.summary.name, sizeof(work.summary.name), "%s", policy->name);
	r = rules_put(&work, policy);
	if (r == 0 && guard_capabilities(guard) & GUARD_EGRESS)
		r = guard_egress_load(guard, policy);
	if (r == 0)
		r = guard_apparmor_load(guard_apparmor_of(guard), policy);
	if (r == 0)
		r = bpf_map_update_elem(fd, &key, &work.summary, BPF_NOEXIST);
	if (r < 0) {
		(void)guard_apparmor_drop(guard_apparmor_of(guard), policy);
		(void)guard_egress_drop(guard, policy);
		work.is_drop = true;
		(void)rules_put(&work, policy); /* the first error is what counts */
	}
	return r;
}

int guard_policy_drop(struct guard *guard, const struct guard_policy *policy)
{
	struct work work = { .lsm = guard_lsm_of(guard),
			     .policy = policy->number,
			     .is_drop = true };
	const struct policy_number key = { .policy = policy->number };
	int r, failed;

	if (!work.lsm)
		return -EOPNOTSUPP;
	r = map_put(&work, GUARD_MAP_POLICIES, &key, NULL);
	failed = rules_put(&work, policy);
	if (guard_capabilities(guard) & GUARD_EGRESS)
		failed = failed < 0 ? failed : guard_egress_drop(guard, policy);
	r = r < 0 ? r : failed;
	failed = guard_apparmor_drop(guard_apparmor_of(guard), policy);
	return r < 0 ? r : failed;
}

int guard_sandbox_set(struct guard *guard, uint64_t cgroup_id, const struct guard_sandbox *sandbox)
{
	const struct guard_lsm *lsm = guard_lsm_of(guard);
	const struct policy_cgroup key = { .cgroup_id = cgroup_id };
	const struct policy_number number = { .policy = sandbox->policy };
	const struct policy_sandbox value = {
		.sandbox = sandbox->sandbox,
		.policy = sandbox->policy,
		.version = sandbox->version,
		.phase = sandbox->phase,
		.shard = sandbox->shard,
		/* Of super_block.s_dev, which is not encoded as in struct stat. */
		.device = major(sandbox->root_device) << KERNEL_MINOR_BITS |
			  minor(sandbox->root_device),
	};
	struct policy_summary summary;

	if (!lsm)
		return -EOPNOTSUPP;
	if (sandbox->policy) {
		if (bpf_map_lookup_elem(guard_lsm_map_fd(lsm, GUARD_MAP_POLICIES), &number,
					&summary) < 0)
			return -ENOENT;
		if (summary.content & POLICY_HAS_FILES && !value.device)
			return -EINVAL;
	}
	return bpf_map_update_elem(guard_lsm_map_fd(lsm, GUARD_MAP_SANDBOXES), &key, &value,
				   BPF_ANY);
}

int guard_sandbox_clear(struct guard *guard, uint64_t cgroup_id)
{
	const struct guard_lsm *lsm = guard_lsm_of(guard);
	const struct policy_cgroup key = { .cgroup_id = cgroup_id };
	int r;

	if (!lsm)
		return -EOPNOTSUPP;
	r = bpf_map_delete_elem(guard_lsm_map_fd(lsm, GUARD_MAP_SANDBOXES), &key);
	return r == -ENOENT ? 0 : r;
}

static uint32_t bpf_levels(const struct guard *guard, const struct guard_rule *rule)
{
	switch ((enum guard_rule_kind)rule->kind) {
	case GUARD_RULE_FILE:
	case GUARD_RULE_IOCTL:
	case GUARD_RULE_FAMILY:
	case GUARD_RULE_UNIX:
	case GUARD_RULE_PROCESS:
		return guard_capabilities(guard) & GUARD_LSM ? GUARD_LEVEL_BPF_LSM : 0;
	case GUARD_RULE_DESTINATION:
	case GUARD_RULE_CAP:
	case GUARD_RULE_NAME: /* where there is a resolver, which is not ours to say */
		return guard_capabilities(guard) & GUARD_EGRESS ? GUARD_LEVEL_CGROUP_BPF : 0;
	}
	return 0;
}

uint32_t guard_rule_levels(const struct guard *guard, const struct guard_policy *policy,
			   uint32_t at)
{
	uint32_t levels = bpf_levels(guard, &policy->rules[at]);

	if (guard_apparmor_holds(guard_apparmor_of(guard), policy, at))
		levels |= GUARD_LEVEL_APPARMOR;
	return levels;
}

_Static_assert((int)GUARD_PROFILE_NAME_BYTES == (int)PROFILE_NAME_BYTES, "its name fits");

int guard_profile_name(const struct guard *guard, const struct guard_policy *policy,
		       char ret[static GUARD_PROFILE_NAME_BYTES])
{
	return guard_apparmor_name(guard_apparmor_of(guard), policy, ret);
}
