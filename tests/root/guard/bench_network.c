/*
 * What the programs of networks cost, in nanoseconds a call, the best of thirty rounds: over the
 * loopback for a process outside of every sandbox, for a sandbox of `private`, and for one of
 * `shared`; over a veth pair for one outside, and for one whose policy has a thousand destinations;
 * and for one outside before any program was loaded.
 * Not a test: `bench_network`.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bpf/guard.h"
#include "bpf/guard_policy.h"
#include "tests/root/guard/bench.h"
#include "tests/root/guard/tree.h"

enum { ROUNDS = 3, TIMES = 10 }; /* programs are loaded anew, and kinds are measured then */
enum { SOCKET_CLOSE, UDP_NEW, UDP_CONNECT, UDP_SEND, UDP_SENDTO, TCP_CONNECT, TCP_SEND, CALLS };
enum {
	OUTSIDE,
	PRIVATE,
	SHARED,
	FAR,
	EGRESS,
	WITH,
	BEFORE = WITH,
	FAR_BEFORE,
	KINDS,
	PORT = 5555,
	DESTINATIONS = 1000
};

#define NEAR_ADDRESS "198.51.100.2"
#define FAR_ADDRESS  "198.51.100.1"

static const char *const call_names[CALLS] = {
	[SOCKET_CLOSE] = "socket + close",	  [UDP_NEW] = "udp socket + connect + close",
	[UDP_CONNECT] = "udp connect again",	  [UDP_SEND] = "udp send + recv, connected",
	[UDP_SENDTO] = "udp sendto + recvfrom",	  [TCP_CONNECT] = "tcp connect + accept + close",
	[TCP_SEND] = "tcp send + recv of a byte",
};
static const int repeats[CALLS] = { 5000, 3000, 10000, 10000, 10000, 1000, 5000 };

struct ends {
	struct sockaddr_in at;
	int listener, receiver, sender, loose, client, accepted;
};

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

static void call_once(int call, const void *with)
{
	const struct ends *ends = with;
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
	case UDP_NEW:
		fd = socket(AF_INET, SOCK_DGRAM, 0);
		must(connect(fd, at, sizeof(ends->at)), "connect");
		close(fd);
		break;
	case UDP_CONNECT:
		must(connect(ends->sender, at, sizeof(ends->at)), "connect");
		break;
	case UDP_SEND:
		must(send(ends->sender, &byte, 1, 0), "send");
		must(recv(ends->receiver, &byte, 1, 0), "recv");
		break;
	case UDP_SENDTO:
		must(sendto(ends->loose, &byte, 1, 0, at, sizeof(ends->at)), "sendto");
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

static struct sockaddr_in address_of(const char *text)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons(PORT),
				     .sin_addr.s_addr = inet_addr(text) };
}

static struct ends ends_open(const char *address)
{
	struct ends ends = { .at = address_of(address) };

	ends.listener = socket_at(SOCK_STREAM, &ends.at, NULL);
	must(listen(ends.listener, 64), "listen");
	ends.receiver = socket_at(SOCK_DGRAM, &ends.at, NULL);
	return ends;
}

static const struct bench bench = { CALLS, repeats, call_once };

/* In a child in the cgroup. */
static void measure(double best_ns[static CALLS], const struct ends *far)
{
	struct ends ends = far ? *far : ends_open("127.0.0.1");

	ends.loose = socket_at(SOCK_DGRAM, NULL, NULL);
	ends.sender = socket_at(SOCK_DGRAM, NULL, &ends.at);
	ends.client = socket_at(SOCK_STREAM, NULL, &ends.at);
	ends.accepted = accept(ends.listener, NULL, NULL);
	must(ends.accepted, "accept");
	bench_round(&bench, &ends, best_ns);
	_exit(0);
}

/* This process is in the near one. The ends in the far one, which are no sandbox's. */
static struct ends namespaces_make(void)
{
	char script[512];
	struct ends far;
	int far_fd, near_fd;

	must(unshare(CLONE_NEWNET), "unshare");
	far_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	must(far_fd, "far");
	must(unshare(CLONE_NEWNET), "unshare");
	snprintf(script, sizeof(script),
		 "set -e; ip link set lo up; ip route add local 10.64.0.0/10 dev lo\n"
		 "ip link add eth0 type veth peer name in0 netns /proc/%d/fd/%d\n"
		 "ip addr add " NEAR_ADDRESS "/24 dev eth0; ip link set eth0 up\n"
		 "nsenter --net=/proc/%d/fd/%d sh -ec 'ip link set lo up\n"
		 "ip addr add " FAR_ADDRESS "/24 dev in0; ip link set in0 up'\n",
		 getpid(), far_fd, getpid(), far_fd);
	if (system(script))
		exit(1);
	near_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	must(setns(far_fd, CLONE_NEWNET), "far");
	far = ends_open(FAR_ADDRESS);
	must(setns(near_fd, CLONE_NEWNET), "near");
	return far;
}

