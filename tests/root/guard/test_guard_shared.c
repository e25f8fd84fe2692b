/*
 * Claims about sandboxes of network `shared`: real processes in a cgroup tree of its own, all in
 * one network namespace of the test's, furnished as an engine furnishes it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "bpf/guard.h"
#include "bpf/guard_flows.h"
#include "bpf/policy.h"
#include "engine/base/cleanup.h"
#include "tests/root/guard/tree.h"

static struct tree tree;
static struct guard *guard;

static void setting_write(const char *path, const char *value)
{
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	cr_assert(fd >= 0 && write(fd, value, strlen(value)) > 0, "%s: %s", path, strerror(errno));
}

static void run(const char *const arguments[])
{
	pid_t pid = fork();
	int status;

	cr_assert(pid >= 0);
	if (pid == 0) {
		execvp(arguments[0], (char *const *)arguments);
		_exit(127);
	}
	status = child_reap(pid);
	cr_assert(WIFEXITED(status) && !WEXITSTATUS(status), "%s %s %s", arguments[0], arguments[1],
		  arguments[2]);
}

static void namespace_furnish(void)
{
	run((const char *const[]){ "ip", "link", "set", "lo", "up", NULL });
	run((const char *const[]){ "ip", "route", "add", "local", "10.64.0.0/10", "dev", "lo",
				   NULL });
	run((const char *const[]){ "ip", "-6", "route", "add", "local", "fd5e:ec::/64", "dev", "lo",
				   NULL });
	setting_write("/proc/sys/net/ipv6/ip_nonlocal_bind", "1");
	setting_write("/proc/sys/net/ipv4/ip_local_port_range", "36000 49999");
	setting_write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
}

static void shared_set(enum tree_place place, uint32_t address, uint32_t ports_max)
{
	const struct guard_shared what = { .address = address,
					   .ports_max = ports_max,
					   .datagrams_max = ports_max,
					   .connections_max = ports_max };

	cr_assert_eq(guard_shared_set(guard, tree.ids[place], &what), 0);
}

static struct guard_shared_counts shared_counts(enum tree_place place)
{
	struct guard_shared_counts counts = {};

	cr_assert_eq(guard_shared_counts(guard, tree.ids[place], &counts), 0);
	return counts;
}

static void setup(void)
{
	struct guard_options options;
	char why[4096];

	cr_assert_eq(unshare(CLONE_NEWNET), 0, "%s", strerror(errno));
	namespace_furnish();
	tree_make(&tree);
	options = tree_options(&tree);
	cr_assert_eq(guard_open(&options, why, sizeof(why), &guard), 0);
	cr_assert_not(guard_capabilities(guard) & GUARD_SHARED);
	cr_assert_eq(guard_shared_load(guard, why, sizeof(why)), 0, "%s", why);
	cr_assert(guard_capabilities(guard) & GUARD_SHARED);
	shared_set(TREE_SLOT0, 3, 512);
	shared_set(TREE_SLOT1, 4, 512);
}

static void teardown(void)
{
	guard_close(guard);
	tree_remove(&tree);
}

TestSuite(shared, .init = setup, .fini = teardown, .timeout = 240);

static pid_t inside_start(enum tree_place place, const char *name, const char *other4,
			  const char *other6)
{
	pid_t pid = tree_fork(&tree, place, 0);

	cr_assert(pid >= 0);
	if (pid == 0) {
		execlp("python3", "python3", "-B", TEST_SCRIPT, name, other4, other6, NULL);
		_exit(127);
	}
	return pid;
}

Test(shared, two_sandboxes_at_once_have_every_loopback_of_their_own_and_nothing_else)
{
	pid_t first = inside_start(TREE_LEAF, "first", "10.64.0.4", "fd5e:ec::4");
	pid_t second = inside_start(TREE_SLOT1, "second", "10.64.0.3", "fd5e:ec::3");
	struct guard_shared_counts counts;

	cr_expect_eq(child_reap(first), 0);
	cr_expect_eq(child_reap(second), 0);
	for (int i = 0; i < 2; i++) {
		counts = shared_counts(i ? TREE_SLOT1 : TREE_SLOT0);
		cr_expect_eq(counts.ports, 0, "%u sockets are still counted", counts.ports);
		cr_expect_gt(counts.refused, 40);
		cr_expect_gt(counts.dropped, 0); /* options */
	}
}

