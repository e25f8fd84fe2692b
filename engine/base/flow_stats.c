/*
 * Owns the table from step to statistics. Called by the flow driver and by who reports metrics, on
 * the shard's thread. Always true: a step has at most one slot, and keeps it.
 */
#include "engine/base/flow_stats.h"

#include <stddef.h>

/* Step tables are const and live for ever: the address of a row is its identity. */
static uint32_t slot_of(const struct flow_step *step)
{
	return (uint32_t)(((uintptr_t)step * 0x9e3779b97f4a7c15ull) >> 40) % FLOW_STATS_STEPS_MAX;
}

struct flow_step_stats *flow_stats_of(struct flow_stats *stats, const char *table,
				      const struct flow_step *step)
{
	uint32_t first = slot_of(step);

	for (uint32_t i = 0; i < FLOW_STATS_STEPS_MAX; i++) {
		struct flow_step_stats *slot = &stats->steps[(first + i) % FLOW_STATS_STEPS_MAX];

		if (slot->step == step)
			return slot;
		if (slot->step)
			continue;
		slot->table = table;
		slot->step = step;
		stats->count++;
		return slot;
	}
	stats->unregistered++;
	return NULL;
}
