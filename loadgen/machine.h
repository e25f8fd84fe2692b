/* What /proc says of the machine while load runs. */
#pragma once

#include <stdint.h>

struct machine {
	char kernel[160], processor[160];
	uint32_t cpus;
	uint64_t memory_bytes;
};

struct machine_memory {
	uint64_t available_bytes, slab_bytes, percpu_bytes, page_tables_bytes;
};

struct machine_time {
	uint64_t busy_us, steal_us; /* of all CPUs together */
};

/* Each 0 or -errno. */
int machine_describe(struct machine *ret);
int machine_memory_read(struct machine_memory *ret);
int machine_time_read(struct machine_time *ret);