static pid_t servers_start(enum tree_place place, const char *name, const char *folder)
{
	pid_t pid = tree_fork(&tree, place, 0);

	cr_assert(pid >= 0);
	if (pid == 0) {
		execlp("python3", "python3", "-B", SERVERS_SCRIPT, name, folder, NULL);
		_exit(127);
	}
	return pid;
}

Test(shared, nginx_redis_and_node_of_two_sandboxes_have_the_same_ports_and_answer_each_its_own)
{
	char folder[] = "/tmp/dsec-servers.XXXXXX";
	pid_t first, second;

	cr_assert_not_null(mkdtemp(folder));
	first = servers_start(TREE_LEAF, "first", folder);
	second = servers_start(TREE_SLOT1, "second", folder);
	cr_expect_eq(child_reap(first), 0);
	cr_expect_eq(child_reap(second), 0);
	run((const char *const[]){ "rm", "-rf", "--one-file-system", folder, NULL });
	for (int i = 0; i < 2; i++)
		cr_expect_eq(shared_counts(i ? TREE_SLOT1 : TREE_SLOT0).ports, 0);
}

/* What was told of one place of the neighbour's, and one of a cloud's. */
struct told {
	int neighbours, metadata, raws;
};

static void told_take(void *context, const struct policy_violation *v)
{
	struct told *told = context;
	const uint8_t metadata[] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 169, 254, 169, 254 };

	cr_expect(v->cgroup_id == tree.ids[TREE_SLOT0] && v->verdict == POLICY_DENIED);
	if (v->rule == POLICY_RULE_METADATA_ADDRESS && v->hook == POLICY_HOOK_CONNECT &&
	    v->family == 4 && v->port == 80 && v->protocol == IPPROTO_TCP &&
	    !memcmp(v->address, metadata, sizeof(metadata)))
		told->metadata++;
	else if (v->rule == POLICY_RULE_NEIGHBOUR && v->hook == POLICY_HOOK_SOCKET)
		told->raws++;
	else if (v->rule == POLICY_RULE_NEIGHBOUR && v->hook == POLICY_HOOK_SEND && v->family == 6)
		told->neighbours++;
}

static int foreign_try(const void *with)
{
	struct sockaddr_in metadata = { .sin_family = AF_INET, .sin_port = htons(80) };
	struct sockaddr_in6 neighbour = { .sin6_family = AF_INET6, .sin6_port = htons(7000) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)with;
	(void)inet_aton("169.254.169.254", &metadata.sin_addr);
	(void)inet_pton(AF_INET6, "fd5e:ec::4", &neighbour.sin6_addr);
	if (connect(fd, (struct sockaddr *)&metadata, sizeof(metadata)) == 0 || errno != EPERM)
		return 1;
	close(fd);
	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sendto(fd, "x", 1, 0, (struct sockaddr *)&neighbour, sizeof(neighbour)) >= 0)
		return 2;
	close(fd);
	return socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) < 0 && errno == EPERM ? 0 : 3;
}

Test(shared, E55_E57_E59_what_it_tried_to_reach_is_told_with_rule_address_and_port)
{
	struct guard_violations *stream;
	struct told told = {};

	cr_assert_eq(guard_violations_open(guard, 0, &stream), 0);
	cr_expect_eq(tree_run(&tree, TREE_LEAF, foreign_try, NULL), 0);
	while (guard_violations_consume(stream, 16, told_take, &told) == 16)
		;
	cr_expect(told.metadata == 1 && told.neighbours == 1 && told.raws == 1, "%d %d %d",
		  told.metadata, told.neighbours, told.raws);
	cr_expect_eq(shared_counts(TREE_SLOT0).refused, 3);
	guard_violations_close(stream);
}

static struct sockaddr_in address4(const char *text, uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	(void)inet_aton(text, &address.sin_addr); /* the texts are ours */
	return address;
}

/* The errno of connecting to loopback's port. */
static int connect_try(const void *with)
{
	const struct sockaddr_in to = address4("127.0.0.1", *(const uint16_t *)with);
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 ? errno : 0;
}

