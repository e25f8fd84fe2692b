/*
 * Local connections, led through a forward of the engine's: the token is sent for them. One thread
 * per connection.
 */
#pragma once

#include <dsec/dsec.h>

struct bridge {
	int listen_fd;
	char address[64]; /* where it listens, with the port that was found */
	struct dsec_forward forward;
};

/* "127.0.0.1:9000", "[::1]:9000", "9000" (127.0.0.1); port 0: any. -EINVAL: none of these. */
int bridge_open(struct bridge *bridge, const char *listen, const struct dsec_forward *forward);
/* Until the engine's address refuses connections (-ECONNREFUSED), or something fails. */
int bridge_run(struct bridge *bridge);
