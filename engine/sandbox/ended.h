/*
 * What became of sandboxes that are gone: a bounded memory per shard, the oldest goes first.
 */
#pragma once

#include <stdint.h>

#include "dsec/ring.h"

enum { ENDED_MAX = 4096 };

struct ended {
	struct dsec_wire_id id; /* zero: none */
	uint64_t at_ns;
	uint32_t cause;	  /* enum dsec_cause */
	uint32_t tainted; /* bits 1 << enum dsec_anomaly */
};

struct ended_list {
	uint32_t next; /* over the oldest */
	struct ended all[ENDED_MAX];
};

void ended_add(struct ended_list *list, const struct ended *ended);
/* NULL: never there, or forgotten. */
const struct ended *ended_find(const struct ended_list *list, struct dsec_wire_id id);
