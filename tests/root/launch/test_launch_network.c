/*
 * The proof that a network namespace is as nobody has used it, against every way of using it, and
 * what a look and a connection from outside find. What a sandbox cannot do is done by the host's
 * root instead: the proof must not depend on what sandboxes are kept from.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/in6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/launch/harness.h"

enum { PORT = 80, LABEL_MANAGER = 32 /* IPV6_FLOWLABEL_MGR */ };

static bool ask(struct harness *h, uint32_t op, uint32_t *ret_flags)
{
	struct launch_reply reply = harness_op(h, op, 0);

	*ret_flags = reply.flags;
	return expect(reply.error == 0);
}

/* ---- ways to use one; each runs in the namespace and keeps what it opened ---- */

static int udp(int family)
{
	return socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static bool socket_held(void)
{
	return udp(AF_INET) >= 0;
}

static bool netlink_held(void)
{
	return socket(AF_NETLINK, SOCK_RAW, 0) >= 0;
}

static bool abstract_name_held(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "\0taken" };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	return bind(fd, (struct sockaddr *)&name, sizeof name) == 0 && listen(fd, 1) == 0;
}

static bool multicast_held(void)
{
	const struct ip_mreqn group = { .imr_multiaddr.s_addr = inet_addr("239.1.2.3"),
					.imr_ifindex = 1 };

	return setsockopt(udp(AF_INET), IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) == 0;
}

static bool datagram_sent(int family)
{
	const struct sockaddr_in four = { .sin_family = AF_INET,
					  .sin_port = htons(9),
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 4) };
	const struct sockaddr_in6 six = { .sin6_family = AF_INET6,
					  .sin6_port = htons(9),
					  .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = udp(family);
	ssize_t sent = family == AF_INET ?
			       sendto(fd, "x", 1, 0, (const struct sockaddr *)&four, sizeof four) :
			       sendto(fd, "x", 1, 0, (const struct sockaddr *)&six, sizeof six);

	return close(fd) == 0 && sent == 1;
}

static bool datagram4_sent(void)
{
	return datagram_sent(AF_INET);
}

static bool datagram6_sent(void)
{
	return datagram_sent(AF_INET6);
}

static bool connection_in_time_wait(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons(PORT),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	int accepted;

	if (bind(server, (struct sockaddr *)&address, sizeof address) < 0 ||
	    listen(server, 1) < 0 || connect(client, (struct sockaddr *)&address, sizeof address))
		return false;
	accepted = accept(server, NULL, NULL);
	return close(client) == 0 && read(accepted, &(char){ 0 }, 1) == 0 && close(accepted) == 0 &&
	       close(server) == 0;
}

static bool flow_label_lingers(void)
{
	struct in6_flowlabel_req request = { .flr_label = htonl(0x12345),
					     .flr_action = IPV6_FL_A_GET,
					     .flr_share = IPV6_FL_S_EXCL,
					     .flr_flags = IPV6_FL_F_CREATE,
					     .flr_linger = 6 };
	int fd = udp(AF_INET6);

	request.flr_dst = (struct in6_addr)IN6ADDR_LOOPBACK_INIT;
	return setsockopt(fd, IPPROTO_IPV6, LABEL_MANAGER, &request, sizeof request) == 0 &&
	       close(fd) == 0;
}

static bool fragment_waits(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct {
		struct iphdr ip;
		char rest[16];
	} packet = { .ip = { .version = 4, .ihl = 5, .ttl = 9, .protocol = IPPROTO_UDP } };
	int fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);

	packet.ip.frag_off = htons(0x2000); /* more follow */
	packet.ip.daddr = packet.ip.saddr = to.sin_addr.s_addr;
	packet.ip.tot_len = htons(sizeof packet);
	return sendto(fd, &packet, sizeof packet, 0, (struct sockaddr *)&to, sizeof to) ==
		       sizeof packet &&
	       close(fd) == 0;
}

static bool run(const char *command)
{
	int status = system(command);

	if (status)
		note("status %x: %s", (unsigned)status, command);
	return status == 0;
}

static bool address4_added(void)
{
	return run("ip addr add 10.1.2.3/24 dev lo");
}

static bool address6_added(void)
{
	return run("ip -6 addr add fd00::5/64 dev lo nodad");
}

static bool route_added(void)
{
	return run("ip route add 10.9.0.0/16 dev lo");
}

static bool route6_added(void)
{
	return run("ip -6 route add fd09::/64 dev lo");
}

static bool neighbour4_added(void)
{
	return run("ip neigh add 127.9.9.9 lladdr 02:00:00:00:00:01 dev lo nud permanent");
}

static bool neighbour6_added(void)
{
	return run("ip -6 neigh add fe80::9 lladdr 02:00:00:00:00:01 dev lo nud permanent");
}