static int egress_set(struct guard *guard, uint64_t cgroup_id)
{
	static struct guard_destination all[DESTINATIONS];
	const struct guard_policy policy = { .number = 7,
					     .has_egress = true,
					     .destination_count = DESTINATIONS,
					     .destinations = all };
	const struct guard_egress what = { .policy = 7, .address4 = inet_addr(NEAR_ADDRESS) };
	int r;

	for (uint32_t i = 0; i < DESTINATIONS; i++) {
		const uint32_t address = i ? htonl(0x0a000000 + i) : inet_addr(FAR_ADDRESS);

		all[i] = (struct guard_destination){
			.address = { [10] = 0xff, [11] = 0xff },
			.prefix_bits = 128,
			.port_count = 2,
			.rule = i + 1,
			.ports = { { 1, 65535, IPPROTO_TCP, 1 }, { 1, 65535, IPPROTO_UDP, 1 } },
		};
		memcpy(all[i].address + 12, &address, sizeof(address));
	}
	r = guard_network_set(guard, cgroup_id, true);
	if (r == 0)
		r = guard_egress_load(guard, &policy);
	return r == 0 ? guard_egress_set(guard, cgroup_id, &what) : r;
}

/* What is measured in that place, a round. */
static int round_run(const struct tree *tree, double (*best_ns)[CALLS], int kind,
		     const struct ends *far)
{
	static const enum tree_place places[KINDS] = { TREE_STRANGER, TREE_SLOT1, TREE_SLOT0,
						       TREE_STRANGER, TREE_SLOT2, TREE_STRANGER,
						       TREE_STRANGER };
	const bool is_far = kind == FAR || kind == EGRESS || kind == FAR_BEFORE;
	pid_t pid = tree_fork(tree, places[kind], 0);

	if (pid == 0)
		measure(best_ns[kind], is_far ? far : NULL);
	return pid < 0 ? -1 : child_reap(pid);
}

static double more(const double *best_ns, const double *base_ns, int call)
{
	return 100 * (best_ns[call] / base_ns[call] - 1);
}

static const struct guard_shared sharing = {
	.address = 3, .ports_max = 512, .datagrams_max = 512, .connections_max = 512
};

/* What nobody asked of, then what is loaded: one after the other, so that both see the machine. */
static int round_all(const struct tree *tree, double (*best_ns)[CALLS], const struct ends *far)
{
	struct guard_options options = tree_options(tree);
	struct guard *guard = NULL;
	char why[4096];
	int r = 0;

	for (int i = 0; r == 0 && i < TIMES * (KINDS - WITH); i++)
		r = round_run(tree, best_ns, WITH + i % (KINDS - WITH), far);
	if (r == 0)
		r = guard_open(&options, why, sizeof(why), &guard);
	if (r == 0)
		r = guard_shared_load(guard, why, sizeof(why));
	if (r == 0)
		r = guard_network_set(guard, tree->ids[TREE_SLOT1], true);
	if (r == 0)
		r = guard_shared_set(guard, tree->ids[TREE_SLOT0], &sharing);
	if (r == 0)
		r = egress_set(guard, tree->ids[TREE_SLOT2]);
	for (int i = 0; r == 0 && i < TIMES * WITH; i++)
		r = round_run(tree, best_ns, i % WITH, far);
	guard_close(guard);
	return r;
}

int main(void)
{
	double(*best_ns)[CALLS] = mmap(NULL, sizeof(double[KINDS][CALLS]), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct tree tree;
	struct ends far;
	int r = 0;

	must(best_ns == MAP_FAILED ? -1 : 0, "mmap");
	far = namespaces_make();
	tree_make(&tree);
	for (int i = 0; r == 0 && i < ROUNDS; i++)
		r = round_all(&tree, best_ns, &far);
	for (int call = 0; r == 0 && call < CALLS; call++)
		printf("%-28s outside %.0f ns (%+.0f %%), private %.0f (%+.0f %%), "
		       "shared %.0f (%+.0f %%); "
		       "veth: outside %.0f ns (%+.0f %%), by policy %.0f (%+.0f %%)\n",
		       call_names[call], best_ns[OUTSIDE][call],
		       more(best_ns[OUTSIDE], best_ns[BEFORE], call), best_ns[PRIVATE][call],
		       more(best_ns[PRIVATE], best_ns[OUTSIDE], call), best_ns[SHARED][call],
		       more(best_ns[SHARED], best_ns[OUTSIDE], call), best_ns[FAR][call],
		       more(best_ns[FAR], best_ns[FAR_BEFORE], call), best_ns[EGRESS][call],
		       more(best_ns[EGRESS], best_ns[FAR], call));
	tree_remove(&tree);
	return r ? 1 : 0;
}
