/*
 * A way out of a sandbox's network namespace: a veth pair to the router's. Called by the worker as
 * it makes or drops one. Must hold: the sandbox's end belongs to the host's user namespace as all
 * of its namespace does, so its address cannot be changed inside; the router's end goes before its
 * number is used again.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "backends/container/egress.h"
#include "backends/container/kernel.h"
#include "backends/container/netns.h"
#include "backends/container/route.h"
#include "backends/container/worker.h"
#include "bpf/policy_shared.h"

#define TRY(step, call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)

enum { PREFIX4 = 30, PREFIX6 = 126, BLOCK_PREFIX4 = 16, BLOCK_PREFIX6 = 112 };

_Static_assert(POLICY_SHARED_BLOCK == 1 << (32 - BLOCK_PREFIX4), "a route leads to a block");
_Static_assert(POLICY_SHARED_BLOCK == 1 << (128 - BLOCK_PREFIX6), "a route leads to a block");

static void peer_name(const struct worker *w, char name[static ROUTE_NAME_BYTES])
{
	(void)snprintf(name, ROUTE_NAME_BYTES, "s%u", w->order.request.network);
}

static bool has_six(const struct worker *w)
{
	static const uint8_t none[16];

	return memcmp(w->order.request.egress_address6, none, sizeof none) != 0;
}

/* Of the four addresses: the router's, or the sandbox's. */
static struct route_prefix own4(const struct worker *w, uint8_t which)
{
	return route_prefix4(w->order.request.egress_address + which, PREFIX4);
}

static struct route_prefix own6(const struct worker *w, uint8_t which)
{
	struct route_prefix own = route_prefix6(w->order.request.egress_address6, PREFIX6);

	own.address[15] |= which;
	return own;
}

/* One end: `which` and `other` of the four addresses. */
static long end_furnish(struct worker *w, int fd, const char *name, uint8_t which, uint8_t other)
{
	const struct route_prefix here4 = own4(w, which), here6 = own6(w, which);
	const struct route_prefix there6 = own6(w, other);
	const uint8_t mac = other == EGRESS_ROUTER ? EGRESS_MAC_ROUTER : EGRESS_MAC_OTHER;
	const struct route_end far = route_end_of("", mac, w->order.request.network);
	long r = TRY(EGRESS, route_address_add(fd, name, &here4));

	if (r >= 0)
		r = TRY(EGRESS, route_link_up(fd, name));
	if (r >= 0 && has_six(w))
		r = TRY(EGRESS, route_address_add(fd, name, &here6));
	/* Nobody is asked who that is, and nobody can say. */
	if (r >= 0 && has_six(w))
		r = TRY(EGRESS, route_neighbour_add(fd, name, &there6, far.mac));
	return r;
}

/* The worker is in the sandbox's: what links that come have of IPv6. */
static long inner_settle(struct worker *w)
{
	static const struct {
		const char *path, *value;
	} with[] = {
		{ "sys/net/ipv6/conf/default/disable_ipv6", "0" },
		{ "sys/net/ipv6/conf/default/accept_ra", "0" },
		{ "sys/net/ipv6/conf/default/accept_redirects", "0" },
		{ "sys/net/ipv6/conf/default/addr_gen_mode", "1" }, /* none of its own */
	};
	long r = 0;

	if (!has_six(w))
		return TRY(NETNS, setting_write(w->sysctl_fd,
						"sys/net/ipv6/conf/default/disable_ipv6", "1"));
	for (unsigned i = 0; r >= 0 && i < sizeof with / sizeof *with; i++)
		r = TRY(NETNS, setting_write(w->sysctl_fd, with[i].path, with[i].value));
	return r;
}

