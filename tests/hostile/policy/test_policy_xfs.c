/*
 * A real XFS and the filter of every sandbox: with it, the attack that swaps what two files hold
 * changes nothing; without it, it does. What LSM programs do about it: test_policy_attacks.c.
 */
#include <errno.h>

#include <criterion/criterion.h>

#include "tests/hostile/policy/xfs.h"

static struct place place;

static void setup(void)
{
	place_make(&place);
}

static void teardown(void)
{
	place_remove(&place);
}

TestSuite(policy_xfs, .init = setup, .fini = teardown, .timeout = 240);

Test(policy_xfs, files_are_intact_behind_the_filter_and_swapped_without)
{
	if (!xfs_mount(&place)) {
		xfs_unmount(&place);
		teardown(); /* a skip ends the test without it */
		cr_skip_test("this kernel has no XFS");
	}
	expect_swap(&place, &(struct swapper){ TREE_STRANGER, 0, false, "outside" });
	expect_swap(&place, &(struct swapper){ TREE_SLOT0, EPERM, true, "a sandbox" });
	expect_swap(&place, &(struct swapper){ TREE_SLOT1, 0, false, "a neighbour" });
	xfs_unmount(&place);
}
