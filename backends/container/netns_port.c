/*
 * Ports of a sandbox, from outside: who listens on its loopback, and a connection there. Called by
 * the worker, which enters the network namespace and nothing else of the sandbox. Nothing here
 * waits: a connection to a full queue is handed over unfinished.
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

static void loopback_of(int family, uint32_t ret_address[static 4])
{
	memset(ret_address, 0, 4 * sizeof *ret_address);
	if (family == AF_INET)
		ret_address[0] = htonl(INADDR_LOOPBACK);
	else
		memcpy(ret_address, &in6addr_loopback, sizeof in6addr_loopback);
}

/* One exact look-up, as for a first packet; the kernel answers before the call returns. */
static long diag_ask(int diag_fd, int family, uint16_t port)
{
	struct question question = {
		.header = { .nlmsg_len = sizeof question,
			    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			    .nlmsg_flags = NLM_F_REQUEST },
		.request = { .sdiag_family = (uint8_t)family,
			     .sdiag_protocol = IPPROTO_TCP,
			     .id = { .idiag_sport = htons(port),
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

	loopback_of(family, question.request.id.idiag_src);
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
		r = TRY(PORT, diag_ask((int)fd, families[i], (uint16_t)w->order.request.port));
		if (r >= 0 && families[i] == AF_INET6)
			w->order.reply.flags |= LAUNCH_IPV6;
	}
	(void)kernel_close((int)fd); /* asked */
	return r == -ENOENT ? -ECONNREFUSED : r;
}

static long connect_to(struct worker *w, int family)
{
	const uint16_t port = htons((uint16_t)w->order.request.port);
	const struct sockaddr_in four = { .sin_family = AF_INET,
					  .sin_port = port,
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct sockaddr_in6 six = { .sin6_family = AF_INET6,
					  .sin6_port = port,
					  .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	const void *address = family == AF_INET ? (const void *)&four : (const void *)&six;
	const size_t bytes = family == AF_INET ? sizeof four : sizeof six;
	long r, fd = TRY(PORT, KERNEL_CALL(SYS_socket, family,
					   SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd < 0)
		return fd;
	r = TRY(PORT, KERNEL_CALL(SYS_connect, fd, (long)address, (long)bytes));
	/* The answer came while the call held the socket: ask for it. */
	if (r == -EINPROGRESS)
		r = TRY(PORT, KERNEL_CALL(SYS_connect, fd, (long)address, (long)bytes));
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
