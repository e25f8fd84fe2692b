/*
 * Sets up what egress_scene.h says, and takes it away. Called by the tests of egress, one process
 * each. Must hold: nothing of it is left when a test ends.
 */
#include "tests/root/guard/egress_scene.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "engine/base/cleanup.h"

enum { ANSWER_MS = 30000 };

struct tree tree;
struct guard *guard;
struct guard_violations *stream;
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

struct guard_destination destination(const char *address, unsigned prefix_bits, uint32_t rule)
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

struct guard_destination allowed(const char *address, unsigned prefix_bits, uint32_t rule)
{
	struct guard_destination to = destination(address, prefix_bits, rule);

	to.ports[to.port_count++] =
		(struct guard_ports){ 1, 80, IPPROTO_TCP, (uint16_t)rule, false };
	to.ports[to.port_count++] =
		(struct guard_ports){ 1, 80, IPPROTO_UDP, (uint16_t)rule, false };
	return to;
}

/* Everything but one place of each family; QUIC nowhere. */
void egress_policy_load(uint32_t number)
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

struct guard_egress own(uint32_t policy)
{
	struct guard_egress what = { .policy = policy };

	(void)inet_pton(AF_INET, OWN4, &what.address4);
	(void)inet_pton(AF_INET6, OWN6, what.address6);
	return what;
}

void egress_setup(void)
{
	struct guard_options options;
	struct guard_egress what = own(EGRESS_POLICY);
	char why[4096];

	world_make();
	tree_make(&tree);
	options = tree_options(&tree);
	cr_assert_eq(guard_open(&options, why, sizeof(why), &guard), 0);
	cr_assert(guard_capabilities(guard) & GUARD_EGRESS, "%s", why);
	cr_assert_eq(guard_violations_open(guard, 0, &stream), 0);
	egress_policy_load(EGRESS_POLICY);
	for (int i = TREE_SLOT0; i <= TREE_SLOT2; i++)
		cr_assert_eq(guard_network_set(guard, tree.ids[i], true), 0);
	cr_assert_eq(guard_egress_set(guard, tree.ids[TREE_SLOT0], &what), 0);
}

void egress_teardown(void)
{
	guard_violations_close(stream);
	guard_close(guard);
	cr_assert_eq(kill(world, SIGKILL), 0);
	(void)child_reap(world);
	tree_remove(&tree);
}

/* ---- attempts ---- */

/* IPv4 may be asked through an IPv6 socket. */
socklen_t address_make(const char *text, uint16_t port, struct sockaddr_storage *ret)
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
int attempt_run(const void *with)
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

int attempt(enum tree_place place, const char *address, uint16_t port, int type, enum how how)
{
	const struct attempt try = { address, port, type, how, false };

	return tree_run(&tree, place, attempt_run, &try);
}

/* By connect of both protocols and by sendto. */
void expect_all(enum tree_place place, const char *address, uint16_t port, int error)
{
	cr_expect_eq(attempt(place, address, port, SOCK_STREAM, CONNECT), error, "tcp %s %u",
		     address, port);
	cr_expect_eq(attempt(place, address, port, SOCK_DGRAM, CONNECT), error, "udp %s %u",
		     address, port);
	cr_expect_eq(attempt(place, address, port, SOCK_DGRAM, SENDTO), error, "sendto %s %u",
		     address, port);
}

struct guard_egress_counts counts_now(enum tree_place place)
{
	struct guard_egress_counts counts = {};

	cr_assert_eq(guard_egress_counts(guard, tree.ids[place], &counts), 0);
	return counts;
}
