/*
 * What walls make of policies, without a sandbox: tests/root/launch/test_launch_walls.c has those.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "backends/container/filter.h"
#include "backends/container/walls.h"
#include "bpf/guard_policy.h"
#include "engine/policy/policies.h"

TestSuite(walls, .timeout = 60);

/* A rule of a ready-made policy that no wall holds is one of these. */
static bool needs_more(const struct guard_rule *rule)
{
	return rule->kind == GUARD_RULE_UNIX;
}

Test(walls, ready_made_policies_have_walls_for_each_of_their_rules)
{
	struct policy_table table = { 0 };
	struct policy_mistake mistake;
	unsigned files = 0;

	cr_assert(policies_open(&table, &mistake) == 0);
	for (unsigned i = 0; i < POLICIES_READY; i++) {
		const struct guard_policy *policy = &table.ready[i]->guard;
		struct backend_walls *walls = NULL;

		cr_expect(backend_walls_new(policy, false, "", &walls) == 0, "%s", policy->name);
		for (uint32_t n = 0; n < policy->rule_count; n++) {
			const struct guard_rule *rule = &policy->rules[n];

			files += rule->kind == GUARD_RULE_FILE;
			cr_expect(needs_more(rule) || rule->is_audit ||
					  backend_rule_levels(rule, false),
				  "%s: %s", policy->name, rule->label);
		}
		if (policy->rule_count == 0) {
			cr_expect(walls_for_spawn(walls) == -1);
			cr_expect(walls_for_exec(walls) == -1);
		}
		backend_walls_free(walls);
	}
	cr_expect(files > 0);
	policies_close(&table);
}

Test(walls, mounts_alone_go_with_no_exec)
{
	const struct guard_rule rule = {
		.kind = GUARD_RULE_FILE,
		.bits = GUARD_FILE_WRITE | GUARD_FILE_SUBTREE,
		.text = "/usr",
	};
	const struct guard_policy policy = { .number = 1, .rule_count = 1, .rules = &rule };
	struct backend_walls *walls;

	cr_assert(backend_walls_new(&policy, false, "", &walls) == 0);
	cr_expect(walls_for_spawn(walls) >= 0);
	cr_expect(walls_for_exec(walls) == -1);
	backend_walls_free(walls);
	backend_walls_free(NULL);
	cr_expect(walls_for_spawn(NULL) == -1 && walls_for_exec(NULL) == -1);
}

/* As many as there may be, each of its own, and the longest texts. */
Test(walls, the_largest_policy_has_a_sheet_that_is_read_again)
{
	static char texts[GUARD_POLICY_RULES_MAX][GUARD_RULE_TEXT_MAX + 1];
	static struct guard_rule rules[GUARD_POLICY_RULES_MAX];
	static char buffer[WALLS_BYTES_MAX] __attribute__((aligned(8)));
	const struct guard_policy policy = { .number = 1,
					     .rule_count = GUARD_POLICY_RULES_MAX,
					     .rules = rules };
	struct backend_walls *walls;
	struct walls sheet;

	for (uint32_t i = 0; i < GUARD_POLICY_RULES_MAX; i++) {
		memset(texts[i], '/', GUARD_RULE_TEXT_MAX);
		rules[i] = (struct guard_rule){ .kind = GUARD_RULE_FILE,
						.bits = GUARD_FILE_HIDE,
						.text = texts[i] };
	}
	cr_assert(backend_walls_new(&policy, false, "", &walls) == 0);
	cr_assert(walls_read(walls_for_spawn(walls), buffer, &sheet) == 0);
	cr_expect(sheet.head->mount_count == GUARD_POLICY_RULES_MAX);
	cr_expect(strcmp(sheet.text + sheet.mounts[1023].path, texts[1023]) == 0);
	backend_walls_free(walls);
	rules[5].text = "relative";
	cr_expect(backend_walls_new(&policy, false, "", &walls) == -EINVAL);
}

Test(walls, as_many_ioctls_as_a_policy_has_rules_fit_into_a_filter)
{
	static struct guard_rule rules[GUARD_POLICY_RULES_MAX];
	struct guard_policy policy = { .number = 1, .rules = rules };
	struct sock_filter filter[WALLS_FILTER_MAX];
	uint32_t count = 0;

	for (uint32_t i = 0; i < GUARD_POLICY_RULES_MAX; i++)
		rules[i] = (struct guard_rule){ .kind = GUARD_RULE_IOCTL, .value = 0x7000 + i };
	policy.rule_count = GUARD_POLICY_RULES_MAX;
	int r = filter_compile(&policy, filter, &count);

	cr_expect(r == 0 && count > GUARD_POLICY_RULES_MAX, "%d, %u", r, count);
	for (uint32_t i = 1; i < GUARD_POLICY_RULES_MAX; i++)
		rules[i].bits = GUARD_IOCTL_ALLOW;
	rules[0] = (struct guard_rule){ .kind = GUARD_RULE_IOCTL,
					.bits = GUARD_IOCTL_OTHERS,
					.value = GUARD_IOCTL_NONE };
	r = filter_compile(&policy, filter, &count);
	cr_expect(r == 0 && count > 2 * (GUARD_POLICY_RULES_MAX - 1), "listed: %d, %u", r, count);
	rules[0].is_audit = true;
	r = filter_compile(&policy, filter, &count);
	cr_expect(r == 0 && count == 0, "what is only watched no filter refuses: %d, %u", r, count);
}
