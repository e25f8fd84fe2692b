/*
 * A client of a fuzz run. What it asks and what it is told is kept account of: no ticket ends
 * twice, nothing comes after an end, and what did not break the rules ends.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/fuzz/node.h"
#include "tests/hostile/client/raw.h"

enum { TICKETS_MAX = 160, IDS_MAX = 16 };

/* Sandboxes that any client was told of. */
struct known_ids {
	struct dsec_wire_id ids[IDS_MAX];
	uint32_t count;
	struct dsec_wire_id function; /* the last one that was registered */
};

/* How a ticket ended. */
struct end {
	uint16_t code;
	uint32_t reason;		/* of a program, 0: none was told */
	struct dsec_wire_status status; /* where code is not 0 */
};

struct visitor {
	struct raw raw;
	struct known_ids *known;
	bool open; /* the handshake is over */
	bool wild; /* it broke the rules: no account is kept */
	uint32_t tickets;
	uint8_t lasts[TICKETS_MAX];
	struct end ends[TICKETS_MAX];
	char *in; /* stream: received, not yet read */
	size_t in_bytes;
};

/* A connection on which nothing was said. */
void visitor_connect(struct visitor *v, struct fuzz_node *node, struct known_ids *known);
/* The handshake as it should be. False: refused. */
bool visitor_open(struct visitor *v, struct fuzz_node *node, const struct dsec_ring_hello *hello);
/* Sends a request under the next ticket, over either transport. */
void visitor_ask(struct visitor *v, struct dsec_ring_request *entry, const void *payload,
		 uint32_t bytes);
/* Reads so many events, or those that are there: how many. */
uint32_t visitor_read(struct visitor *v, uint32_t count);
bool visitor_is_cut(struct visitor *v);
/* Nothing is there to be received, not even the end. */
bool visitor_is_silent(const struct visitor *v);
/* All that it asked has ended. */
bool visitor_is_answered(const struct visitor *v);
void visitor_close(struct visitor *v);
