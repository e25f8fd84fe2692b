/* Claims about policies in the guard's maps: what LSM programs make of them is test_guard_lsm.c. */
#include <errno.h>
#include <sys/socket.h>

#include <criterion/criterion.h>

#include "bpf/guard.h"
#include "bpf/guard_policy.h"
#include "tests/root/guard/tree.h"

enum { PROTECT = GUARD_FILE_WRITE | GUARD_FILE_REPLACE | GUARD_FILE_METADATA };

static const struct guard_rule rules[] = {
	{ .kind = GUARD_RULE_FILE,
	  .bits = PROTECT | GUARD_FILE_SUBTREE,
	  .text = "/usr/bin",
	  .label = "files.protect /usr/bin" },
	{ .kind = GUARD_RULE_FAMILY, .value = AF_NETLINK, .label = "sockets.families netlink" },
};

static const struct guard_policy policy = {
	.number = 7, .rule_count = 2, .rules = rules, .name = "test"
};

static struct tree tree;
static struct guard *guard;

static void setup(void)
{
	struct guard_options options;
	char why[4096];

	tree_make(&tree);
	options = tree_options(&tree);
	cr_assert_eq(guard_open(&options, why, sizeof(why), &guard), 0);
	cr_assert(guard_capabilities(guard) & GUARD_POLICIES, "%s", why);
}

static void teardown(void)
{
	guard_close(guard);
	tree_remove(&tree);
}

TestSuite(policy, .init = setup, .fini = teardown, .timeout = 240);

Test(policy, is_loaded_once_and_refused_where_it_is_not_there)
{
	struct guard_sandbox sandbox = { .sandbox = 1, .policy = policy.number };
	struct guard_rule bad = { .kind = GUARD_RULE_FILE, .bits = PROTECT, .text = "usr" };
	const struct guard_policy wrong = { .number = 8, .rule_count = 1, .rules = &bad };

	cr_expect_eq(guard_sandbox_set(guard, tree.ids[TREE_SLOT0], &sandbox), -ENOENT);
	cr_expect_eq(guard_policy_load(guard, &wrong), -EINVAL);
	cr_assert_eq(guard_policy_load(guard, &policy), 0);
	cr_expect_eq(guard_policy_load(guard, &policy), -EEXIST);
	cr_expect_eq(guard_sandbox_set(guard, tree.ids[TREE_SLOT0], &sandbox), -EINVAL);
	cr_assert_eq(guard_policy_drop(guard, &policy), 0);
	cr_expect_eq(guard_policy_load(guard, &policy), 0);
	cr_expect_eq(guard_sandbox_clear(guard, tree.ids[TREE_SLOT0]), 0);
}
