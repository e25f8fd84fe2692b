/*
 * Claims about where sandboxes with a way out get: real processes in the scene of egress_scene.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "bpf/policy.h"
#include "engine/base/cleanup.h"
#include "tests/root/guard/egress_scene.h"

TestSuite(egress, .init = egress_setup, .fini = egress_teardown, .timeout = 240);

/* ---- claims ---- */

static int loopback_run(const void *with)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t bytes = sizeof(at);
	auto_close int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	auto_close int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)inet_pton(AF_INET, with, &at.sin_addr);
	if (bind(server, (struct sockaddr *)&at, bytes) < 0 || listen(server, 1) < 0 ||
	    getsockname(server, (struct sockaddr *)&at, &bytes) < 0)
		return errno;
	return connect(client, (struct sockaddr *)&at, bytes) < 0 ? errno : 0;
}

Test(egress, what_the_policy_allows_is_reached_and_itself_and_nothing_else)
{
	expect_all(TREE_SLOT0, WORLD4, PORT_OPEN, 0);
	expect_all(TREE_SLOT0, WORLD6, PORT_OPEN, 0);
	expect_all(TREE_LEAF, WORLD4, PORT_OPEN, 0);
	expect_all(TREE_LEAF, "::ffff:" WORLD4, PORT_OPEN, 0);
	cr_expect_eq(counts_now(TREE_SLOT0).refused, 0);
	expect_all(TREE_LEAF, WORLD4, PORT_SHUT, EPERM);
	expect_all(TREE_LEAF, WORLD6, PORT_SHUT, EPERM);
	expect_all(TREE_LEAF, OTHER4, PORT_OPEN, EPERM);
	expect_all(TREE_LEAF, OTHER6, PORT_OPEN, EPERM);
	expect_all(TREE_LEAF, "::ffff:" OTHER4, PORT_OPEN, EPERM);
	expect_all(TREE_LEAF, "224.0.0.1", PORT_OPEN, EPERM);
	expect_all(TREE_LEAF, "ff02::1", PORT_OPEN, EPERM);
	cr_expect_eq(attempt(TREE_LEAF, OTHER4, PORT_OPEN, SOCK_STREAM, FASTOPEN), EPERM);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_QUIC, SOCK_DGRAM, SENDTO), EPERM);
	cr_expect_eq(counts_now(TREE_SLOT0).refused, 23);
	cr_expect_eq(counts_now(TREE_SLOT0).dropped, 0, "a call was let through");
	/* A neighbour without an entry is nobody's business here. */
	expect_all(TREE_SLOT1, OTHER4, PORT_SHUT, 0);
	cr_expect_eq(tree_run(&tree, TREE_SLOT0, loopback_run, "127.0.0.1"), 0);
	cr_expect_eq(tree_run(&tree, TREE_SLOT0, loopback_run, "127.7.7.7"), 0);
	cr_expect_eq(tree_run(&tree, TREE_SLOT0, loopback_run, OWN4), 0);
	cr_expect_eq(counts_now(TREE_SLOT0).refused, 23, "itself it reaches by every name");
}

Test(egress, E55_E58_metadata_is_refused_and_names_are_asked_of_the_resolver_alone)
{
	struct guard_egress what = own(EGRESS_POLICY);
	static const char *const cloud[] = {
		CLOUD4,
		"::ffff:" CLOUD4,
		CLOUD6,
		"100.100.100.200",
		"192.0.0.192",
		"::" CLOUD4,
		"64:ff9b::a9fe:a9fe",
		"2002:a9fe:a9fe::1",
		"fe80::a9fe:a9fe",
	};

	cr_expect_eq(attempt(TREE_SLOT1, CLOUD4, PORT_OPEN, SOCK_STREAM, CONNECT), 0,
		     "it is there for others");
	cr_expect_eq(attempt(TREE_SLOT1, CLOUD6, PORT_OPEN, SOCK_STREAM, CONNECT), 0);
	for (unsigned i = 0; i < sizeof(cloud) / sizeof(*cloud); i++)
		expect_all(TREE_SLOT0, cloud[i], PORT_OPEN, EPERM);
	expect_all(TREE_SLOT0, WORLD4, PORT_DNS, EPERM);
	expect_all(TREE_SLOT0, WORLD6, PORT_DNS, EPERM);
	(void)inet_pton(AF_INET, OTHER4, &what.resolver4); /* though the policy denies it */
	what.resolver_port = htons(PORT_DNS);
	cr_assert_eq(guard_egress_set(guard, tree.ids[TREE_SLOT0], &what), 0);
	expect_all(TREE_SLOT0, OTHER4, PORT_DNS, 0);
	expect_all(TREE_SLOT0, OTHER4, PORT_OPEN, EPERM);
	expect_all(TREE_SLOT0, WORLD4, PORT_DNS, EPERM);
}

