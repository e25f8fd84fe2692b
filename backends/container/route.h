/*
 * Links, addresses and routes by rtnetlink. System calls only: for workers, and for the engine
 * between fork and exec. They return -errno. All are about the namespace the socket was made in.
 */
#pragma once

#include <stdint.h>

enum { ROUTE_NAME_BYTES = 16, ROUTE_MAC_BYTES = 6 };

/* An address, or all that have its first bits. */
struct route_prefix {
	int family; /* AF_INET, AF_INET6 */
	uint8_t bits;
	uint8_t address[16]; /* in network order; of IPv4 the first four */
};

struct route_prefix route_prefix4(uint32_t address, uint8_t bits); /* in host byte order */
struct route_prefix route_prefix6(const uint8_t address[16], uint8_t bits);

/* One end of a link. */
struct route_end {
	char name[ROUTE_NAME_BYTES];
	uint8_t mac[ROUTE_MAC_BYTES];
};

/* Its address follows from which end it is, of which link. */
struct route_end route_end_of(const char *name, uint8_t which, uint32_t number);

/* A socket. */
long route_open(void);
/* A veth pair: one end here, the other in the namespace of there_ns_fd. */
long route_pair_make(int fd, const struct route_end *here, const struct route_end *there,
		     int there_ns_fd);
long route_link_up(int fd, const char *name);
/* What it received and sent so far. */
long route_link_count(int fd, const char *name, uint64_t *ret_received, uint64_t *ret_sent);
long route_link_delete(int fd, const char *name); /* its peer goes too. -ENODEV */
/* The link's own, and the others of the prefix are reached by it. */
long route_address_add(int fd, const char *name, const struct route_prefix *own);
/* Who has that address on the link: nobody is asked, and nobody can say otherwise. */
long route_neighbour_add(int fd, const char *name, const struct route_prefix *who,
			 const uint8_t mac[ROUTE_MAC_BYTES]);
/* No bits: everywhere. */
long route_via_add(int fd, const struct route_prefix *to, const struct route_prefix *gateway);
/* A whole prefix is the machine's own, by this link. */
long route_local_add(int fd, const char *name, const struct route_prefix *own);
