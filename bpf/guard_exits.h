/* One shard's stream of deaths, given its maps. For guard.c only. */
#pragma once

#include <stdint.h>

#include "bpf/guard.h"

/* Descriptors of the maps; the stream keeps copies of its own. */
struct guard_exit_maps {
	int ring_fd;
	uint32_t ring_bytes;
	int spill_fd;
	int counts_fd;
	uint32_t shards;
};

int guard_exits_new(const struct guard_exit_maps *maps, uint32_t shard, struct guard_exits **ret);
