/*
 * What requests may ask: one row per op. Read by request.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct part;
struct request;

/*
 * TURNS: all shards, one after the other in order of their numbers. SHARED: the shard of its
 * request id, or where there is more to do a share of it for each. ID: that shard.
 */
enum target {
	TARGET_HOME,
	TARGET_SUBJECT,
	TARGET_ALL,
	TARGET_TURNS,
	TARGET_SHARED,
	TARGET_ID,
	TARGET_TICKET,
	TARGET_JOURNAL
};

enum { BODY_BYTES = UINT32_MAX }; /* op_info.body_bytes: no struct, the payload is the op's own */

struct op_info {
	const char *name;
	enum target target;
	uint32_t body_bytes; /* of the fixed struct in the payload; 0: no payload */
	void (*run)(struct part *part);
	void (*cancel)(struct part *part); /* NULL: the op ends soon by itself */
	/*
	 * Of requests that take or send streams, on their part's shard, while it has not ended.
	 * input: bytes for it (inlet_add()). credit: its client has consumed so much of a stream;
	 * -EINVAL: that cannot be.
	 */
	void (*input)(struct part *part, struct part *input);
	int (*credit)(struct part *part, uint32_t stream, uint64_t consumed);
	bool needs_client; /* cancelled when its client goes */
	bool for_everyone; /* a gateway may ask it of all tenants at once */
};

/* NULL: this engine does not know it. */
const struct op_info *op_of(const struct request *request);