/* Binds each port there is; how many hundred it got. */
static int ports_take(const void *with)
{
	const int kind = *(const int *)with;
	const struct rlimit files = { 70000, 70000 };
	int taken = 0;

	(void)setrlimit(RLIMIT_NOFILE, &files); /* what is missing is seen below */
	for (int port = 1; port < 65536; port++) {
		const struct sockaddr_in at = address4("127.0.0.1", (uint16_t)port);
		int fd = socket(AF_INET, kind, 0);

		if (fd < 0)
			return 251;
		if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) == 0)
			taken++;
		else
			close(fd);
	}
	if (taken != 512)
		return 250;
	return connect_try(&(const uint16_t){ 9 }); /* it has no port left for itself */
}

Test(shared, a_neighbour_that_binds_every_port_takes_none_of_connects)
{
	const int kinds[] = { SOCK_STREAM, SOCK_DGRAM };

	for (int i = 0; i < 2; i++) {
		cr_expect_eq(tree_run(&tree, TREE_SLOT0, ports_take, &kinds[i]), ENOBUFS);
		cr_expect_eq(tree_run(&tree, TREE_SLOT1, connect_try, &(const uint16_t){ 9 }),
			     ECONNREFUSED);
	}
	cr_expect_eq(shared_counts(TREE_SLOT0).ports, 0);
}

/* Listens without a bind, which no program sees: on every address of the namespace. */
static int listen_unbound(void)
{
	struct sockaddr_in at;
	socklen_t bytes = sizeof(at);
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (listen(fd, 8) < 0 || getsockname(fd, (struct sockaddr *)&at, &bytes) < 0)
		return -1;
	(void)take_fd(&fd); /* the child's, until it ends */
	return ntohs(at.sin_port);
}

static int connect_shortly(uint16_t port)
{
	const struct sockaddr_in to = address4("127.0.0.1", port);
	const struct timeval wait = { .tv_usec = 300000 };
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	return connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 ? errno : 0;
}

static int connect_shortly_try(const void *with)
{
	return connect_shortly(*(const uint16_t *)with);
}

Test(shared, who_listens_without_an_address_hears_no_neighbour)
{
	int ends[2], port = 0;
	pid_t pid;

	cr_assert_eq(pipe(ends), 0);
	pid = tree_fork(&tree, TREE_SLOT0, 0);
	cr_assert(pid >= 0);
	if (pid == 0) {
		port = listen_unbound();
		_exit(write(ends[1], &port, sizeof(port)) == sizeof(port) ? pause() : 1);
	}
	cr_assert_eq(read(ends[0], &port, sizeof(port)), (ssize_t)sizeof(port));
	cr_assert_gt(port, 0);
	cr_expect_eq(tree_run(&tree, TREE_SLOT1, connect_shortly_try,
			      &(uint16_t){ (uint16_t)port }),
		     EINPROGRESS);
	cr_expect_gt(shared_counts(TREE_SLOT0).dropped, 0);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	(void)child_reap(pid);
}

enum { ROOM = 16, ROOM_DATAGRAMS = 8 };

/* Bytes wait at an end that nobody accepted, of a client that is gone. */
static int end_leave(const struct sockaddr_in *to)
{
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0)
		return errno;
	return send(fd, "unread", 6, MSG_NOSIGNAL) == 6 ? 0 : EIO;
}

/* As many as there is room for, then fewer, of each kind; what the last one was told. */
static int room_fill(const void *with)
{
	struct sockaddr_in at = address4("127.0.0.1", 0);
	socklen_t bytes = sizeof(at);
	int fd, r = 0, server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)with;
	if (bind(server, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(server, 64) < 0 ||
	    getsockname(server, (struct sockaddr *)&at, &bytes) < 0)
		return 1;
	for (int i = 0; i < 4 * ROOM && r == 0; i++)
		r = end_leave(&at);
	if (r != ENOBUFS)
		return 2;
	close(server); /* and with it all that nobody accepted */
	for (int i = 0; i < ROOM_DATAGRAMS; i++) {
		fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		at.sin_port = 0;
		if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
			return 3;
	}
	at.sin_port = htons(9);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sendto(fd, "x", 1, 0, (struct sockaddr *)&at, sizeof(at)) >= 0 || errno != ENOBUFS)
		return 4;
	return bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ? errno : 0;
}

static void room_told(void *context, const struct policy_violation *v)
{
	uint32_t *hooks = context;

	cr_expect(v->rule == POLICY_RULE_SOCKETS && v->error == ENOBUFS);
	*hooks |= 1u << v->hook;
}

