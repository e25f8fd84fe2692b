/*
 * Claims about what is told and counted of refusals: by real processes in a cgroup tree of its own,
 * which are refused inet sockets and abstract names.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "bpf/guard.h"
#include "bpf/policy.h"
#include "engine/base/cleanup.h"
#include "tests/root/guard/tree.h"

enum { SEEN_MAX = 256 };

static struct tree tree;
static struct guard *guard;
static struct guard_violations *streams[2];
static struct policy_violation seen[SEEN_MAX];
static int seen_count;

static void setup(void)
{
	struct guard_options options;
	char why[4096];
	const uint32_t needed = GUARD_NETWORK_NONE | GUARD_ABSTRACT | GUARD_VIOLATIONS;

	tree_make(&tree);
	options = tree_options(&tree);
	cr_assert_eq(guard_open(&options, why, sizeof(why), &guard), 0);
	cr_assert_eq(guard_capabilities(guard) & needed, needed, "%s", why);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(guard_violations_open(guard, i, &streams[i]), 0);
	seen_count = 0;
}

static void teardown(void)
{
	for (uint32_t i = 0; i < 2; i++)
		guard_violations_close(streams[i]);
	guard_close(guard);
	tree_remove(&tree);
}

TestSuite(violations, .init = setup, .fini = teardown, .timeout = 240);

static void take(void *context, const struct policy_violation *v)
{
	(void)context;
	cr_assert_lt(seen_count, SEEN_MAX);
	seen[seen_count++] = *v;
}

/* All that waits in a shard's ring, behind what was seen before. */
static void drain(uint32_t shard)
{
	while (guard_violations_consume(streams[shard], 16, take, NULL) == 16)
		;
}

static int sockets_try(const void *with)
{
	const int *count = with;

	for (int i = 0; i < *count; i++)
		if (socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP) >= 0 || errno != EPERM)
			return 1;
	return 0;
}

static void sockets_expect(enum tree_place place, int count)
{
	cr_assert_eq(tree_run(&tree, place, sockets_try, &count), 0);
}

static int name_try(const void *with)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 9);
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)with;
	memcpy(address.sun_path, "\0chronus!", 9);
	return connect(fd, (const struct sockaddr *)&address, bytes) < 0 ? errno : 0;
}

Test(violations, a_socket_is_told_with_who_tried_it)
{
	sockets_expect(TREE_LEAF, 1);
	drain(0);
	cr_assert_eq(seen_count, 1);
	cr_expect_eq(seen[0].cgroup_id, tree.ids[TREE_SLOT0]);
	cr_expect_eq(seen[0].rule, POLICY_RULE_NETWORK_NONE);
	cr_expect_eq(seen[0].hook, POLICY_HOOK_SOCKET);
	cr_expect_eq(seen[0].verdict, POLICY_DENIED);
	cr_expect_eq(seen[0].error, EPERM);
	cr_expect_eq(seen[0].argument, (uint64_t)AF_INET6 << 32 | SOCK_DGRAM << 16 | IPPROTO_UDP);
	cr_expect_str_eq(seen[0].leaf, "e0");
	cr_expect_gt(seen[0].pid, 1);
	cr_expect_neq(seen[0].comm[0], '\0');
	cr_expect_eq(seen[0].count, 1);
}

Test(violations, an_abstract_name_is_told_in_full)
{
	cr_assert_eq(tree_run(&tree, TREE_SLOT2, name_try, NULL), EPERM);
	drain(0);
	cr_expect_eq(seen_count, 0, "it is of another shard");
	drain(1);
	cr_assert_eq(seen_count, 1);
	cr_expect_eq(seen[0].rule, POLICY_RULE_ABSTRACT);
	cr_expect_eq(seen[0].hook, POLICY_HOOK_UNIX_CONNECT);
	cr_expect_eq(seen[0].text_kind, POLICY_TEXT_NAME);
	cr_assert_eq(seen[0].text_bytes, 9);
	cr_expect_eq(memcmp(seen[0].text, "@chronus!", 9), 0);
	cr_expect_str_eq(seen[0].leaf, "", "it is in no leaf");
}

Test(violations, of_a_flood_few_are_told_and_all_are_counted)
{
	struct guard_tallies tallies;

	sockets_expect(TREE_SLOT0, 100000);
	sockets_expect(TREE_SLOT1, 1);
	drain(0);
	cr_expect_geq(seen_count, POLICY_TOLD_BURST);
	cr_expect_lt(seen_count, SEEN_MAX);
	cr_assert_eq(guard_tallies_read(streams[0], tree.ids[TREE_SLOT0], &tallies), 0);
	cr_assert_eq(tallies.count, 1);
	cr_expect_eq(tallies.tallies[0].rule, POLICY_RULE_NETWORK_NONE);
	cr_expect_eq(tallies.tallies[0].count, 100000);
	cr_expect_eq(tallies.tallies[0].lost, 0);
	cr_expect_eq(tallies.others, 0);
	cr_assert_eq(guard_tallies_read(streams[0], tree.ids[TREE_SLOT1], &tallies), 0);
	cr_assert_eq(tallies.count, 1);
	cr_expect_eq(tallies.tallies[0].count, 1, "the neighbour's is its own");
}

Test(violations, what_is_forgotten_begins_at_nothing)
{
	struct guard_tallies tallies;

	sockets_expect(TREE_SLOT0, 3);
	cr_assert_eq(guard_tallies_drop(streams[0], tree.ids[TREE_SLOT0]), 0);
	cr_assert_eq(guard_tallies_read(streams[0], tree.ids[TREE_SLOT0], &tallies), 0);
	cr_expect_eq(tallies.count, 0);
	cr_expect_eq(guard_tallies_drop(streams[0], tree.ids[TREE_SLOT0]), 0, "again");
	sockets_expect(TREE_SLOT0, 2);
	drain(0);
	cr_expect_eq(seen[seen_count - 1].count, 2);
}

Test(violations, who_is_allowed_and_who_is_outside_are_not_told_of)
{
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT0], true), 0);
	for (int i = 0; i < 3; i++) {
		const enum tree_place places[] = { TREE_SLOT0, TREE_ROOT, TREE_STRANGER };
		const int one = 1;

		cr_expect_eq(tree_run(&tree, places[i], sockets_try, &one), 1);
	}
	cr_expect(!guard_violations_wait(streams[0]));
	cr_expect(!guard_violations_wait(streams[1]));
}