static bool device_added(void)
{
	return run("ip link add ds0 type veth peer name ds1");
}

static bool loopback_down(void)
{
	return run("ip link set lo down");
}

static bool setting_changed(void)
{
	return run("sysctl -qw net.ipv4.ip_forward=1");
}

static bool port_range_changed(void)
{
	return run("sysctl -qw net.ipv4.ip_local_port_range='2000 3000'");
}

static bool nothing(void)
{
	return true;
}

static bool socket_closed(void)
{
	return close(udp(AF_INET6)) == 0 && close(socket(AF_UNIX, SOCK_STREAM, 0)) == 0;
}

struct way {
	const char *name;
	bool (*use)(void);
	bool is_held; /* as long as its user lives */
	bool stays_clean;
};

#define WAY(name_, ...)                                                                            \
	{                                                                                          \
		.name = #name_, .use = name_, __VA_ARGS__                                          \
	}

static const struct way ways[] = {
	WAY(nothing, .stays_clean = true),
	WAY(socket_closed, .stays_clean = true),
	WAY(socket_held, .is_held = true, .stays_clean = true),
	WAY(netlink_held, .is_held = true, .stays_clean = true),
	WAY(abstract_name_held, .is_held = true, .stays_clean = true),
	WAY(multicast_held, .is_held = true),
	WAY(datagram4_sent),
	WAY(datagram6_sent),
	WAY(connection_in_time_wait),
	WAY(flow_label_lingers),
	WAY(fragment_waits),
	WAY(address4_added),
	WAY(address6_added),
	WAY(route_added),
	WAY(route6_added),
	WAY(neighbour4_added),
	WAY(neighbour6_added),
	WAY(device_added),
	WAY(loopback_down),
	WAY(setting_changed),
	WAY(port_range_changed),
};

/* A stray: it entered the namespace, used it, and stays until it is killed. */
static pid_t stray_start(struct harness *h, bool (*use)(void))
{
	int ends[2];
	char told = 0;
	pid_t pid;

	if (!expect(pipe2(ends, O_CLOEXEC) == 0))
		return -1;
	pid = fork();
	if (pid == 0) {
		int ns = openat(h->vault.root_fd, "nets/0", O_RDONLY | O_CLOEXEC);

		if (setns(ns, CLONE_NEWNET) == 0 && use() && write(ends[1], "u", 1) == 1)
			for (;;)
				(void)pause(); /* for SIGKILL */
		_exit(1);
	}
	(void)close(ends[1]); /* the stray's */
	expect(read(ends[0], &told, 1) == 1);
	(void)close(ends[0]); /* read */
	return pid;
}

static void stray_end(pid_t pid)
{
	if (pid <= 0)
		return;
	(void)kill(pid, SIGKILL); /* not reaped yet */
	(void)child_reap(pid);
}

/* Asked again while freed sockets still count: some kernels free lazily, every 10 s. */
static uint32_t verdict(struct harness *h)
{
	uint32_t flags = LAUNCH_BUSY;

	sleep_ms(50); /* as the pool does: what the kernel sends by itself comes a little later */
	for (int i = 0; i < 3000 && flags & LAUNCH_BUSY; i++) {
		if (i)
			sleep_ms(5);
		if (!ask(h, LAUNCH_NETWORK_PROVE, &flags))
			return 0;
	}
	return flags;
}

static void every_use_shows_as_long_as_it_lasts(struct harness *h)
{
	uint32_t flags;

	for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
		const struct way *way = &ways[i];
		pid_t stray;

		if (!ask(h, LAUNCH_NETWORK_MAKE, &flags))
			return;
		stray = stray_start(h, way->use);
		if (way->is_held && ask(h, LAUNCH_NETWORK_PROVE, &flags) &&
		    /* What leaves more than a socket may show that already. */
		    !expect(flags == LAUNCH_BUSY || (!way->stays_clean && flags == 0)))
			note("%s: %x while it is held", way->name, flags);
		stray_end(stray);
		flags = verdict(h);
		if (!expect(flags == (way->stays_clean ? LAUNCH_CLEAN : 0u)))
			note("%s: %x afterwards", way->name, flags);
		expect(ask(h, LAUNCH_NETWORK_DROP, &flags));
	}
}

static void one_that_was_made_by_another_worker_is_known_as_well(struct harness *h)
{
	struct launch_request request = harness_request(h, LAUNCH_NETWORK_MAKE, 0);
	uint32_t flags;

	for (unsigned i = 0; i < 8; i++) {
		request.op = LAUNCH_NETWORK_MAKE;
		expect(harness_ask(h, i & 1, &request, NULL).error == 0);
		request.op = LAUNCH_NETWORK_PROVE;
		expect(harness_ask(h, i & 2 ? 1 : 0, &request, NULL).flags == LAUNCH_CLEAN);
		expect(ask(h, LAUNCH_NETWORK_DROP, &flags));
	}
}

