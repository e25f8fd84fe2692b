/*
 * The world around the engine of test_engine_egress.c, in network namespaces of the test's own:
 * this process lives in one that plays the host, another plays the internet, and no packet leaves
 * the machine.
 */
#include "tests/root/engine/egress_world.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/root/engine/engine_harness.h"

bool run(const char *command)
{
	int status = system(command);

	if (status)
		note("status %x: %s", (unsigned)status, command);
	return status == 0;
}

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

static int listen_at(const char *address, unsigned short port)
{
	const bool is_six = strchr(address, ':');
	const socklen_t whole = is_six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	union address at = { .any.sa_family = is_six ? AF_INET6 : AF_INET };
	int server = socket(at.any.sa_family, SOCK_STREAM, 0);
	const int on = 1;

	at.four.sin_port = htons(port); /* where the other's is */
	(void)inet_pton(at.any.sa_family, address,
			is_six ? (void *)&at.six.sin6_addr : &at.four.sin_addr); /* ours */
	(void)setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (is_six)
		(void)setsockopt(server, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
	if (bind(server, &at.any, whole) < 0 || listen(server, 16) < 0)
		_exit(1);
	return server;
}

/* Says to whoever connects where they come from. */
static void server_run(int server)
{
	char text[64], name[INET6_ADDRSTRLEN];

	for (;;) {
		union address from;
		socklen_t bytes = sizeof from;
		const int client = accept(server, &from.any, &bytes);
		const bool is_six = from.any.sa_family == AF_INET6;

		(void)inet_ntop(from.any.sa_family,
				is_six ? (void *)&from.six.sin6_addr : &from.four.sin_addr, name,
				sizeof name); /* fits */
		(void)snprintf(text, sizeof text, "from %s\n", name);
		(void)!write(client, text, strlen(text)); /* who connected sees what comes */
		(void)close(client);
	}
}

/* Takes what comes, until its end or until nothing came for a while. */
static void sink_run(int server)
{
	const struct timeval limit = { .tv_sec = 5 };
	char bytes[4096];

	for (;;) {
		const int client = accept(server, NULL, NULL);

		(void)setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
		while (read(client, bytes, sizeof bytes) > 0)
			;
		(void)close(client);
	}
}

static pid_t process_start(pid_t world, const char *address, unsigned short port,
			   void (*run_it)(int server))
{
	char path[64];
	pid_t pid = fork();

	if (pid)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", world ? world : getpid());
	if (setns(open(path, O_RDONLY | O_CLOEXEC), CLONE_NEWNET) < 0)
		_exit(1);
	run_it(listen_at(address, port));
	_exit(1);
}

pid_t server_start(pid_t world, const char *address, unsigned short port)
{
	return process_start(world, address, port, server_run);
}

pid_t sink_start(pid_t world, const char *address, unsigned short port)
{
	return process_start(world, address, port, sink_run);
}

static pid_t internet_start(void)
{
	int ready[2];
	char told = 0;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWNET) == 0 && write(ready[1], "r", 1) == 1)
			for (;;)
				(void)pause(); /* for SIGKILL */
		_exit(1);
	}
	(void)close(ready[1]); /* the child's */
	(void)!read(ready[0], &told, 1);
	(void)close(ready[0]); /* read */
	return told ? pid : -1;
}

bool world_make(pid_t *ret_internet)
{
	char command[1024];

	if (unshare(CLONE_NEWNET) < 0)
		return false;
	*ret_internet = internet_start();
	if (*ret_internet < 0)
		return false;
	(void)snprintf(command, sizeof command,
		       "set -e; i=%d; ip link set lo up\n"
		       "ip link add up0 type veth peer name in0 netns $i\n"
		       "ip addr add " HOST "/24 dev up0\n"
		       "ip addr add " HOST6 "/64 dev up0 nodad; ip link set up0 up\n"
		       "nsenter -t $i -n sh -ec 'ip link set lo up\n"
		       "ip addr add 198.51.100.1/24 dev in0\n"
		       "ip addr add 2001:db8:1::1/64 dev in0 nodad; ip link set in0 up\n"
		       "for a in " INTERNET6 " " OTHER6 " fd00:ec2::254 64:ff9b::a9fe:a9fe "
		       "64:ff9b:1::a9fe:a9fe 64:ff9b:1::6464:64c8 2002:a9fe:a9fe::1 "
		       "64:ff9b::cb00:710a; do ip addr add $a/128 dev lo nodad; done\n"
		       "for a in " INTERNET " " OTHER " " NAMES
		       " 169.254.169.254 100.100.100.200 168.63.129.16; do\n"
		       "ip addr add $a/32 dev lo; done'\n"
		       "ip route add default via 198.51.100.1\n"
		       "ip route add default via 2001:db8:1::1\n"
		       "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1\n",
		       *ret_internet);
	return run(command);
}
