/* Packets with at most one descriptor, for both ends of the keeper's socket. */
#pragma once

#include <stddef.h>

/* Sends one packet; fd -1: without a descriptor. Never blocks when `flags` has MSG_DONTWAIT. */
int keeper_wire_send(int socket_fd, const void *packet, size_t bytes, int fd, int flags);
/*
 * Receives one packet of exactly `bytes`, and its descriptor or -1. More descriptors than one are
 * closed. -EPIPE at the end, -EBADMSG for any other size, -EAGAIN, -ETIMEDOUT.
 */
int keeper_wire_receive(int socket_fd, void *packet, size_t bytes, int flags, int *ret_fd);
