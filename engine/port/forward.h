/*
 * Ways into sandboxes: a forward is a port of a sandbox and the token that opens it, an inbound a
 * connection of somebody on this host. A shard has one listener for all of its sandboxes, on a
 * loopback address of the host, while there are forwards. Who connects sends the token and a
 * newline; then bytes flow both ways. docs/network.md has the limits.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "dsec/ring.h"
#include "engine/base/io.h"
#include "engine/base/pool.h"
#include "engine/base/timer.h"
#include "engine/config.h"
#include "engine/port/relay.h"

struct sandbox;
struct shard;

enum {
	FORWARDS_MAX = 1024, /* per shard */
	FORWARDS_PER_SANDBOX_MAX = 16,
	INBOUNDS_PER_SANDBOX_MAX = 64,
	INBOUNDS_UNPROVEN_MAX = 64, /* that have shown no token yet: then the oldest goes */
	INBOUND_TOKEN_MS = 5000,    /* in which they must */
	INBOUND_LINE_BYTES_MAX = 256,
	FORWARD_SECRET_BYTES = 16,
	FORWARD_TOKEN_BYTES = 49, /* 16 and 32 hexadecimal digits, NUL */
};

struct forward {
	struct sandbox *sandbox;
	struct forward *next; /* of the sandbox */
	uint32_t port;
	char token[FORWARD_TOKEN_BYTES];
};

enum inbound_state { INBOUND_TOKEN, INBOUND_CONNECT, INBOUND_RELAY };

struct inbound {
	struct forwards *in;
	struct sandbox *sandbox; /* NULL: no token yet, or not any more */
	enum inbound_state state;
	bool ending;
	uint64_t sequence; /* of those of the shard */
	int fds[2];	   /* of who connected; inside the sandbox, -1: not yet */
	struct io_op op;
	struct timer deadline;
	char line[INBOUND_LINE_BYTES_MAX];
	uint32_t line_bytes, token_bytes; /* token_bytes: with the newline */
	struct box_port port;
	struct relay relay;
};

struct forwards {
	struct shard *shard;
	int listener_fd; /* -1: not yet */
	char address[DSEC_ADDRESS_BYTES_MAX];
	struct io_op accept;
	bool accepting, stopping;
	struct pool all, inbounds;
	uint32_t unproven;
	uint64_t inbound_sequence;
	uint64_t accepted_total, tokens_refused, refused_total;
};

/* Fine to be called on one that is zero. */
int forwards_init(struct forwards *forwards, struct shard *shard);
void forwards_done(struct forwards *forwards);
/*
 * The sandbox's forward to this port, made where there is none: asking again is told the same
 * token. -EAGAIN: a limit, named in *ret_limit.
 */
int forward_get(struct sandbox *sandbox, uint32_t port, struct forward **ret,
		const char **ret_limit);
const char *forward_address(const struct forward *forward);
/* Its token opens nothing any more; connections that it opened go on. False: there was none. */
bool forward_revoke(struct sandbox *sandbox, uint32_t port);
/* The sandbox ends: its tokens die and its connections are cut. */
void forwards_end(struct sandbox *sandbox);
/* The shard stops. It has not stopped while inbounds are left. */
void forwards_stop(struct forwards *forwards);

/* ---- inbound.c ---- */

/* Takes the descriptor. */
void inbound_begin(struct forwards *forwards, int fd);
/* Is or will be freed. */
void inbound_end(struct inbound *inbound);
/* The forward that a token opens, or NULL; in a time that does not depend on the secret. */
struct forward *forward_of_token(struct forwards *forwards, const char *token, uint32_t bytes);
