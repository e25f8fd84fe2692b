/*
 * Claims about where sandboxes with a way out get: real processes in a cgroup tree of its own, in
 * a network namespace of the test's, and behind a veth pair another one that plays the world and
 * answers on every address of its.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "bpf/guard.h"
#include "bpf/guard_policy.h"
#include "bpf/policy.h"
#include "engine/base/cleanup.h"
#include "tests/root/guard/tree.h"

#define OWN4   "198.51.100.2"
#define OWN6   "2001:db8::2"
#define WORLD4 "203.0.113.10"
#define OTHER4 "203.0.113.20"
#define WORLD6 "2001:db8:1::10"
#define OTHER6 "2001:db8:1::20"
#define CLOUD4 "169.254.169.254"
#define CLOUD6 "fd00:ec2::254"

enum { POLICY = 7, ANSWER_MS = 3000, SILENCE_MS = 300 };
enum { PORT_OPEN = 80, PORT_SHUT = 81, PORT_DNS = 53, PORT_QUIC = 443 };

static struct tree tree;
static struct guard *guard;
static struct guard_violations *stream;
static pid_t world;

/* ---- the world ---- */

static const uint16_t ports[] = { PORT_OPEN, PORT_SHUT, PORT_DNS, PORT_QUIC };

enum { PORTS = sizeof(ports) / sizeof(*ports) };

static void shell(const char *script)
{
	cr_assert_eq(system(script), 0, "%s", script);
}

/* One for both families. */
static int server_open(int type, uint16_t port)
{
	const struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	const int on = 1;
	int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0);

	(void)setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
	if (bind(fd, (const struct sockaddr *)&any, sizeof(any)) < 0 ||
	    (type == SOCK_STREAM && listen(fd, 64) < 0))
		_exit(1);
	return fd;
}

/* A datagram is answered from the address that it was sent to. */
static void server_answer(int fd, bool is_stream)
{
	struct sockaddr_in6 from;
	char text[64], control[256];
	struct iovec piece = { text, sizeof(text) };
	struct msghdr message = { .msg_name = &from,
				  .msg_namelen = sizeof(from),
				  .msg_iov = &piece,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof(control) };

	if (is_stream) {
		int client = accept(fd, NULL, NULL);

		(void)!write(client, "a", 1); /* who connected sees what comes */
		close(client);
	} else if (recvmsg(fd, &message, 0) > 0) {
		piece.iov_len = 1;
		(void)sendmsg(fd, &message, 0); /* who asked sees what comes */
	}
}

static void world_run(int ready_fd)
{
	struct pollfd polls[2 * PORTS];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (unshare(CLONE_NEWNET) < 0)
		_exit(1);
	for (int i = 0; i < 2 * PORTS; i++)
		polls[i] = (struct pollfd){
			.fd = server_open(i % 2 ? SOCK_DGRAM : SOCK_STREAM, ports[i / 2]),
			.events = POLLIN,
		};
	if (write(ready_fd, "r", 1) != 1)
		_exit(1);
	while (poll(polls, 2 * PORTS, -1) > 0)
		for (int i = 0; i < 2 * PORTS; i++)
			if (polls[i].revents)
				server_answer(polls[i].fd, i % 2 == 0);
	_exit(1);
}

static void world_make(void)
{
	char script[1024], told;
	int ends[2];
	pid_t pid;

	cr_assert_eq(unshare(CLONE_NEWNET), 0, "%s", strerror(errno));
	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	cr_assert(pid >= 0);
	if (pid == 0)
		world_run(ends[1]);
	world = pid;
	close(ends[1]);
	cr_assert_eq(read(ends[0], &told, 1), 1);
	close(ends[0]);
	(void)snprintf(script, sizeof(script),
		       "set -e; ip link set lo up\n"
		       "ip link add eth0 type veth peer name in0 netns %d\n"
		       "ip addr add " OWN4 "/24 dev eth0\n"
		       "ip addr add " OWN6 "/64 dev eth0 nodad; ip link set eth0 up\n"
		       "nsenter -t %d -n sh -ec 'ip link set lo up\n"
		       "ip addr add 198.51.100.1/24 dev in0\n"
		       "ip addr add 2001:db8::1/64 dev in0 nodad; ip link set in0 up\n"
		       "for a in " WORLD4 " " OTHER4 " " CLOUD4 " 100.100.100.200 192.0.0.192; do\n"
		       "ip addr add $a/32 dev lo; done\n"
		       "for a in " WORLD6 " " OTHER6 " " CLOUD6 " 64:ff9b::a9fe:a9fe; do\n"
		       "ip addr add $a/128 dev lo nodad; done'\n"
		       "ip route add default via 198.51.100.1\n"
		       "ip -6 route add default via 2001:db8::1\n",
		       pid, pid);
	shell(script);
}

