/* Limits of a box: what the engine asks of a backend, and a backend of its processes. */
#pragma once

#include <stdint.h>

/*
 * What a sandbox's control group allows; a packet to the launcher carries it as it is. 0: no limit,
 * and the kernel's default weight. Without swap_bytes none of limited memory is swapped out.
 */
struct box_limits {
	uint64_t memory_bytes, swap_bytes;
	uint64_t io_bytes_per_s; /* to and from the images' device, each */
	uint32_t pids_max;
	uint32_t cpu_weight, cpu_max_permille; /* 1000: one CPU */
	uint32_t io_weight;
	uint32_t sched_idle;	  /* 1: runs only where nobody else wants to */
	uint32_t processes_per_s; /* processes and threads made, and ended, in a second */
};

_Static_assert(sizeof(struct box_limits) == 48, "no padding: compared as bytes");

/* Bits; numbered as the wire's enum dsec_limit. */
enum box_limit {
	BOX_LIMIT_MEMORY = 1,
	BOX_LIMIT_PIDS = 2,
	BOX_LIMIT_CPU = 4,
	BOX_LIMIT_SWAP = 8,
	BOX_LIMIT_IO = 16,
	BOX_LIMIT_IO_WEIGHT = 32,
	BOX_LIMIT_ALL = 63, /* those that a worker writes */
	BOX_LIMIT_PROCESSES = 64,
};
