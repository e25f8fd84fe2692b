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

/* Says to whoever connects where they come from. */
static void server_run(const char *address, unsigned short port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) }, from;
	int server = socket(AF_INET, SOCK_STREAM, 0), client;
	const int on = 1;
	char text[64];

	(void)inet_pton(AF_INET, address, &at.sin_addr); /* ours */
	(void)setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(server, (struct sockaddr *)&at, sizeof at) < 0 || listen(server, 16) < 0)
		_exit(1);
	for (;;) {
		socklen_t bytes = sizeof from;

		client = accept(server, (struct sockaddr *)&from, &bytes);
		(void)snprintf(text, sizeof text, "from %s\n", inet_ntoa(from.sin_addr));
		(void)!write(client, text, strlen(text)); /* who connected sees what comes */
		(void)close(client);
	}
}

pid_t server_start(pid_t world, const char *address, unsigned short port)
{
	char path[64];
	pid_t pid = fork();

	if (pid)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", world ? world : getpid());
	if (setns(open(path, O_RDONLY | O_CLOEXEC), CLONE_NEWNET) < 0)
		_exit(1);
	server_run(address, port);
	_exit(1);
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
	char command[512];

	if (unshare(CLONE_NEWNET) < 0)
		return false;
	*ret_internet = internet_start();
	if (*ret_internet < 0)
		return false;
	(void)snprintf(command, sizeof command,
		       "set -e; i=%d; ip link set lo up\n"
		       "ip link add up0 type veth peer name in0 netns $i\n"
		       "ip addr add " HOST "/24 dev up0; ip link set up0 up\n"
		       "nsenter -t $i -n sh -ec 'ip link set lo up\n"
		       "ip addr add 198.51.100.1/24 dev in0; ip link set in0 up\n"
		       "for a in " INTERNET " " OTHER " " NAMES
		       " 169.254.169.254 100.100.100.200 168.63.129.16; do\n"
		       "ip addr add $a/32 dev lo; done'\n"
		       "ip route add default via 198.51.100.1\n"
		       "sysctl -qw net.ipv4.ip_forward=1\n",
		       *ret_internet);
	return run(command);
}
