/*
 * Claims about how much sandboxes with a way out may send: real processes in the scene of
 * egress_scene.h.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <criterion/criterion.h>

#include "bpf/policy.h"
#include "engine/base/cleanup.h"
#include "tests/root/guard/egress_scene.h"

static void capped_set(uint32_t number, const struct guard_caps *caps)
{
	const struct guard_destination all[] = { allowed("0.0.0.0", 0, 1), allowed("::", 0, 2) };
	const struct guard_policy policy = { .number = number,
					     .has_egress = true,
					     .destination_count = 2,
					     .destinations = all,
					     .caps = *caps };
	const struct guard_egress what = own(number);

	cr_assert_eq(guard_egress_load(guard, &policy), 0);
	cr_assert_eq(guard_egress_set(guard, tree.ids[TREE_SLOT0], &what), 0);
}

/* Fresh, as for the next sandbox of the slot. */
static void capped_begin(uint32_t number, const struct guard_caps *caps)
{
	cr_assert_eq(guard_egress_clear(guard, tree.ids[TREE_SLOT0]), 0);
	capped_set(number, caps);
}

static uint64_t capped_tally(void)
{
	struct guard_tallies tallies;
	uint64_t count = 0;

	cr_assert_eq(guard_tallies_read(stream, tree.ids[TREE_SLOT0], &tallies), 0);
	for (uint32_t i = 0; i < tallies.count; i++)
		if (tallies.tallies[i].rule == POLICY_RULE_EGRESS_CAP)
			count += tallies.tallies[i].count;
	return count;
}

/* How many of so many datagrams of a KiB, each from a socket that is kept, were taken by send(). */
static int flood_run(const void *with)
{
	const int count = *(const int *)with;
	struct sockaddr_storage to;
	const socklen_t bytes = address_make(WORLD4, PORT_OPEN, &to);
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	static const char text[1000];
	int taken = 0;

	if (connect(fd, (struct sockaddr *)&to, bytes) < 0)
		return 0;
	for (int i = 0; i < count; i++)
		taken += send(fd, text, sizeof(text), 0) == (ssize_t)sizeof(text);
	return taken;
}

static void connections_end_at_their_cap_and_go_on_counting_over_a_change_of_policy(void)
{
	capped_begin(20, &(struct guard_caps){ .connections = 3 });
	for (int i = 0; i < 2; i++)
		cr_expect_eq(attempt(TREE_SLOT0, WORLD4, PORT_OPEN, SOCK_STREAM, CONNECT), 0);
	/* A datagram to a place that none was sent to is one too; the next to it is not. */
	for (int i = 0; i < 3; i++)
		cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_OPEN, SOCK_DGRAM, SENDTO), 0);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_OPEN, SOCK_STREAM, CONNECT), EPERM);
	cr_expect_eq(attempt(TREE_LEAF, WORLD6, PORT_OPEN, SOCK_STREAM, FASTOPEN), EPERM);
	cr_expect_neq(attempt(TREE_LEAF, WORLD6, PORT_OPEN, SOCK_DGRAM, SENDTO), 0);
	cr_expect_eq(counts_now(TREE_SLOT0).connections, 3);
	cr_expect_eq(counts_now(TREE_SLOT0).capped, 3);
	cr_expect_eq(counts_now(TREE_SLOT0).refused, 0);
	cr_expect_eq(capped_tally(), 3, "exactly");
	capped_set(21, &(struct guard_caps){ .connections = 4 });
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_OPEN, SOCK_STREAM, CONNECT), 0);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_OPEN, SOCK_STREAM, CONNECT), EPERM);
	capped_begin(22, &(struct guard_caps){ .connections = 4 });
	cr_expect_eq(counts_now(TREE_SLOT0).connections, 0, "another sandbox");
}

static void bytes_end_at_their_cap_exactly(void)
{
	struct guard_egress_flow flows[GUARD_EGRESS_FLOWS_MAX];
	const int some = 40;

	capped_begin(23, &(struct guard_caps){ .bytes = 10 * 1028 + 500 });
	cr_expect_eq(tree_run(&tree, TREE_LEAF, flood_run, &some), 10, "who sends is told");
	cr_expect_eq(counts_now(TREE_SLOT0).sent_bytes, 10 * 1028);
	cr_expect_eq(counts_now(TREE_SLOT0).capped, 30);
	cr_expect_eq(guard_egress_flows(guard, tree.ids[TREE_SLOT0], flows), 1,
		     "nothing of the sandbox before");
	cr_expect(flows[0].bytes == 10 * 1028);
	/* Some bytes are left; when none is, calls are refused too. */
	capped_begin(24, &(struct guard_caps){ .bytes = 1028 });
	cr_expect_eq(tree_run(&tree, TREE_LEAF, flood_run, &some), 1);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_OPEN, SOCK_STREAM, CONNECT), EPERM);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_OPEN, SOCK_DGRAM, SENDTO), EPERM);
}

static int burst_run(const void *with)
{
	int passed = 0;

	for (int i = 0; i < 30; i++)
		passed += attempt_run(with) == 0;
	return passed;
}

static void what_is_too_fast_waits_and_the_rest_passes(void)
{
	const struct attempt try = { WORLD4, PORT_OPEN, SOCK_STREAM, CONNECT, false };
	const int some = 200;
	struct guard_egress_counts counts;
	int passed;

	capped_begin(25, &(struct guard_caps){ .connections_per_s = 1 });
	passed = tree_run(&tree, TREE_LEAF, burst_run, &try);
	counts = counts_now(TREE_SLOT0);
	cr_expect(passed >= 1 && counts.connections == (uint64_t)passed);
	cr_expect_eq(counts.capped, 30 - passed);
	/* The sender of what is dropped for its rate is not told so, and TCP gets through. */
	capped_begin(26, &(struct guard_caps){ .bytes_per_s = 20000 });
	cr_expect_eq(tree_run(&tree, TREE_LEAF, flood_run, &some), some);
	counts = counts_now(TREE_SLOT0);
	cr_expect_geq(counts.sent_bytes, 19 * 1028, "a second's at once");
	cr_expect_eq(counts.sent_bytes / 1028 + counts.capped, some);
	cr_expect_eq(counts.sent_bytes % 1028, 0);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_OPEN, SOCK_STREAM, CONNECT), 0);
	/* A neighbour without an entry has no caps. */
	cr_expect_eq(tree_run(&tree, TREE_SLOT1, flood_run, &some), some);
}

TestSuite(egress_caps, .init = egress_setup, .fini = egress_teardown, .timeout = 240);

Test(egress_caps, they_end_connections_and_bytes_exactly_and_slow_what_is_too_fast)
{
	connections_end_at_their_cap_and_go_on_counting_over_a_change_of_policy();
	bytes_end_at_their_cap_exactly();
	what_is_too_fast_waits_and_the_rest_passes();
}