static void
a_sandbox_that_opened_nothing_leaves_it_clean_and_one_that_connected_not(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD | LAUNCH_PRIVATE);
	struct stat first, second;
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", box.pid);
	expect(stat(path, &first) == 0);
	expect(probe(h, &box, "exit", "0"));
	box_stop(&box);
	expect(verdict(h) == LAUNCH_CLEAN);
	box = box_start(h, 0, LAUNCH_PRIVATE);
	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", box.pid);
	expect(stat(path, &second) == 0 && first.st_ino == second.st_ino);
	expect(probe(h, &box, "loopback", "up")); /* its connection ends in TIME_WAIT */
	box_stop(&box);
	expect(verdict(h) == 0);
	box_end(h, &box);
}

/* ---- ports ---- */

static bool listens(int family, const void *address, socklen_t bytes, bool both)
{
	const int only = !both;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only) < 0)
		return false;
	return bind(fd, address, bytes) == 0 && listen(fd, 4) == 0;
}

static bool listens_on_4(void)
{
	const struct sockaddr_in at = { .sin_family = AF_INET,
					.sin_port = htons(PORT),
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	return listens(AF_INET, &at, sizeof at, false);
}

static bool listens_on_4_wild(void)
{
	const struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	return listens(AF_INET, &at, sizeof at, false);
}

static bool listens_on_6(void)
{
	const struct sockaddr_in6 at = { .sin6_family = AF_INET6,
					 .sin6_port = htons(PORT),
					 .sin6_addr = IN6ADDR_LOOPBACK_INIT };

	return listens(AF_INET6, &at, sizeof at, false);
}

static bool listens_on_6_wild(void)
{
	const struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };

	return listens(AF_INET6, &at, sizeof at, false);
}

static bool listens_on_both(void)
{
	const struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };

	return listens(AF_INET6, &at, sizeof at, true);
}

static bool listens_elsewhere(void)
{
	const struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(PORT + 1) };

	return listens(AF_INET, &at, sizeof at, false);
}

static void listeners_are_found_on_either_loopback(struct harness *h)
{
	static const struct {
		bool (*use)(void);
		int error;
		uint32_t flags;
	} cases[] = {
		{ listens_on_4, 0, 0 },
		{ listens_on_4_wild, 0, 0 },
		{ listens_on_6, 0, LAUNCH_IPV6 },
		{ listens_on_6_wild, 0, LAUNCH_IPV6 },
		{ listens_on_both, 0, 0 },
		{ listens_elsewhere, ECONNREFUSED, 0 },
		{ connection_in_time_wait, ECONNREFUSED, 0 },
	};
	struct launch_request request = harness_request(h, LAUNCH_PORT_LOOK, 0);
	uint32_t flags;

	request.port = PORT;
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		pid_t stray;

		expect(ask(h, LAUNCH_NETWORK_MAKE, &flags));
		stray = stray_start(h, cases[i].use);
		for (request.op = LAUNCH_PORT_LOOK; request.op <= LAUNCH_PORT_CONNECT;
		     request.op++) {
			struct launch_reply reply = harness_ask(h, 0, &request, NULL);

			if (!expect(reply.error == cases[i].error) ||
			    !expect(reply.flags == cases[i].flags) ||
			    !expect(reply.descriptor_count ==
				    (request.op == LAUNCH_PORT_CONNECT && !reply.error)))
				note("case %u op %u: %s at %s", i, request.op,
				     strerror(reply.error), launch_step_name(reply.step));
		}
		stray_end(stray);
		expect(ask(h, LAUNCH_NETWORK_DROP, &flags));
	}
}

static void impossible_ports_are_refused(struct harness *h)
{
	struct launch_request request = harness_request(h, LAUNCH_PORT_LOOK, 0);

	expect(harness_ask(h, 0, &request, NULL).error == EINVAL);
	request.port = 65536;
	expect(harness_ask(h, 0, &request, NULL).error == EINVAL);
	request.port = PORT; /* and there is no such network */
	expect(harness_ask(h, 0, &request, NULL).error == ENOENT);
}

#define TEST(name, ...)                                                                            \
	{                                                                                          \
#name, name,                                                                       \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

static const struct harness_test tests[] = {
	TEST(every_use_shows_as_long_as_it_lasts),
	TEST(one_that_was_made_by_another_worker_is_known_as_well, .workers = 2),
	TEST(a_sandbox_that_opened_nothing_leaves_it_clean_and_one_that_connected_not),
	TEST(listeners_are_found_on_either_loopback),
	TEST(impossible_ports_are_refused),
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