/* What was told of one refusal. */
struct told {
	int metadata, dns, denied, nothing;
};

static void told_take(void *context, const struct policy_violation *v)
{
	struct told *told = context;

	cr_expect(v->cgroup_id == tree.ids[TREE_SLOT0] && v->verdict == POLICY_DENIED);
	cr_expect(v->error == EPERM && v->policy == EGRESS_POLICY);
	told->metadata += v->rule == POLICY_RULE_METADATA_ADDRESS &&
			  v->hook == POLICY_HOOK_CONNECT && v->family == 4 &&
			  v->protocol == IPPROTO_TCP && v->address[12] == 169;
	told->dns += v->rule == POLICY_RULE_DNS && v->hook == POLICY_HOOK_SEND &&
		     v->port == PORT_DNS && v->protocol == IPPROTO_UDP;
	told->denied += v->rule == 4 && v->family == 6 && v->address[15] == 0x20;
	told->nothing += v->rule == POLICY_RULE_EGRESS && v->port == PORT_SHUT;
}

static void what_was_refused_is_told_and_what_passed_is_counted(void)
{
	struct guard_egress_flow flows[GUARD_EGRESS_FLOWS_MAX];
	struct guard_egress_counts counts;
	struct told told = {};
	uint64_t bytes = 0;
	int count;

	(void)attempt(TREE_SLOT0, CLOUD4, PORT_OPEN, SOCK_STREAM, CONNECT);
	(void)attempt(TREE_LEAF, WORLD4, PORT_DNS, SOCK_DGRAM, SENDTO);
	(void)attempt(TREE_LEAF, OTHER6, PORT_OPEN, SOCK_STREAM, CONNECT);
	(void)attempt(TREE_LEAF, WORLD4, PORT_SHUT, SOCK_STREAM, CONNECT);
	while (guard_violations_consume(stream, 16, told_take, &told) == 16)
		;
	cr_expect(told.metadata == 1 && told.dns == 1 && told.denied == 1 && told.nothing == 1,
		  "%d %d %d %d", told.metadata, told.dns, told.denied, told.nothing);
	cr_expect_eq(guard_egress_flows(guard, tree.ids[TREE_SLOT0], flows), 0);
	expect_all(TREE_LEAF, WORLD4, PORT_OPEN, 0);
	expect_all(TREE_LEAF, WORLD6, PORT_OPEN, 0);
	count = guard_egress_flows(guard, tree.ids[TREE_SLOT0], flows);
	cr_assert_eq(count, 4, "two addresses, two protocols: %d", count);
	for (int i = 0; i < count; i++) {
		cr_expect_eq(flows[i].port, PORT_OPEN);
		cr_expect_eq(flows[i].rule, flows[i].address[0] ? 2 : 1);
		cr_expect(flows[i].bytes >= (flows[i].protocol == IPPROTO_TCP ? 3 * 40 : 2 * 29));
		bytes += flows[i].bytes;
	}
	counts = counts_now(TREE_SLOT0);
	cr_expect_eq(counts.sent_bytes, bytes);
	cr_expect_eq(counts.connections, 4, "two of TCP, and two places that UDP went to");
	cr_expect(flows[0].bytes >= flows[1].bytes && flows[1].bytes >= flows[3].bytes);
	cr_expect_eq(guard_egress_flows(guard, tree.ids[TREE_SLOT1], flows), 0);
}