Test(shared, connections_hold_bytes_until_they_end_and_have_a_cap_that_is_told)
{
	const struct guard_shared what = { 3, 512, ROOM_DATAGRAMS, ROOM, false, false };
	struct guard_violations *stream;
	uint32_t hooks = 0;
	int r;

	cr_assert_eq(guard_shared_set(guard, tree.ids[TREE_SLOT0], &what), 0);
	cr_assert_eq(guard_violations_open(guard, 0, &stream), 0);
	r = tree_run(&tree, TREE_SLOT0, room_fill, NULL);
	cr_expect_eq(r, ENOBUFS, "%d, %u ends", r, shared_counts(TREE_SLOT0).connections);
	while (guard_violations_consume(stream, 16, room_told, &hooks) == 16)
		;
	cr_expect_eq(hooks,
		     1u << POLICY_HOOK_BIND | 1u << POLICY_HOOK_CONNECT | 1u << POLICY_HOOK_SEND);
	for (int i = 0; i < 500 && shared_counts(TREE_SLOT0).connections; i++)
		usleep(10000); /* what the kernel still sends */
	cr_expect_eq(shared_counts(TREE_SLOT0).connections, 0);
	cr_expect_eq(shared_counts(TREE_SLOT0).datagrams, 0);
	cr_expect_eq(tree_run(&tree, TREE_SLOT0, connect_try, &(const uint16_t){ 9 }),
		     ECONNREFUSED);
	cr_expect_eq(shared_counts(TREE_SLOT0).connections, 0);
	cr_expect_eq(shared_counts(TREE_SLOT1).connections, 0);
	guard_violations_close(stream);
}

/* Its connection, and what listens with an address and without; and how to ask of it. */
struct talker {
	int ready[2], go[2];
	pid_t pid;
};

static bool is_over(int fd)
{
	return accept(fd, NULL, NULL) < 0 && errno == EINVAL;
}

/* 0: all of it was cut; 1: none; else some. */
static int talk(const struct talker *talker)
{
	struct sockaddr_in at = address4("127.0.0.1", 0);
	int server = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), over;
	int unbound = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), client, accepted;
	socklen_t bytes = sizeof(at);
	char byte = 'x';

	if (bind(server, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(server, 8) < 0 ||
	    getsockname(server, (struct sockaddr *)&at, &bytes) < 0 || listen(unbound, 8) < 0)
		return 10;
	client = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(client, (struct sockaddr *)&at, sizeof(at)) < 0)
		return 11;
	accepted = accept(server, NULL, NULL);
	if (accepted < 0 || write(talker->ready[1], &byte, 1) != 1 ||
	    read(talker->go[0], &byte, 1) != 1)
		return 12;
	over = is_over(server) + is_over(unbound);
	over += send(client, &byte, 1, MSG_NOSIGNAL) < 0;
	over += send(accepted, &byte, 1, MSG_NOSIGNAL) < 0;
	return over == 4 ? 0 : over == 0 ? 1 : 20 + over;
}

static void talker_start(struct talker *talker, enum tree_place place)
{
	char byte;

	cr_assert(pipe(talker->ready) == 0 && pipe(talker->go) == 0);
	talker->pid = tree_fork(&tree, place, 0);
	cr_assert(talker->pid >= 0);
	if (talker->pid == 0) {
		alarm(60); /* should the test end before it */
		_exit(talk(talker));
	}
	close(talker->ready[1]);
	cr_assert_eq(read(talker->ready[0], &byte, 1), 1);
}

