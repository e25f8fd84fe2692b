/*
 * What a network namespace has beyond any other's where many sandboxes live in it: their addresses
 * are its own by two routes, so that nothing is added when one comes. Called by the worker. Must
 * hold: the addresses and ports are those that bpf/shared.bpf.c goes by.
 */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "backends/container/kernel.h"
#include "backends/container/netns.h"
#include "backends/container/route.h"
#include "backends/container/worker.h"
#include "bpf/policy_shared.h"

#define TRY(step, call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)

_Static_assert(POLICY_PORT_KERNEL_FIRST == 36000, "the settings below");
_Static_assert(POLICY_PORT_KERNEL_LAST == 49999, "the settings below");

enum { PREFIX4 = 10, PREFIX6 = 64 };

static long routes_add(struct worker *w)
{
	const uint32_t first6[4] = { htonl(POLICY_SHARED_V6_0) };
	const struct route_prefix all4 = route_prefix4(POLICY_SHARED_V4, PREFIX4);
	const struct route_prefix all6 = route_prefix6((const uint8_t *)first6, PREFIX6);
	long r, fd = TRY(NETNS, route_open());

	if (fd < 0)
		return fd;
	r = TRY(NETNS, route_local_add((int)fd, "lo", &all4));
	if (r >= 0)
		r = TRY(NETNS, route_local_add((int)fd, "lo", &all6));
	(void)kernel_close((int)fd); /* acknowledged */
	return r;
}

long shared_furnish(struct worker *w)
{
	static const struct {
		const char *path, *value;
	} settings[] = {
		/* The route alone does not let IPv6 bind. */
		{ "sys/net/ipv6/ip_nonlocal_bind", "1" },
		/* POLICY_PORT_KERNEL_FIRST to _LAST */
		{ "sys/net/ipv4/ip_local_port_range", "36000 49999" },
		/* The kernel's own exception for loopback is for 127/8 and ::1. */
		{ "sys/net/ipv4/tcp_tw_reuse", "1" },
		/* What buffers grow to by themselves: the host's TCP is not one sandbox's. */
		{ "sys/net/ipv4/tcp_rmem", "4096 131072 524288" },
		{ "sys/net/ipv4/tcp_wmem", "4096 16384 524288" },
	};
	long r = routes_add(w);

	for (unsigned i = 0; r >= 0 && i < sizeof settings / sizeof *settings; i++)
		r = TRY(NETNS, setting_write(w->sysctl_fd, settings[i].path, settings[i].value));
	return r;
}

void shared_addresses(const struct worker *w, uint32_t ret4[static 1], uint32_t ret6[static 4])
{
	const uint32_t number = w->order.request.shared_address;

	*ret4 = htonl(POLICY_SHARED_V4 + number);
	memset(ret6, 0, 4 * sizeof *ret6);
	ret6[0] = htonl(POLICY_SHARED_V6_0);
	ret6[3] = htonl(number);
}