/* A socket that was connected before its sandbox had a policy, and one of another address. */
static int sends(int fd)
{
	char answer;
	const struct timeval wait = { .tv_usec = SILENCE_MS * 1000 };

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	if (send(fd, "q", 1, 0) < 0)
		return errno;
	return recv(fd, &answer, 1, 0) == 1 ? 0 : errno;
}

static void policy_is_put_and_dropped_whole(void)
{
	struct guard_destination wrong[] = { allowed(WORLD4, 32, 1), allowed(WORLD6, 128, 2) };
	struct guard_policy policy = { .number = EGRESS_POLICY + 1,
				       .has_egress = true,
				       .destination_count = 2,
				       .destinations = wrong };
	struct guard_egress what = own(EGRESS_POLICY + 1);
	struct guard_egress_counts counts;

	wrong[1].ports[0].first = 90;
	cr_expect_eq(guard_egress_load(guard, &policy), -EINVAL);
	cr_assert_eq(guard_egress_set(guard, tree.ids[TREE_SLOT0], &what), 0);
	expect_all(TREE_SLOT0, WORLD4, PORT_OPEN, EPERM);
	wrong[1].ports[0].first = 1;
	cr_expect_eq(guard_egress_load(guard, &policy), 0);
	expect_all(TREE_SLOT0, WORLD4, PORT_OPEN, 0);
	cr_expect_eq(guard_egress_drop(guard, &policy), 0);
	expect_all(TREE_SLOT0, WORLD4, PORT_OPEN, EPERM);
	what.policy = 0;
	cr_expect_eq(guard_egress_set(guard, tree.ids[TREE_SLOT0], &what), -EINVAL);
	cr_assert_eq(guard_egress_clear(guard, tree.ids[TREE_SLOT0]), 0);
	cr_expect_eq(guard_egress_counts(guard, tree.ids[TREE_SLOT0], &counts), -ENOENT);
}

