/*
 * What the programs of network `shared` cost, in nanoseconds a call, the best of seven rounds: for
 * a process outside of every sandbox, for a sandbox of `private`, and for one of `shared`, in one
 * network namespace. Not a test: `bench_shared`.
 */
#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bpf/guard.h"
#include "tests/root/guard/tree.h"

enum { SOCKET_CLOSE, UDP_CONNECT, UDP_SEND, UDP_SENDTO, TCP_CONNECT, TCP_SEND, CALLS, ROUNDS = 7 };
enum { OUTSIDE, PRIVATE, SHARED, KINDS, PORT = 5555 };

static const char *const call_names[CALLS] = {
	[SOCKET_CLOSE] = "socket + close",
	[UDP_CONNECT] = "udp connect again",
	[UDP_SEND] = "udp send + recv, connected",
	[UDP_SENDTO] = "udp sendto + recvfrom",
	[TCP_CONNECT] = "tcp connect + accept + close",
	[TCP_SEND] = "tcp send + recv of a byte",
};
static const int repeats[CALLS] = { 20000, 20000, 20000, 20000, 2000, 20000 };

struct ends {
	struct sockaddr_in at;
	int listener, receiver, sender, client, accepted;
};

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void must(long r, const char *what)
{
	if (r >= 0)
		return;
	perror(what);
	_exit(1);
}

static int socket_at(int type, const struct sockaddr_in *bound, const struct sockaddr_in *peer)
{
	int fd = socket(AF_INET, type, 0), on = 1;

	must(fd, "socket");
	must(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), "reuse");
	if (bound)
		must(bind(fd, (const struct sockaddr *)bound, sizeof(*bound)), "bind");
	if (peer)
		must(connect(fd, (const struct sockaddr *)peer, sizeof(*peer)), "connect");
	return fd;
}

static void call_once(int call, const struct ends *ends)
{
	const struct sockaddr *at = (const struct sockaddr *)&ends->at;
	const struct linger linger = { .l_onoff = 1 };
	struct sockaddr_in from;
	socklen_t bytes = sizeof(from);
	char byte = 'x';
	int fd;

	switch (call) {
	case SOCKET_CLOSE:
		close(socket(AF_INET, SOCK_STREAM, 0));
		break;
	case UDP_CONNECT:
		must(connect(ends->sender, at, sizeof(ends->at)), "connect");
		break;
	case UDP_SEND:
		must(send(ends->sender, &byte, 1, 0), "send");
		must(recv(ends->receiver, &byte, 1, 0), "recv");
		break;
	case UDP_SENDTO:
		must(sendto(ends->receiver, &byte, 1, 0, at, sizeof(ends->at)), "sendto");
		must(recvfrom(ends->receiver, &byte, 1, 0, (struct sockaddr *)&from, &bytes),
		     "recvfrom");
		break;
	case TCP_CONNECT:
		fd = socket_at(SOCK_STREAM, NULL, &ends->at);
		must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), "linger");
		close(accept(ends->listener, NULL, NULL));
		close(fd);
		break;
	default:
		must(send(ends->client, &byte, 1, 0), "send");
		must(recv(ends->accepted, &byte, 1, 0), "recv");
	}
}

/* In a child in the cgroup; keeps the best of what it and others measured. */
static void measure(double best_ns[static CALLS])
{
	struct ends ends = {
		.at = { .sin_family = AF_INET,
			.sin_port = htons(PORT),
			.sin_addr.s_addr = htonl(INADDR_LOOPBACK) },
	};

	ends.listener = socket_at(SOCK_STREAM, &ends.at, NULL);
	must(listen(ends.listener, 64), "listen");
	ends.receiver = socket_at(SOCK_DGRAM, &ends.at, NULL);
	ends.sender = socket_at(SOCK_DGRAM, NULL, &ends.at);
	ends.client = socket_at(SOCK_STREAM, NULL, &ends.at);
	ends.accepted = accept(ends.listener, NULL, NULL);
	must(ends.accepted, "accept");
	for (int call = 0; call < CALLS; call++) {
		double begun = now_ns(), each;

		for (int i = 0; i < repeats[call]; i++)
			call_once(call, &ends);
		each = (now_ns() - begun) / repeats[call];
		if (!best_ns[call] || each < best_ns[call])
			best_ns[call] = each;
	}
	_exit(0);
}

static void namespace_make(void)
{
	must(unshare(CLONE_NEWNET), "unshare");
	if (system("ip link set lo up && ip route add local 10.64.0.0/10 dev lo"))
		exit(1);
}

int main(void)
{
	static const enum tree_place places[KINDS] = { TREE_STRANGER, TREE_SLOT1, TREE_SLOT0 };
	const struct guard_shared what = { .address = 3, .ports_max = 512 };
	double(*best_ns)[CALLS] = mmap(NULL, sizeof(double[KINDS][CALLS]), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct guard_options options;
	struct guard *guard;
	struct tree tree;
	char why[4096];
	int r;

	must(best_ns == MAP_FAILED ? -1 : 0, "mmap");
	namespace_make();
	tree_make(&tree);
	options = tree_options(&tree);
	r = guard_open(&options, why, sizeof(why), &guard);
	if (r == 0)
		r = guard_shared_load(guard, why, sizeof(why));
	if (r == 0)
		r = guard_network_set(guard, tree.ids[TREE_SLOT1], true);
	if (r == 0)
		r = guard_shared_set(guard, tree.ids[TREE_SLOT0], &what);
	for (int i = 0; r == 0 && i < ROUNDS * KINDS; i++) {
		pid_t pid = tree_fork(&tree, places[i % KINDS], 0);

		if (pid == 0)
			measure(best_ns[i % KINDS]);
		r = pid < 0 ? -1 : child_reap(pid);
	}
	for (int call = 0; r == 0 && call < CALLS; call++)
		printf("%-28s outside %.0f ns, private %.0f (%+.0f %%), shared %.0f (%+.0f %%)\n",
		       call_names[call], best_ns[OUTSIDE][call], best_ns[PRIVATE][call],
		       100 * (best_ns[PRIVATE][call] / best_ns[OUTSIDE][call] - 1),
		       best_ns[SHARED][call],
		       100 * (best_ns[SHARED][call] / best_ns[OUTSIDE][call] - 1));
	guard_close(guard);
	tree_remove(&tree);
	return r ? 1 : 0;
}
