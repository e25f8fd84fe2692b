/*
 * A way out of a sandbox's network namespace: a veth pair to the router's. Called by the worker as
 * it makes or drops one. Must hold: the sandbox's end belongs to the host's user namespace as all
 * of its namespace does, so its address cannot be changed inside; the router's end goes before its
 * number is used again.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "backends/container/egress.h"
#include "backends/container/kernel.h"
#include "backends/container/netns.h"
#include "backends/container/route.h"
#include "backends/container/worker.h"
#include "bpf/policy_shared.h"

#define TRY(step, call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)

enum { PREFIX = 30, BLOCK_PREFIX = 16 };

_Static_assert(POLICY_SHARED_BLOCK == 1 << (32 - BLOCK_PREFIX), "a route leads to a block");

static void peer_name(const struct worker *w, char name[static ROUTE_NAME_BYTES])
{
	(void)snprintf(name, ROUTE_NAME_BYTES, "s%u", w->order.request.network);
}

static long end_furnish(struct worker *w, int fd, const char *name, uint32_t address)
{
	long r = TRY(EGRESS, route_address_add(fd, name, address, PREFIX));

	return r < 0 ? r : TRY(EGRESS, route_link_up(fd, name));
}

/* The worker is in the sandbox's. */
static long inner_end(struct worker *w)
{
	const uint32_t first = w->order.request.egress_address;
	char peer[ROUTE_NAME_BYTES];
	long r, fd = TRY(EGRESS, route_open());

	if (fd < 0)
		return fd;
	peer_name(w, peer);
	r = TRY(EGRESS, route_pair_make((int)fd, "eth0", peer, LAUNCH_FD_ROUTER));
	if (r >= 0)
		r = end_furnish(w, (int)fd, "eth0", first + EGRESS_SANDBOX);
	if (r >= 0)
		r = TRY(EGRESS, route_via_add((int)fd, 0, 0, first + EGRESS_ROUTER));
	(void)kernel_close((int)fd); /* acknowledged */
	return r;
}

/* The worker is in the router's. */
static long outer_end(struct worker *w)
{
	const uint32_t first = w->order.request.egress_address;
	char peer[ROUTE_NAME_BYTES];
	long r, fd = TRY(EGRESS, route_open());

	if (fd < 0)
		return fd;
	peer_name(w, peer);
	r = end_furnish(w, (int)fd, peer, first + EGRESS_ROUTER);
	/* A namespace of many: a whole block of addresses is behind its end. */
	if (r >= 0 && w->order.request.flags & LAUNCH_SHARED)
		r = TRY(EGRESS,
			route_via_add((int)fd, POLICY_SHARED_V4 + w->order.request.shared_address,
				      BLOCK_PREFIX, first + EGRESS_SANDBOX));
	(void)kernel_close((int)fd); /* acknowledged */
	return r;
}

long egress_make(struct worker *w, int ns_fd)
{
	long back, r = inner_end(w);

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
