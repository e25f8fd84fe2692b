/*
 * The sockets where sandboxes with a way out ask for names, port 53 of the router's address, and
 * where their connections are forwarded by name: three for each shard. And sockets by which these
 * go on. Called by the node on the control thread, once the router is there; the last by shards.
 * Must hold: all of them have one address, and a filter hands each packet to the shard whose
 * sandbox sent it, by its source, which nobody can choose (rp_filter); so a shard hears its own
 * alone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/container/egress.h"
#include "bpf/policy_shared.h"
#include "engine/base/cleanup.h"

enum { PORT_DNS = 53, BACKLOG = 64, BUFFER_BYTES = 1 << 20 };

uint32_t egress_resolver_address(const struct egress *egress)
{
	return egress->resolver_fds ? egress->range4.first + EGRESS_ROUTER_ADDRESS : 0;
}

/*
 * The number of the shard, of the source address: as egress_address4() made it, or of the block
 * that a namespace of many has (network.c), which is of shard block % shards.
 */
static int filter_attach(const struct egress *egress, int fd, uint32_t networks_per_shard)
{
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)SKF_NET_OFF + 12),
		BPF_STMT(BPF_MISC | BPF_TAX, 0),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~(uint32_t)(POLICY_SHARED_V4_COUNT - 1)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, POLICY_SHARED_V4, 0, 5),
		BPF_STMT(BPF_MISC | BPF_TXA, 0),
		BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, POLICY_SHARED_V4),
		BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, POLICY_SHARED_BLOCK),
		BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, egress->resolver_count / EGRESS_SOCKETS),
		BPF_STMT(BPF_RET | BPF_A, 0),
		BPF_STMT(BPF_MISC | BPF_TXA, 0),
		BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, egress->range4.first),
		BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, EGRESS_BLOCK),
		BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, 1),
		BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, networks_per_shard),
		BPF_STMT(BPF_RET | BPF_A, 0),
	};
	const struct sock_fprog filter = { sizeof steps / sizeof *steps, steps };

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter, sizeof filter) < 0 ?
		       -errno :
		       0;
}

static int socket_open(const struct egress *egress, int type, uint16_t port)
{
	const struct sockaddr_in at = { .sin_family = AF_INET,
					.sin_port = htons(port),
					.sin_addr.s_addr = htonl(egress->range4.first +
								 EGRESS_ROUTER_ADDRESS) };
	const int on = 1, bytes = BUFFER_BYTES;
	auto_close int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r = fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) < 0 ? -errno : 0;

	if (r == 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) < 0)
		r = -errno;
	if (r < 0)
		return r;
	if (type == SOCK_STREAM)
		return listen(fd, BACKLOG) < 0 ? -errno : take_fd(&fd);
	/* Without it what many ask at once is asked again: it waits in less room. */
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
	return take_fd(&fd);
}

/* In the router's namespace. They join their groups in the order of their shards. */
static int sockets_open(struct egress *egress, uint32_t networks_per_shard)
{
	static const struct {
		int type;
		uint16_t port;
	} sockets[EGRESS_SOCKETS] = {
		{ SOCK_DGRAM, PORT_DNS },
		{ SOCK_STREAM, PORT_DNS },
		{ SOCK_STREAM, EGRESS_PORT_TLS },
	};

	for (uint32_t i = 0; i < egress->resolver_count; i++) {
		const uint32_t which = i % EGRESS_SOCKETS;
		int fd = socket_open(egress, sockets[which].type, sockets[which].port);
		int r = fd < 0 ? fd : 0;

		egress->resolver_fds[i] = fd;
		if (r == 0 && i < EGRESS_SOCKETS) /* the first one's is its group's */
			r = filter_attach(egress, fd, networks_per_shard);
		if (r < 0)
			return r;
	}
	return 0;
}

static void router_leave(const struct egress *egress)
{
	if (setns(egress->host_ns_fd, CLONE_NEWNET) < 0)
		abort(); /* in the wrong network there is nothing right to do */
}

int egress_resolver_open(struct egress *egress, uint32_t shards, uint32_t networks_per_shard)
{
	int r;

	egress->resolver_fds = malloc(EGRESS_SOCKETS * shards * sizeof *egress->resolver_fds);
	if (!egress->resolver_fds)
		return -ENOMEM;
	egress->resolver_count = EGRESS_SOCKETS * shards;
	for (uint32_t i = 0; i < egress->resolver_count; i++)
		egress->resolver_fds[i] = -1;
	if (setns(egress->router_ns_fd, CLONE_NEWNET) < 0)
		return -errno;
	r = sockets_open(egress, networks_per_shard);
	router_leave(egress);
	return r;
}

void egress_resolver_take(struct egress *egress, uint32_t shard, int ret_fds[static EGRESS_SOCKETS])
{
	for (uint32_t i = 0; i < EGRESS_SOCKETS; i++)
		ret_fds[i] = take_fd(&egress->resolver_fds[EGRESS_SOCKETS * shard + i]);
}

int egress_outbound_socket(const struct egress *egress)
{
	int fd;

	if (egress->router_ns_fd < 0)
		return -EOPNOTSUPP;
	if (setns(egress->router_ns_fd, CLONE_NEWNET) < 0)
		return -errno;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		fd = -errno;
	router_leave(egress);
	return fd;
}

void egress_resolver_close(struct egress *egress)
{
	for (uint32_t i = 0; i < egress->resolver_count; i++)
		cleanup_close(&egress->resolver_fds[i]);
	free(egress->resolver_fds);
	egress->resolver_fds = NULL;
	egress->resolver_count = 0;
}