/* ---- the policy ---- */

static struct guard_destination destination(const char *address, unsigned prefix_bits,
					    uint32_t rule)
{
	struct guard_destination to = { .prefix_bits = (uint8_t)prefix_bits, .rule = rule };

	if (strchr(address, ':')) {
		cr_assert_eq(inet_pton(AF_INET6, address, to.address), 1);
	} else {
		to.prefix_bits = (uint8_t)(prefix_bits + 96);
		to.address[10] = to.address[11] = 0xff;
		cr_assert_eq(inet_pton(AF_INET, address, to.address + 12), 1);
	}
	return to;
}

static struct guard_destination allowed(const char *address, unsigned prefix_bits, uint32_t rule)
{
	struct guard_destination to = destination(address, prefix_bits, rule);

	to.ports[to.port_count++] = (struct guard_ports){ 1, 80, IPPROTO_TCP, (uint16_t)rule };
	to.ports[to.port_count++] = (struct guard_ports){ 1, 80, IPPROTO_UDP, (uint16_t)rule };
	return to;
}

/* Everything but one place of each family; QUIC nowhere. */
static void policy_load(uint32_t number)
{
	const struct guard_destination all[] = {
		allowed("0.0.0.0", 0, 1),
		allowed("::", 0, 2),
		destination(OTHER4, 32, 3),
		destination(OTHER6, 128, 4),
	};
	const struct guard_policy policy = {
		.number = number, .has_egress = true, .destination_count = 4, .destinations = all
	};

	cr_assert_eq(guard_egress_load(guard, &policy), 0);
}

static struct guard_egress own(uint32_t policy)
{
	struct guard_egress what = { .policy = policy };

	(void)inet_pton(AF_INET, OWN4, &what.address4);
	(void)inet_pton(AF_INET6, OWN6, what.address6);
	return what;
}

static void setup(void)
{
	struct guard_options options;
	struct guard_egress what = own(POLICY);
	char why[4096];

	world_make();
	tree_make(&tree);
	options = tree_options(&tree);
	cr_assert_eq(guard_open(&options, why, sizeof(why), &guard), 0);
	cr_assert(guard_capabilities(guard) & GUARD_EGRESS, "%s", why);
	cr_assert_eq(guard_violations_open(guard, 0, &stream), 0);
	policy_load(POLICY);
	for (int i = TREE_SLOT0; i <= TREE_SLOT2; i++)
		cr_assert_eq(guard_network_set(guard, tree.ids[i], true), 0);
	cr_assert_eq(guard_egress_set(guard, tree.ids[TREE_SLOT0], &what), 0);
}

static void teardown(void)
{
	guard_violations_close(stream);
	guard_close(guard);
	cr_assert_eq(kill(world, SIGKILL), 0);
	(void)child_reap(world);
	tree_remove(&tree);
}

TestSuite(egress, .init = setup, .fini = teardown, .timeout = 60);

/* ---- attempts ---- */

enum how { CONNECT, SENDTO, FASTOPEN };

struct attempt {
	const char *address;
	uint16_t port;
	int type;
	enum how how;
	bool is_silent; /* nothing is to answer: it is not waited for long */
};

/* IPv4 may be asked through an IPv6 socket. */
static socklen_t address_make(const char *text, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof(*ret));
	if (!strchr(text, ':')) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		(void)inet_pton(AF_INET, text, &v4->sin_addr);
		return sizeof(*v4);
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(port);
	(void)inet_pton(AF_INET6, text, &v6->sin6_addr);
	return sizeof(*v6);
}

