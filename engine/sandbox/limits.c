/*
 * What limits a sandbox gets. Called by create.c and by what shows a sandbox's settings. Must hold:
 * a limit that was asked for is enforced, or the create fails, or the caller allowed to go without
 * and is told.
 */
#include "engine/sandbox/limits.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/config.h"

enum { FIELD_32 = 4, FIELD_64 = 8 };

struct limit {
	const char *name;
	size_t at; /* in struct dsec_wire_create */
	uint32_t bytes;
	uint64_t min, max; /* of what is not 0 */
	const char *range; /* for people */
	uint32_t bit;	   /* enum dsec_limit */
	const char *remedy;
};

#define FIELD(name, bytes) offsetof(struct dsec_wire_create, name), bytes
#define REMEDY(what)	   what "; allow degraded, or see dsecd --check"

/* clang-format off */
static const struct limit limits[] = {
	{ "memory", FIELD(memory_bytes, FIELD_64), 1 << 20, 1ull << 46, "from 1 MiB to 64 TiB",
	  DSEC_LIMIT_MEMORY, REMEDY("no memory controller on cgroup v2 here") },
	{ "swap", FIELD(swap_bytes, FIELD_64), 1, 1ull << 46, "at most 64 TiB",
	  DSEC_LIMIT_SWAP, REMEDY("no memory.swap.max on cgroup v2 here") },
	{ "pids", FIELD(pids_max, FIELD_32), 2, 4 << 20, "from 2 to 4194304",
	  DSEC_LIMIT_PIDS, REMEDY("nothing here limits processes") },
	{ "cpu_weight", FIELD(cpu_weight, FIELD_32), 1, 10000, "from 1 to 10000",
	  DSEC_LIMIT_CPU, REMEDY("no cpu controller on cgroup v2 here") },
	{ "cpu", FIELD(cpu_max_permille, FIELD_32), 10, 4096000, "from 0.01 to 4096 CPUs",
	  DSEC_LIMIT_CPU, REMEDY("no cpu controller on cgroup v2 here") },
	{ "io", FIELD(io_bytes_per_s, FIELD_64), 4096, 1ull << 46, "from 4 KiB a second",
	  DSEC_LIMIT_IO, REMEDY("no io controller for the images' disk") },
	{ "io_weight", FIELD(io_weight, FIELD_32), 1, 10000, "from 1 to 10000",
	  DSEC_LIMIT_IO_WEIGHT, REMEDY("no io.weight on cgroup v2 here") },
	{ "processes_per_s", FIELD(processes_per_s, FIELD_32), 1, 1000000,
	  "from 1 to 1000000, or unlimited", DSEC_LIMIT_PROCESSES,
	  REMEDY("no BPF, or no cgroups by id, for the governor") },
	{ "disk", FIELD(disk_bytes, FIELD_64), 1 << 16, 1ull << 46, "64 KiB to 64 TiB", 0, NULL },
	{ "inodes", FIELD(inodes, FIELD_64), 16, 1ull << 31, "from 16 to 2147483648", 0, NULL },
	{ "output_limit", FIELD(output_limit_bytes, FIELD_64), 1, OUTPUT_LIMIT_BYTES_MAX,
	  "at most 64 TiB", 0, NULL },
};
/* clang-format on */

static uint64_t limit_value(const struct dsec_wire_create *wish, const struct limit *limit)
{
	const char *field = (const char *)wish + limit->at;

	return limit->bytes == FIELD_64 ? *(const uint64_t *)field : *(const uint32_t *)field;
}

/* It may be asked for by name that there be none. */
static bool limit_is_lifted(const struct limit *limit, uint64_t value)
{
	return limit->bit == DSEC_LIMIT_PROCESSES && value == DSEC_PROCESSES_UNLIMITED;
}

static struct status limit_invalid(const char *name, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = ERANGE,
				.table = "create",
				.step = name,
				.detail = detail };
}

struct status limits_check(const struct dsec_wire_create *wish, uint32_t unenforced)
{
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
		const struct limit *limit = &limits[i];
		uint64_t value = limit_value(wish, limit);

		if (!value || limit_is_lifted(limit, value))
			continue;
		if (value < limit->min || value > limit->max)
			return limit_invalid(limit->name, limit->range);
		if (limit->bit & unenforced && !(wish->flags & DSEC_CREATE_ALLOW_DEGRADED))
			return (struct status){ .code = DSEC_UNSUPPORTED,
						.blame = DSEC_BLAME_CALLER,
						.table = "create",
						.step = limit->name,
						.detail = limit->remedy };
	}
	if (wish->flags & DSEC_CREATE_SCHED_IDLE && wish->cpu_weight)
		return limit_invalid("cpu_weight", "what runs only when idle has no weight");
	return STATUS_OK;
}

struct box_limits limits_of(const struct config *config, const struct dsec_wire_create *wish)
{
	return (struct box_limits){
		.memory_bytes = wish->memory_bytes ? wish->memory_bytes : config->memory_bytes,
		.swap_bytes = wish->swap_bytes,
		.io_bytes_per_s = wish->io_bytes_per_s,
		.pids_max = wish->pids_max ? wish->pids_max : config->pids_max,
		.cpu_weight = wish->cpu_weight,
		.cpu_max_permille = wish->cpu_max_permille,
		.io_weight = wish->io_weight,
		.processes_per_s = wish->processes_per_s == DSEC_PROCESSES_UNLIMITED ? 0 :
				   wish->processes_per_s ? wish->processes_per_s :
							   config->processes_per_s,
		.sched_idle = !!(wish->flags & DSEC_CREATE_SCHED_IDLE),
	};
}

uint32_t limits_in_force(const struct box_limits *l)
{
	return (l->memory_bytes ? DSEC_LIMIT_MEMORY : 0u) | (l->swap_bytes ? DSEC_LIMIT_SWAP : 0u) |
	       (l->pids_max ? DSEC_LIMIT_PIDS : 0u) |
	       (l->cpu_weight || l->cpu_max_permille ? DSEC_LIMIT_CPU : 0u) |
	       (l->io_bytes_per_s ? DSEC_LIMIT_IO : 0u) |
	       (l->io_weight ? DSEC_LIMIT_IO_WEIGHT : 0u) |
	       (l->processes_per_s ? DSEC_LIMIT_PROCESSES : 0u);
}
