/*
 * The way out of sandboxes: a router namespace of the instance's own between its
 * sandboxes and the host, one veth from there to the host, and one table of rules on each side.
 * Control thread only; it runs nft(8).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "backends/container/egress_range.h"
#include "backends/container/route.h"

struct egress {
	int router_ns_fd; /* -1: there is none */
	int host_ns_fd;	  /* where whoever was in it goes back to; -1 as well */
	struct egress_range4 range4;
	struct egress_range6 range6; /* of no bits: nothing leads out by IPv6 */
	char link[16], table[40];
	int *resolver_fds; /* of each shard EGRESS_SOCKETS; NULL: names cannot be asked */
	uint32_t resolver_count;
};

enum {
	EGRESS_BLOCK = 4,	   /* addresses of a sandbox, and of the link to the host */
	EGRESS_ROUTER_ADDRESS = 2, /* of the link's: the resolver's, too */
	EGRESS_ROUTER = 1,	   /* of a sandbox's */
	EGRESS_SOCKETS = 3,	   /* of a shard there: names by UDP, by TCP, and the forwarder's */
	EGRESS_PORT_TLS = 443,	   /* the forwarder's; nobody connects there but by redirection */
	EGRESS_SANDBOX = 2,
};

/*
 * "10.200.0.0/16"; "fd00:d5ec::/64" or NULL. Fails with a line in the log that names the cause and
 * the remedy: -EINVAL a range, -EADDRINUSE a route of the host's lies in it, -EADDRNOTAVAIL it
 * holds what is others', -ENETDOWN the host does not forward, -EOPNOTSUPP the host cannot.
 */
int egress_open(struct egress *egress, const char *range4, const char *range6,
		const char *instance);
/* Everything on the host goes. Fine on one that was not opened, whose router_ns_fd is -1. */
void egress_close(struct egress *egress);
/* What a dead engine of this instance left on the host. */
int egress_sweep(const char *instance);
/* The first of the four addresses of network N, or 0: the ranges have no more. */
uint32_t egress_address4(const struct egress *egress, uint32_t network);
/* The same of IPv6; false: there are none. */
bool egress_address6(const struct egress *egress, uint32_t network, uint8_t ret[16]);

/* All addresses that sandboxes and ways out may have, network `shared`'s with them: how many. */
uint32_t egress_own(const struct egress *egress, struct backend_prefix ret[BACKEND_PREFIXES_MAX]);

/* Which ends of links there are, for route_end_of(); of which network's. */
enum { EGRESS_MAC_ROUTER = 1, EGRESS_MAC_OTHER = 2 };
#define EGRESS_LINK_NETWORK UINT32_MAX /* the link to the host */

/*
 * Sockets at the router's address, for each shard those of EGRESS_SOCKETS: what sandboxes of a
 * shard say there its own hear. Network N is of shard N / networks_per_shard. After
 * egress_open().
 */
int egress_resolver_open(struct egress *egress, uint32_t shards, uint32_t networks_per_shard);
void egress_resolver_take(struct egress *egress, uint32_t shard,
			  int ret_fds[static EGRESS_SOCKETS]);
void egress_resolver_close(struct egress *egress); /* fine where there are none */
/* A socket of TCP of the router's namespace. The calling thread is in its own again after it. */
int egress_outbound_socket(const struct egress *egress);
/* In host byte order; 0: there is none. */
uint32_t egress_resolver_address(const struct egress *egress);