static int talker_end(const struct talker *talker)
{
	int status;

	cr_assert_eq(write(talker->go[1], "x", 1), 1);
	status = child_reap(talker->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(shared, flows_are_cut_of_one_whether_they_have_an_address_or_not)
{
	auto_close int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	const struct guard_flows flows = { fd, 3, tree.ids[TREE_SLOT0] };
	struct talker talkers[2];
	uint32_t count = 0;
	int r;

	talker_start(&talkers[0], TREE_LEAF);
	talker_start(&talkers[1], TREE_SLOT1);
	r = guard_flows_cut(&flows, &count);
	if (r == -EOPNOTSUPP) {
		(void)talker_end(&talkers[0]); /* whatever it says */
		(void)talker_end(&talkers[1]);
		teardown(); /* a skip ends the test without it */
		cr_skip("this kernel ends no sockets by iterators");
	}
	cr_expect_eq(r, 0);
	/* The reset of one end may end the other. */
	cr_expect(count == 3 || count == 4, "%u", count);
	cr_expect_eq(talker_end(&talkers[0]), 0);
	cr_expect_eq(talker_end(&talkers[1]), 1, "a neighbour's were cut");
}

/* The errno of sending a packet that no sandbox of `shared` may send: it has options. */
static int options_send(const void *with)
{
	const struct sockaddr_in to = address4("127.0.0.1", 9);
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)with;
	if (setsockopt(fd, IPPROTO_IP, IP_OPTIONS, "\1\1\1", 4) < 0)
		return 254;
	return sendto(fd, "x", 1, 0, (const struct sockaddr *)&to, sizeof(to)) < 0 ? errno : 0;
}

static void expect_held(enum tree_place place)
{
	const uint16_t port = 9;

	cr_expect_eq(tree_run(&tree, place, options_send, NULL), EPERM);
	cr_expect_eq(tree_run(&tree, place, connect_try, &port), ECONNREFUSED, "it has no itself");
}

Test(shared, packets_are_held_of_who_was_private_before_and_of_who_is_looked_up_where_another_is)
{
	enum { FURTHER = 1 << 16 }; /* the same lower half */

	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT2], true), 0);
	cr_expect_eq(tree_run(&tree, TREE_SLOT2, options_send, NULL), 0);
	shared_set(TREE_SLOT2, 3 + FURTHER, 512);
	expect_held(TREE_SLOT2);
	expect_held(TREE_SLOT0);
	shared_set(TREE_SLOT2, 5, 512);
	expect_held(TREE_SLOT2);
	cr_expect_eq(shared_counts(TREE_SLOT2).dropped, 1);
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT2], true), 0);
	cr_expect_eq(tree_run(&tree, TREE_SLOT2, options_send, NULL), 0);
	shared_set(TREE_SLOT2, 5 + FURTHER, 512);
	expect_held(TREE_SLOT2);
	expect_held(TREE_SLOT0);
}

/* A socket that was made in a sandbox and ends in another does not count for that. */
static int socket_give(const void *with)
{
	const struct sockaddr_in any = { .sin_family = AF_INET };

	return bind(*(const int *)with, (const struct sockaddr *)&any, sizeof(any)) < 0 ? errno : 0;
}

Test(shared, a_port_is_counted_where_it_was_taken_and_until_its_socket_ends)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert(fd >= 0);
	/* Made outside: no program of the instance follows it. */
	cr_expect_eq(tree_run(&tree, TREE_SLOT0, socket_give, &fd), 0);
	cr_expect_eq(shared_counts(TREE_SLOT0).ports, 0);
	close(fd);

	tree_enter(&tree, TREE_SLOT0);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(socket_give(&fd), 0);
	tree_leave(&tree);
	cr_expect_eq(shared_counts(TREE_SLOT0).ports, 1);
	shared_set(TREE_SLOT0, 3,
		   512); /* the cgroup's next sandbox: it has nothing of the last's */
	cr_expect_eq(shared_counts(TREE_SLOT0).ports, 0);
	close(fd);
	cr_expect_eq(shared_counts(TREE_SLOT0).ports, 0);
}

Test(shared, it_ends_with_network_set_and_is_refused_when_wrong)
{
	const struct guard_shared wrong[] = {
		{ 0, 1, 1, 1, false, false }, { GUARD_SHARED_ADDRESSES, 1, 1, 1, false, false },
		{ 1, 0, 1, 1, false, false }, { 1, 1, 0, 1, false, false },
		{ 1, 1, 1, 0, true, true },
	};
	struct guard_shared_counts counts;

	for (int i = 0; i < 5; i++)
		cr_expect_eq(guard_shared_set(guard, tree.ids[TREE_SLOT2], &wrong[i]), -EINVAL);
	cr_expect_eq(tree_run(&tree, TREE_SLOT2, connect_try, &(const uint16_t){ 9 }), EBADF,
		     "a sandbox that was refused has sockets");
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT0], true), 0);
	cr_expect_eq(guard_shared_counts(guard, tree.ids[TREE_SLOT0], &counts), -ENOENT);
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT1], false), 0);
	cr_expect_eq(guard_shared_counts(guard, tree.ids[TREE_SLOT1], &counts), -ENOENT);
}
