/*
 * Ports of a sandbox, from outside: who listens on its loopback, and a connection there. Called by
 * the worker, which enters the network namespace and nothing else of the sandbox. Nothing here
 * waits: a connection to a full queue is handed over unfinished. In a namespace of many, a
 * sandbox's loopback is an address of its own, and it takes packets from that alone: so they come
 * from there.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "backends/container/kernel.h"
#include "backends/container/netns.h"
#include "backends/container/worker.h"

#define TRY(step, call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)

struct question {
	struct nlmsghdr header;
	struct inet_diag_req_v2 request;
};

static void loopback_of(const struct worker *w, int family, uint32_t ret_address[static 4])
{
	uint32_t four = htonl(INADDR_LOOPBACK), six[4];

	memcpy(six, &in6addr_loopback, sizeof six);
	if (w->order.request.flags & LAUNCH_SHARED)
		shared_addresses(w, &four, six);
	memset(ret_address, 0, 4 * sizeof *ret_address);
	memcpy(ret_address, family == AF_INET ? &four : six, family == AF_INET ? 4 : sizeof six);
}

/* One exact look-up, as for a first packet; the kernel answers before the call returns. */
static long diag_ask(const struct worker *w, int diag_fd, int family)
{
	struct question question = {
		.header = { .nlmsg_len = sizeof question,
			    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			    .nlmsg_flags = NLM_F_REQUEST },
		.request = { .sdiag_family = (uint8_t)family,
			     .sdiag_protocol = IPPROTO_TCP,
			     .id = { .idiag_sport = htons((uint16_t)w->order.request.port),
				     .idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } } },
	};
	struct {
		struct nlmsghdr header;
		union {
			struct nlmsgerr error;
			struct inet_diag_msg found;
		};
		char rest[512];
	} answer;
	long r;

	loopback_of(w, family, question.request.id.idiag_src);
	r = KERNEL_CALL(SYS_sendto, diag_fd, (long)&question, sizeof question, 0, 0, 0);
	if (r >= 0)
		r = KERNEL_CALL(SYS_recvfrom, diag_fd, (long)&answer, sizeof answer, MSG_DONTWAIT,
				0, 0);
	if (r < 0)
		return r;
	if (answer.header.nlmsg_type == NLMSG_ERROR)
		return answer.error.error;
	return answer.found.idiag_state == TCP_LISTEN ? 0 : -ENOENT;
}

/* The worker is in the namespace. */
static long look(struct worker *w)
{
	static const int families[] = { AF_INET, AF_INET6 };
	long r = -ENOENT;
	long fd = TRY(PORT, KERNEL_CALL(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC,
					NETLINK_SOCK_DIAG, 0, 0, w->secret));

	if (fd < 0)
		return fd;
	for (unsigned i = 0; r == -ENOENT && i < 2; i++) {
		r = TRY(PORT, diag_ask(w, (int)fd, families[i]));
		if (r >= 0 && families[i] == AF_INET6)
			w->order.reply.flags |= LAUNCH_IPV6;
	}
	(void)kernel_close((int)fd); /* asked */
	return r == -ENOENT ? -ECONNREFUSED : r;
}

union loopback {
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

static union loopback loopback_at(const struct worker *w, int family, uint16_t port)
{
	union loopback at = { .six.sin6_family = (sa_family_t)family,
			      .six.sin6_port = htons(port) };
	uint32_t address[4];

	loopback_of(w, family, address);
	if (family == AF_INET)
		at.four.sin_addr.s_addr = address[0];
	else
		memcpy(&at.six.sin6_addr, address, sizeof address);
	return at;
}

/* Where the sandbox's own packets come from. The port is for connect() to choose. */
static long source_bind(struct worker *w, int fd, int family)
{
	const union loopback from = loopback_at(w, family, 0);
	const int on = 1;
	long r = TRY(PORT, KERNEL_CALL(SYS_setsockopt, fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT,
				       (long)&on, sizeof on));

	return r < 0 ? r : TRY(PORT, KERNEL_CALL(SYS_bind, fd, (long)&from, sizeof from));
}

static long connect_to(struct worker *w, int family)
{
	const union loopback to = loopback_at(w, family, (uint16_t)w->order.request.port);
	long r, fd = TRY(PORT, KERNEL_CALL(SYS_socket, family,
					   SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd < 0)
		return fd;
	r = w->order.request.flags & LAUNCH_SHARED ? source_bind(w, (int)fd, family) : 0;
	if (r >= 0)
		r = TRY(PORT, KERNEL_CALL(SYS_connect, fd, (long)&to, sizeof to));
	/* The answer came while the call held the socket: ask for it. */
	if (r == -EINPROGRESS)
		r = TRY(PORT, KERNEL_CALL(SYS_connect, fd, (long)&to, sizeof to));
	if (r < 0 && r != -EALREADY) {
		(void)kernel_close((int)fd); /* of no use */
		return r;
	}
	w->order.reply_fd = (int)fd;
	/* In blocking mode a ring waits for it; else it would be told EAGAIN. */
	return TRY(PORT, KERNEL_CALL(SYS_fcntl, fd, F_SETFL, 0));
}

long port_look(struct worker *w)
{
	long r = network_enter(w, LAUNCH_STEP_PORT);

	if (r < 0)
		return r;
	r = look(w);
	network_leave(w);
	return r;
}

long port_connect(struct worker *w)
{
	long r = network_enter(w, LAUNCH_STEP_PORT);

	if (r < 0)
		return r;
	r = connect_to(w, AF_INET);
	if (r == -ECONNREFUSED) {
		r = connect_to(w, AF_INET6);
		if (r >= 0)
			w->order.reply.flags |= LAUNCH_IPV6;
	}
	network_leave(w);
	return r;
}
