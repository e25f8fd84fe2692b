/*
 * Links, addresses and routes by rtnetlink. System calls only: for workers, and for the engine
 * between fork and exec. They return -errno. All are about the namespace the socket was made in.
 */
#pragma once

#include <stdint.h>

enum { ROUTE_NAME_BYTES = 16 };

/* A socket. */
long route_open(void);
/* A veth pair: `name` here, `peer` in the namespace of peer_ns_fd. */
long route_pair_make(int fd, const char *name, const char *peer, int peer_ns_fd);
long route_link_up(int fd, const char *name);
/* What it received and sent so far. */
long route_link_count(int fd, const char *name, uint64_t *ret_received, uint64_t *ret_sent);
long route_link_delete(int fd, const char *name); /* its peer goes too. -ENODEV */
/* IPv4, in host byte order. */
long route_address_add(int fd, const char *name, uint32_t address, uint8_t prefix);
long route_via_add(int fd, uint32_t destination, uint8_t prefix, uint32_t gateway);
/* A whole prefix is the machine's own, by this link: `address` in network order, 4 or 16 bytes. */
long route_local_add(int fd, const char *name, const void *address, uint8_t prefix, int family);
