/*
 * The proof that a network namespace is as nobody has ever used it. Called by the worker. What the
 * kernel tells of it, its counters included, is compared byte for byte with what it tells of a new
 * one: who sent a single packet, or left a socket, a connection in TIME_WAIT, a flow label, a
 * fragment, an address, a route or a setting, shows. There is nothing to clean: what differs goes.
 */
#include <errno.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "backends/container/kernel.h"
#include "backends/container/netns.h"
#include "backends/container/worker.h"

#define TRY(step, call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)

/* What a kernel has not is left out of both sides. */
static const char *const files[] = {
	"thread-self/net/sockstat",
	"thread-self/net/sockstat6",
	"thread-self/net/dev",
	"thread-self/net/snmp",
	"thread-self/net/snmp6",
	"thread-self/net/netstat",
	"thread-self/net/unix",
	"thread-self/net/packet",
	"thread-self/net/ip6_flowlabel",
	"thread-self/net/fib_trie",
	"thread-self/net/route",
	"thread-self/net/ipv6_route",
	"thread-self/net/if_inet6",
	"thread-self/net/arp",
	"thread-self/net/igmp",
	"thread-self/net/mcfilter",
	"thread-self/net/mcfilter6",
	"thread-self/net/anycast6",
	"thread-self/net/icmp",
	"thread-self/net/icmp6",
	"thread-self/net/raw",
	"thread-self/net/raw6",
	"thread-self/net/udp",
	"thread-self/net/udp6",
	"thread-self/net/ip_tables_names",
	"thread-self/net/ip6_tables_names",
};

static const char *const settings[] = {
	"sys/net/ipv4/ip_unprivileged_port_start",
	"sys/net/ipv4/ping_group_range",
	"sys/net/ipv4/tcp_no_metrics_save",
	"sys/net/ipv4/tcp_fastopen",
	"sys/net/ipv4/ip_forward",
	"sys/net/ipv4/ip_local_port_range",
	"sys/net/ipv4/ip_nonlocal_bind",
	"sys/net/ipv4/tcp_congestion_control",
	"sys/net/ipv4/conf/all/route_localnet",
	"sys/net/ipv6/conf/all/forwarding",
	"sys/net/ipv6/conf/all/disable_ipv6",
	"sys/net/ipv6/ip_nonlocal_bind",
	"sys/net/core/somaxconn",
	"sys/net/unix/max_dgram_qlen",
	"sys/net/netfilter/nf_conntrack_count",
};

struct text {
	char *bytes;
	uint32_t count;
};

static long text_add_file(struct text *text, int dir_fd, const char *path)
{
	long r, fd = kernel_openat(dir_fd, path, O_RDONLY | O_CLOEXEC, 0);

	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return fd;
	do {
		const uint32_t room = WORKER_PROOF_BYTES_MAX - text->count;

		/* More than a new one has anyway: then it does not matter what. */
		r = room ? kernel_read((int)fd, text->bytes + text->count, room) : 0;
		text->count += r > 0 ? (uint32_t)r : 0;
	} while (r > 0);
	(void)kernel_close((int)fd); /* only read */
	return r;
}

/* The figures after these words of sockstat are the whole host's. */
static void text_forget_host(struct text *text, uint32_t from)
{
	static const char *const words[] = { " orphan ", " alloc ", " mem " };

	for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
		char *at = text->bytes + from, *end = text->bytes + text->count;

		while ((at = memmem(at, (size_t)(end - at), words[i], strlen(words[i]))))
			for (at += strlen(words[i]); at < end && *at >= '0' && *at <= '9'; at++)
				*at = ' ';
	}
	/* Figures of other lengths left other gaps. */
	char *to = text->bytes + from;

	for (char *at = to, *end = text->bytes + text->count; at < end; at++)
		if (*at != ' ' || at[-(at > text->bytes)] != ' ')
			*to++ = *at;
	text->count = (uint32_t)(to - text->bytes);
}

/* ARP and ND, which files show a part of: nobody is in a new namespace's tables. */
static long neighbours_ask(int route_fd)
{
	const struct {
		struct nlmsghdr header;
		struct ndmsg message;
	} question = { .header = { .nlmsg_len = sizeof question,
				   .nlmsg_type = RTM_GETNEIGH,
				   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };
	struct {
		struct nlmsghdr header;
		char rest[4096];
	} answer;
	long r = KERNEL_CALL(SYS_sendto, route_fd, (long)&question, sizeof question, 0, 0, 0);

	if (r >= 0)
		r = KERNEL_CALL(SYS_recvfrom, route_fd, (long)&answer, sizeof answer, MSG_DONTWAIT,
				0, 0);
	if (r < 0)
		return r;
	return answer.header.nlmsg_type != NLMSG_DONE;
}

/* 1: there are some. */
static long neighbours_look(struct worker *w)
{
	long r, fd = TRY(NETNS, KERNEL_CALL(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC,
					    NETLINK_ROUTE));

	if (fd < 0)
		return fd;
	r = TRY(NETNS, neighbours_ask((int)fd));
	(void)kernel_close((int)fd); /* asked */
	return r;
}

/* The worker is in the namespace. */
static long text_read(struct worker *w, char *bytes, uint32_t *ret_count)
{
	struct text text = { bytes, 0 };
	long r = 0;

	for (unsigned i = 0; r >= 0 && i < sizeof files / sizeof *files; i++) {
		r = TRY(NETNS, text_add_file(&text, LAUNCH_FD_PROC, files[i]));
		if (i == 0)
			text_forget_host(&text, 0);
	}
	for (unsigned i = 0; r >= 0 && i < sizeof settings / sizeof *settings; i++)
		r = TRY(NETNS, text_add_file(&text, w->sysctl_fd, settings[i]));
	if (r >= 0)
		r = neighbours_look(w);
	if (r > 0 || (r == 0 && text.count == WORKER_PROOF_BYTES_MAX))
		r = -E2BIG;
	*ret_count = text.count;
	return r;
}

/* What a new one looks like: once per worker, and again after a failure. */
static long pristine_learn(struct worker *w)
{
	uint32_t bytes;
	long r;

	if (w->pristine_bytes)
		return 0;
	r = network_enter_new(w);
	if (r < 0)
		return r;
	r = text_read(w, w->pristine, &bytes);
	network_leave(w);
	if (r >= 0)
		w->pristine_bytes = bytes;
	return r;
}

long network_prove(struct worker *w)
{
	static const char none[] = "sockets: used 0\n";
	uint32_t bytes = 0;
	long r = pristine_learn(w);

	if (r >= 0)
		r = sysctl_renew(w, LAUNCH_STEP_NETNS);
	if (r >= 0)
		r = network_enter(w, LAUNCH_STEP_NETNS);
	if (r < 0)
		return r;
	r = text_read(w, w->proof, &bytes);
	network_leave(w);
	if (r < 0)
		return r == -E2BIG ? 0 : r;
	if (bytes == w->pristine_bytes && memcmp(w->proof, w->pristine, bytes) == 0)
		w->order.reply.flags |= LAUNCH_CLEAN;
	else if (bytes < sizeof none || memcmp(w->proof, none, sizeof none - 1) != 0)
		w->order.reply.flags |= LAUNCH_BUSY;
	return 0;
}
