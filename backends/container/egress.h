/*
 * The way out of sandboxes: a router namespace of the instance's own between its
 * sandboxes and the host, one veth from there to the host, and one table of rules on each side.
 * Control thread only; it runs nft(8).
 */
#pragma once

#include <stdint.h>

struct egress {
	int router_ns_fd;      /* -1: there is none */
	uint32_t first, bytes; /* the range: its first address, and how many */
	char link[16], table[40];
};

enum {
	EGRESS_BLOCK = 4,  /* addresses of a sandbox, and of the link to the host */
	EGRESS_ROUTER = 1, /* of a sandbox's */
	EGRESS_SANDBOX = 2,
};

/*
 * `range`: "10.200.0.0/16". Fails with a line in the log that names the cause and the remedy:
 * -EINVAL the range, -EADDRINUSE a route of the host's lies in it, -EOPNOTSUPP the host cannot.
 */
int egress_open(struct egress *egress, const char *range, const char *instance);
/* Everything on the host goes. Fine on one that was not opened, whose router_ns_fd is -1. */
void egress_close(struct egress *egress);
/* What a dead engine of this instance left on the host. */
int egress_sweep(const char *instance);
/* The first of the four addresses of network N, or 0: the range has no more. */
uint32_t egress_address(const struct egress *egress, uint32_t network);