/* What the programs keep of a flow is of that policy, and of none that was dropped. */
static void what_is_open_goes_where_the_policy_leads_now(void)
{
	struct guard_destination all[] = { allowed(WORLD4, 32, 1), allowed(WORLD6, 128, 2) };
	const struct guard_policy policy = { .number = EGRESS_POLICY + 2,
					     .has_egress = true,
					     .destination_count = 2,
					     .destinations = all };
	static const char *const places[] = { WORLD4, WORLD6 };
	struct guard_egress what = own(EGRESS_POLICY + 2);
	struct sockaddr_storage to;
	int fds[2], passed[2][4];

	tree_enter(&tree, TREE_SLOT0);
	for (int i = 0; i < 2; i++) {
		fds[i] = socket(i ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		cr_assert_eq(connect(fds[i], (struct sockaddr *)&to,
				     address_make(places[i], PORT_OPEN, &to)),
			     0);
		passed[i][0] = sends(fds[i]) == 0 && sends(fds[i]) == 0;
	}
	cr_assert_eq(guard_egress_set(guard, tree.ids[TREE_SLOT0], &what), 0);
	for (int i = 0; i < 2; i++)
		passed[i][1] = sends(fds[i]) == 0;
	cr_assert_eq(guard_egress_load(guard, &policy), 0);
	for (int i = 0; i < 2; i++)
		passed[i][2] = sends(fds[i]) == 0;
	cr_assert_eq(guard_egress_drop(guard, &policy), 0);
	for (int i = 0; i < 2; i++) {
		passed[i][3] = sends(fds[i]) == 0;
		close(fds[i]);
	}
	tree_leave(&tree);
	what = own(EGRESS_POLICY);
	cr_assert_eq(guard_egress_set(guard, tree.ids[TREE_SLOT0], &what), 0);
	for (int i = 0; i < 2; i++)
		cr_expect(passed[i][0] && !passed[i][1] && passed[i][2] && !passed[i][3],
			  "%s: %d %d %d %d", places[i], passed[i][0], passed[i][1], passed[i][2],
			  passed[i][3]);
}

static int address_learn(const char *address, uint32_t policy, uint64_t until_ns)
{
	const struct guard_ports open = { PORT_SHUT, PORT_SHUT, IPPROTO_TCP, 7, false };
	const struct guard_destination to = destination(address, 32, 7);
	struct guard_learned what = { .range_count = until_ns != 0,
				      .ranges = &open,
				      .until_ns = &until_ns };

	memcpy(what.address, to.address, sizeof(what.address));
	return guard_egress_learn(guard, tree.ids[TREE_SLOT0], policy, &what);
}

static uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One connection that is made while it may be, and used when no new one may. */
static int learned_run(const void *with)
{
	const struct timeval wait = { .tv_sec = 10 };
	struct sockaddr_storage to;
	const socklen_t bytes = address_make(WORLD4, PORT_SHUT, &to);
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	auto_close int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char answer;

	(void)with;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	if (connect(fd, (struct sockaddr *)&to, bytes) < 0)
		return errno;
	if (address_learn(WORLD4, EGRESS_POLICY, monotonic_ns() - 1) < 0)
		return EPROTO;
	if (connect(late, (struct sockaddr *)&to, bytes) == 0 || errno != EPERM)
		return ENOTRECOVERABLE;
	/* The server speaks first; what acknowledges that goes through the last wall. */
	return recv(fd, &answer, 1, 0) == 1 && send(fd, "q", 1, MSG_NOSIGNAL) == 1 ? 0 : errno;
}

Test(egress, an_address_that_was_learned_is_reached_until_its_time_is_over)
{
	const uint64_t later_ns = monotonic_ns() + 60000000000u;

	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_SHUT, SOCK_STREAM, CONNECT), EPERM);
	cr_assert_eq(address_learn(WORLD4, EGRESS_POLICY + 1, later_ns), 0);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_SHUT, SOCK_STREAM, CONNECT), EPERM,
		     "of another policy");
	cr_assert_eq(address_learn(WORLD4, EGRESS_POLICY, later_ns), 0);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_SHUT, SOCK_STREAM, CONNECT), 0);
	cr_expect_eq(attempt(TREE_LEAF, "::ffff:" WORLD4, PORT_SHUT, SOCK_STREAM, CONNECT), 0);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_SHUT, SOCK_DGRAM, SENDTO), EPERM,
		     "not by udp");
	cr_assert_eq(address_learn(OTHER4, EGRESS_POLICY, later_ns), 0);
	cr_expect_eq(attempt(TREE_LEAF, OTHER4, PORT_SHUT, SOCK_STREAM, CONNECT), EPERM, "denied");
	cr_assert_eq(address_learn(CLOUD4, EGRESS_POLICY, later_ns), 0);
	cr_expect_eq(attempt(TREE_LEAF, CLOUD4, PORT_SHUT, SOCK_STREAM, CONNECT), EPERM,
		     "metadata");
	cr_expect_eq(tree_run(&tree, TREE_LEAF, learned_run, NULL), 0);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_SHUT, SOCK_STREAM, CONNECT), EPERM, "over");
	cr_assert_eq(address_learn(WORLD4, EGRESS_POLICY, later_ns), 0);
	cr_assert_eq(address_learn(WORLD4, EGRESS_POLICY, 0), 0);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_SHUT, SOCK_STREAM, CONNECT), EPERM,
		     "forgotten");
	cr_expect_eq(address_learn(WORLD4, EGRESS_POLICY, 0), 0, "fine where there is none");
}

