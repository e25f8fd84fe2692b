/*
 * Latencies per step of every table a shard walks. Fixed storage of the host's, filled as steps are
 * met; nothing allocates after it was created (zeroed). About 27 KiB a step in use.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/histogram.h"

struct flow_step;

enum { FLOW_STATS_STEPS_MAX = 64 }; /* a power of two */

struct flow_step_stats {
	const char *table;
	const struct flow_step *step; /* NULL: the slot is free */
	uint64_t failed, undone;
	struct histogram latency; /* of the starts that succeeded, start to settled, turn's clock */
};

struct flow_stats {
	uint64_t unregistered; /* events of steps that found no slot */
	uint32_t count;
	struct flow_step_stats steps[FLOW_STATS_STEPS_MAX]; /* hashed: walk all, skip step NULL */
};

/* The slot of a step, registered when new; NULL when all are taken. */
struct flow_step_stats *flow_stats_of(struct flow_stats *stats, const char *table,
				      const struct flow_step *step);
