/*
 * Bytes between two connected sockets, both ways, with half-close: the end of one side's stream is
 * told to the other, whose own goes on. Used by connections to ports of sandboxes, and by those
 * that leave them by name.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/io.h"

enum { RELAY_BYTES = 32 << 10 }; /* of memory, each way */

struct relay;

struct relay_way {
	struct io_op op;
	struct relay *relay;
	int from_fd, to_fd;
	char *buffer;
	uint32_t at, bytes; /* to be sent */
	bool busy, ended;
};

struct relay {
	struct io *io;
	struct relay_way ways[2]; /* from fds[0] to fds[1], and back */
	bool stopping;
	int error;
	uint64_t moved_bytes; /* received so far, both ways */
	void *owner;
	/*
	 * Both streams have ended (0), or one failed (-errno), or after relay_stop() that returned
	 * false. Nothing is in flight then. Never from inside a call of relay.h.
	 */
	void (*over)(struct relay *relay, int error);
};

/*
 * `owner` and `over` are set before. The descriptors stay the caller's; they are in blocking mode.
 * `first` is sent to fds[1] before anything else, and copied. -ENOMEM, and nothing began.
 */
int relay_open(struct relay *relay, struct io *io, const int fds[2], const char *first,
	       uint32_t first_bytes);
/* True: nothing is in flight, and over() does not come; else it comes. */
bool relay_stop(struct relay *relay);
/* What is cut must not look as if it had ended: both ends get a reset when they are closed. */
void relay_reset(const int fds[2]);
/* Nothing may be in flight. Fine on one that is zero. */
void relay_done(struct relay *relay);