Test(egress, refusals_are_told_passes_counted_packets_the_last_wall_and_policies_whole)
{
	struct guard_egress what = own(EGRESS_POLICY);
	struct sockaddr_storage to;
	const socklen_t bytes = address_make(WORLD4, PORT_SHUT, &to);
	int fd, error;

	what_was_refused_is_told_and_what_passed_is_counted();
	what_is_open_goes_where_the_policy_leads_now();
	cr_assert_eq(guard_egress_clear(guard, tree.ids[TREE_SLOT0]), 0);
	tree_enter(&tree, TREE_SLOT0);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(connect(fd, (struct sockaddr *)&to, bytes), 0);
	cr_expect_eq(sends(fd), 0);
	cr_assert_eq(guard_egress_set(guard, tree.ids[TREE_SLOT0], &what), 0);
	error = sends(fd);
	tree_leave(&tree);
	close(fd);
	cr_expect(error == EPERM || error == EAGAIN, "%s", strerror(error));
	cr_expect_eq(counts_now(TREE_SLOT0).dropped, 1);
	/* A source that is not its own. */
	(void)inet_pton(AF_INET, "198.51.100.3", &what.address4);
	cr_assert_eq(guard_egress_set(guard, tree.ids[TREE_SLOT0], &what), 0);
	cr_expect_neq(attempt(TREE_SLOT0, WORLD4, PORT_OPEN, SOCK_DGRAM, SENDTO), 0);
	cr_expect_eq(counts_now(TREE_SLOT0).dropped, 2, "it goes on counting");
	policy_is_put_and_dropped_whole();
}

/* An engine with the programs of `shared`, too, and which takes another address for own. */
static void engine_run(int ready_fd)
{
	struct guard_options options = tree_options(&tree);
	struct guard_egress what = own(EGRESS_POLICY);
	char why[4096];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (guard_open(&options, why, sizeof(why), &guard) < 0 ||
	    guard_shared_load(guard, why, sizeof(why)) < 0)
		_exit(1);
	egress_policy_load(EGRESS_POLICY);
	(void)inet_pton(AF_INET, "198.51.100.3", &what.address4);
	if (guard_network_set(guard, tree.ids[TREE_SLOT0], true) < 0 ||
	    guard_network_set(guard, tree.ids[TREE_SLOT1], true) < 0 ||
	    guard_egress_set(guard, tree.ids[TREE_SLOT0], &what) < 0 ||
	    write(ready_fd, "r", 1) != 1)
		_exit(1);
	pause();
	_exit(1);
}

static void engine_killed(void)
{
	int ends[2];
	char told;
	pid_t pid;

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	cr_assert(pid >= 0);
	if (pid == 0)
		engine_run(ends[1]);
	close(ends[1]);
	cr_expect_eq(read(ends[0], &told, 1), 1);
	close(ends[0]);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	(void)child_reap(pid);
}

Test(egress, packets_are_counted_once_beside_shared_and_held_without_an_engine)
{
	enum { DATAGRAM_BYTES = 20 + 8 + 1 };
	uint64_t sent_bytes;

	cr_assert_eq(guard_shared_load(guard, NULL, 0), 0);
	expect_all(TREE_LEAF, WORLD4, PORT_OPEN, 0);
	expect_all(TREE_LEAF, WORLD6, PORT_OPEN, 0);
	sent_bytes = counts_now(TREE_SLOT0).sent_bytes;
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_OPEN, SOCK_DGRAM, SENDTO), 0);
	cr_expect_eq(counts_now(TREE_SLOT0).sent_bytes, sent_bytes + DATAGRAM_BYTES);
	cr_expect_eq(tree_run(&tree, TREE_SLOT0, loopback_run, "127.0.0.1"), 0);
	guard_violations_close(stream);
	stream = NULL;
	guard_close(guard);
	guard = NULL;

	engine_killed();
	cr_expect_eq(attempt(TREE_SLOT1, WORLD4, PORT_OPEN, SOCK_DGRAM, SENDTO), 0);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_OPEN, SOCK_DGRAM, SENDTO), EPERM);
	cr_expect_eq(attempt(TREE_LEAF, WORLD6, PORT_OPEN, SOCK_DGRAM, SENDTO), 0);
	cr_expect_eq(guard_sweep(tree.instance, tree.fds[TREE_ROOT]), 0);
	cr_expect_eq(attempt(TREE_LEAF, WORLD4, PORT_OPEN, SOCK_DGRAM, SENDTO), 0);
}