/* 0: it was answered; else the errno that it got. */
static int attempt_run(const void *with)
{
	const struct attempt *try = with;
	const int wait_ms = try->is_silent ? SILENCE_MS : ANSWER_MS;
	const struct timeval wait = { .tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000 };
	struct sockaddr_storage to;
	const socklen_t bytes = address_make(try->address, try->port, &to);
	auto_close int fd = socket(to.ss_family, try->type | SOCK_CLOEXEC, 0);
	char answer;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	if (try->how == CONNECT && connect(fd, (struct sockaddr *)&to, bytes) < 0)
		return errno;
	if (try->how == CONNECT && try->type == SOCK_DGRAM && send(fd, "q", 1, 0) < 0)
		return errno;
	if (try->how == SENDTO && sendto(fd, "q", 1, 0, (struct sockaddr *)&to, bytes) < 0)
		return errno;
	if (try->how == FASTOPEN &&
	    sendto(fd, "q", 1, MSG_FASTOPEN, (struct sockaddr *)&to, bytes) < 0)
		return errno;
	return recv(fd, &answer, 1, 0) == 1 ? 0 : errno ? errno : EPROTO;
}

static int attempt(enum tree_place place, const char *address, uint16_t port, int type,
		   enum how how)
{
	const struct attempt try = { address, port, type, how, false };

	return tree_run(&tree, place, attempt_run, &try);
}

/* By connect of both protocols and by sendto. */
static void expect_all(enum tree_place place, const char *address, uint16_t port, int error)
{
	cr_expect_eq(attempt(place, address, port, SOCK_STREAM, CONNECT), error, "tcp %s %u",
		     address, port);
	cr_expect_eq(attempt(place, address, port, SOCK_DGRAM, CONNECT), error, "udp %s %u",
		     address, port);
	cr_expect_eq(attempt(place, address, port, SOCK_DGRAM, SENDTO), error, "sendto %s %u",
		     address, port);
}

static struct guard_egress_counts counts_now(enum tree_place place)
{
	struct guard_egress_counts counts = {};

	cr_assert_eq(guard_egress_counts(guard, tree.ids[place], &counts), 0);
	return counts;
}

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
	struct guard_egress what = own(POLICY);
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
	cr_expect(v->error == EPERM && v->policy == POLICY);
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
	struct guard_egress_flow flows[8];
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
	cr_expect_eq(guard_egress_flows(guard, tree.ids[TREE_SLOT0], flows, 8), 0);
	expect_all(TREE_LEAF, WORLD4, PORT_OPEN, 0);
	expect_all(TREE_LEAF, WORLD6, PORT_OPEN, 0);
	count = guard_egress_flows(guard, tree.ids[TREE_SLOT0], flows, 8);
	cr_assert_eq(count, 4, "two addresses, two protocols: %d", count);
	for (int i = 0; i < count; i++) {
		cr_expect_eq(flows[i].port, PORT_OPEN);
		cr_expect_eq(flows[i].rule, flows[i].address[0] ? 2 : 1);
		cr_expect(flows[i].protocol == IPPROTO_TCP ? flows[i].packets >= 3 :
							     flows[i].packets == 2);
		bytes += flows[i].bytes;
	}
	counts = counts_now(TREE_SLOT0);
	cr_expect_eq(counts.sent_bytes, bytes);
	cr_expect_eq(guard_egress_flows(guard, tree.ids[TREE_SLOT1], flows, 8), 0);
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
	struct guard_policy policy = { .number = POLICY + 1,
				       .has_egress = true,
				       .destination_count = 2,
				       .destinations = wrong };
	struct guard_egress what = own(POLICY + 1);
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

Test(egress, refusals_are_told_passes_counted_packets_the_last_wall_and_policies_whole)
{
	struct guard_egress what = own(POLICY);
	struct sockaddr_storage to;
	const socklen_t bytes = address_make(WORLD4, PORT_SHUT, &to);
	int fd, error;

	what_was_refused_is_told_and_what_passed_is_counted();
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
	cr_expect_eq(counts_now(TREE_SLOT0).dropped, 1);
	policy_is_put_and_dropped_whole();
}