static long inner_end(struct worker *w)
{
	const uint32_t network = w->order.request.network;
	const struct route_prefix router4 = own4(w, EGRESS_ROUTER),
				  router6 = own6(w, EGRESS_ROUTER);
	const struct route_prefix all4 = route_prefix4(0, 0), all6 = { .family = AF_INET6 };
	const struct route_end inner = route_end_of("eth0", EGRESS_MAC_OTHER, network);
	struct route_end outer;
	char peer[ROUTE_NAME_BYTES];
	long r, fd = TRY(EGRESS, route_open());

	if (fd < 0)
		return fd;
	peer_name(w, peer);
	outer = route_end_of(peer, EGRESS_MAC_ROUTER, network);
	r = TRY(EGRESS, route_pair_make((int)fd, &inner, &outer, LAUNCH_FD_ROUTER));
	if (r >= 0)
		r = end_furnish(w, (int)fd, inner.name, EGRESS_SANDBOX, EGRESS_ROUTER);
	if (r >= 0)
		r = TRY(EGRESS, route_via_add((int)fd, &all4, &router4));
	if (r >= 0 && has_six(w))
		r = TRY(EGRESS, route_via_add((int)fd, &all6, &router6));
	(void)kernel_close((int)fd); /* acknowledged */
	return r;
}

/* A namespace of many: a whole block of addresses is behind its end. */
static long blocks_lead(struct worker *w, int fd)
{
	const uint32_t first = w->order.request.shared_address;
	const uint32_t first6[4] = { htonl(POLICY_SHARED_V6_0), 0, 0, htonl(first) };
	const struct route_prefix block4 = route_prefix4(POLICY_SHARED_V4 + first, BLOCK_PREFIX4);
	const struct route_prefix block6 = route_prefix6((const uint8_t *)first6, BLOCK_PREFIX6);
	const struct route_prefix via4 = own4(w, EGRESS_SANDBOX), via6 = own6(w, EGRESS_SANDBOX);
	long r = TRY(EGRESS, route_via_add(fd, &block4, &via4));

	return r < 0 || !has_six(w) ? r : TRY(EGRESS, route_via_add(fd, &block6, &via6));
}

/* The worker is in the router's. */
static long outer_end(struct worker *w)
{
	char peer[ROUTE_NAME_BYTES];
	long r, fd = TRY(EGRESS, route_open());

	if (fd < 0)
		return fd;
	peer_name(w, peer);
	r = end_furnish(w, (int)fd, peer, EGRESS_ROUTER, EGRESS_SANDBOX);
	if (r >= 0 && w->order.request.flags & LAUNCH_SHARED)
		r = blocks_lead(w, (int)fd);
	(void)kernel_close((int)fd); /* acknowledged */
	return r;
}

long egress_make(struct worker *w, int ns_fd)
{
	long back, r = inner_settle(w);

	if (r >= 0)
		r = inner_end(w);
	if (r < 0)
		return r;
	r = TRY(EGRESS, kernel_setns(LAUNCH_FD_ROUTER, CLONE_NEWNET, w->secret));
	if (r >= 0)
		r = outer_end(w);
	back = kernel_setns(ns_fd, CLONE_NEWNET, w->secret);
	return r < 0 ? r : back;
}

long egress_drop(struct worker *w)
{
	char peer[ROUTE_NAME_BYTES];
	long fd, r = TRY(EGRESS, kernel_setns(LAUNCH_FD_ROUTER, CLONE_NEWNET, w->secret));

	if (r < 0)
		return r;
	peer_name(w, peer);
	fd = r = TRY(EGRESS, route_open());
	if (fd >= 0) {
		r = TRY(EGRESS, route_link_delete((int)fd, peer));
		(void)kernel_close((int)fd); /* acknowledged */
	}
	network_leave(w);
	return r == -ENODEV ? 0 : r;
}

long egress_count(struct worker *w)
{
	struct launch_reply *reply = &w->order.reply;
	long fd, r = network_enter(w, LAUNCH_STEP_EGRESS);

	if (r < 0)
		return r;
	fd = r = TRY(EGRESS, route_open());
	if (fd >= 0) {
		r = TRY(EGRESS, route_link_count((int)fd, "eth0", &reply->network_received_bytes,
						 &reply->network_sent_bytes));
		(void)kernel_close((int)fd); /* answered */
	}
	network_leave(w);
	return r;
}
