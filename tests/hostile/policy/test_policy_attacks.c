/*
 * Every route past a policy that is known, tried by root on the machine itself, whom nothing holds
 * but the LSM programs: inside a sandbox's cgroup and one below it, where each is refused, and in a
 * neighbour without a policy, where each works. Only a guest can run it.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine/base/cleanup.h"
#include "tests/hostile/policy/attack.h"
#include "tests/hostile/policy/place.h"
#include "tests/hostile/policy/told.h"
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

TestSuite(policy_attacks, .init = setup, .fini = teardown, .timeout = 240);

static int attack_run(const void *with)
{
	return attack_try(with, true);
}

/* What was refused has copied nothing up, moved nothing, left nothing. */
static bool is_untouched(void)
{
	auto_close int fd = open("bin/busybox", O_RDONLY | O_CLOEXEC);
	char text[16] = "";
	struct stat st;

	return read(fd, text, sizeof(text)) == 7 && !strcmp(text, "program") &&
	       stat("../up/bin/busybox", &st) < 0 && stat("../up/usr/bin/answer", &st) < 0 &&
	       stat("../up/etc/passwd", &st) < 0;
}

/* Each on files of its own; what differs is told by name. */
static void expect_all(const struct attack_group *group, enum tree_place where,
		       const struct policy *policy)
{
	for (unsigned i = 0; i < group->count; i++) {
		const struct attack *attack = &group->attacks[i];
		const int wanted = policy ? attack->denied : attack->open;
		int r;

		place_root(&place);
		if (policy)
			place_hold(&place, policy);
		r = tree_run(&place.tree, where, attack_run, attack);
		cr_expect_eq(r, wanted, "%s, %s: %s and not %s", attack->name,
			     policy ? "inside" : "neighbour", strerrorname_np(r),
			     strerrorname_np(wanted));
		cr_expect(!policy || is_untouched(), "%s changed something", attack->name);
		place_leave(&place);
		expect_told(&place.stage, attack, policy ? &policy->guard : NULL);
	}
}

static void no_route_leads_to_a_file_that_has_a_rule(void)
{
	expect_all(&files_group, TREE_LEAF, place.attacked);
	expect_all(&files_group, TREE_SLOT1, NULL);
}

static void no_mount_shows_moves_or_covers_a_file_that_has_a_rule(void)
{
	expect_all(&mounts_group, TREE_SLOT0, place.attacked);
	expect_all(&mounts_group, TREE_SLOT1, NULL);
}

static void no_entry_leads_to_an_ioctl_that_is_refused(void)
{
	expect_all(&ioctls_group, TREE_SLOT0, place.attacked);
	expect_all(&ioctls_group, TREE_SLOT1, NULL);
}

static void no_route_leads_to_a_socket_that_is_refused(void)
{
	expect_all(&sockets_group, TREE_SLOT0, place.attacked);
	expect_all(&sockets_group, TREE_SLOT1, NULL);
}

static void others_and_the_machine_are_out_of_reach(void)
{
	expect_all(&processes_group, TREE_LEAF, place.attacked);
	expect_all(&processes_group, TREE_SLOT1, NULL);
}

static void neither_rings_nor_mounts_are_made_where_a_policy_has_none(void)
{
	expect_all(&closed_group, TREE_SLOT0, place.closed);
	expect_all(&closed_group, TREE_SLOT1, NULL);
}

static void files_of_an_xfs_are_intact_with_a_policy_and_swapped_without(void)
{
	if (!xfs_mount(&place))
		cr_assert_fail("a guest has XFS: tests/vm/kernel.sh");
	place_hold(&place, place.attacked);
	expect_swap(&place, &(struct swapper){ TREE_STRANGER, 0, false, "outside" });
	expect_swap(&place, &(struct swapper){ TREE_SLOT0, EPERM, false, "inside" });
	expect_swap(&place, &(struct swapper){ TREE_LEAF, EPERM, false, "below" });
	expect_swap(&place, &(struct swapper){ TREE_SLOT1, 0, false, "a neighbour" });
	xfs_unmount(&place);
}

/* One test: to load the programs takes most of the time. */
Test(policy_attacks, each_is_refused_inside_and_works_for_a_neighbour)
{
	if (!(guard_capabilities(place.guard) & GUARD_LSM)) {
		teardown(); /* a skip ends the test without it */
		cr_skip_test("this kernel takes no LSM programs: run it in a guest");
	}
	cr_assert_eq(guard_violations_open(place.guard, 0, &place.stage.told), 0);
	no_route_leads_to_a_file_that_has_a_rule();
	no_mount_shows_moves_or_covers_a_file_that_has_a_rule();
	no_entry_leads_to_an_ioctl_that_is_refused();
	no_route_leads_to_a_socket_that_is_refused();
	others_and_the_machine_are_out_of_reach();
	neither_rings_nor_mounts_are_made_where_a_policy_has_none();
	files_of_an_xfs_are_intact_with_a_policy_and_swapped_without();
}
