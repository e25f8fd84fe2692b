/*
 * Owns the reading end of one shard's deaths: the mapped ring, the spill and the counts. Called by
 * the shard through guard.h, after guard.c made it.
 *
 * Must hold: the counts are read after the ring was drained. exit.bpf.c counts a spilled death and
 * then tries to wake us through the ring; where that fails the ring was full, so we have yet to
 * drain it and see the count after that.
 */
#include "bpf/guard_exits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "bpf/guard_ring.h"
#include "bpf/policy.h"
#include "engine/base/cleanup.h"

enum { SWEEP_BATCH = 256 };

struct guard_exits {
	struct guard_ring ring;
	int spill_fd;
	uint32_t shard;
	size_t counts_bytes;
	const struct policy_death_counts *counts;
	uint64_t spilled_seen, dropped_seen;

	/* A sweep of the spill under way; swept[at..count) are out of it but not yet told. */
	bool sweeping;
	uint32_t sweep_token;
	bool sweep_begun;
	uint32_t swept_at, swept_count;
	struct policy_process swept_keys[SWEEP_BATCH];
	struct policy_death swept[SWEEP_BATCH];
};

struct consumer {
	int max, done;
	void (*death)(void *context, const struct guard_death *d);
	void *context;
};

static int counts_map(struct guard_exits *exits, const struct guard_exit_maps *maps);
static void ring_drain(struct guard_exits *exits, struct consumer *consumer);
static int spill_sweep(struct guard_exits *exits, struct consumer *consumer);

int guard_exits_new(const struct guard_exit_maps *maps, uint32_t shard, struct guard_exits **ret)
{
	struct guard_exits *exits;
	int r;

	exits = calloc(1, sizeof(*exits));
	if (!exits)
		return -ENOMEM;
	exits->shard = shard;
	exits->counts = MAP_FAILED;
	exits->ring.fd = -1;
	exits->spill_fd = fcntl(maps->spill_fd, F_DUPFD_CLOEXEC, 0);
	r = exits->spill_fd < 0 ? -errno :
				  guard_ring_open(maps->ring_fd, maps->ring_bytes, &exits->ring);
	if (r == 0)
		r = counts_map(exits, maps);
	if (r < 0) {
		guard_exits_close(exits);
		return r;
	}
	*ret = exits;
	return 0;
}

int guard_exits_fd(const struct guard_exits *exits)
{
	return exits->ring.fd;
}

int guard_exits_consume(struct guard_exits *exits, int max,
			void (*death)(void *context, const struct guard_death *d), void *context)
{
	struct consumer consumer = { .max = max, .death = death, .context = context };
	uint64_t dropped = __atomic_load_n(&exits->counts[exits->shard].dropped, __ATOMIC_ACQUIRE);
	int r;

	if (dropped != exits->dropped_seen) {
		exits->dropped_seen = dropped;
		return -ENOBUFS;
	}
	/* First what is known to wait, so that a ring that is never empty cannot starve it. */
	r = spill_sweep(exits, &consumer);
	if (r == 0) {
		ring_drain(exits, &consumer);
		r = spill_sweep(exits, &consumer);
	}
	/* What was told is gone, so it outweighs the error, which the next call meets again. */
	return consumer.done ? consumer.done : r;
}

void guard_exits_counts(const struct guard_exits *exits, struct guard_exits_counts *ret)
{
	const struct policy_death_counts *counts = &exits->counts[exits->shard];

	ret->spilled = __atomic_load_n(&counts->spilled, __ATOMIC_RELAXED);
	ret->dropped = __atomic_load_n(&counts->dropped, __ATOMIC_RELAXED);
}

void guard_exits_close(struct guard_exits *exits)
{
	if (!exits)
		return;
	guard_ring_close(&exits->ring);
	if (exits->counts != MAP_FAILED)
		munmap((void *)exits->counts, exits->counts_bytes);
	if (exits->spill_fd >= 0)
		close(exits->spill_fd);
	free(exits);
}

static int counts_map(struct guard_exits *exits, const struct guard_exit_maps *maps)
{
	const size_t page = exits->ring.page_bytes;
	size_t counts_bytes = maps->shards * sizeof(*exits->counts);

	exits->counts_bytes = (counts_bytes + page - 1) / page * page;
	exits->counts = mmap(NULL, exits->counts_bytes, PROT_READ, MAP_SHARED, maps->counts_fd, 0);
	return exits->counts == MAP_FAILED ? -errno : 0;
}

static void death_tell(struct consumer *consumer, const struct policy_death *death)
{
	const struct guard_death told = {
		.cgroup_id = death->cgroup_id,
		.pid = death->pid,
		.code = death->code,
		.cpu_us = death->cpu_ns / 1000,
		.peak_bytes = death->peak_pages * (uint64_t)sysconf(_SC_PAGESIZE),
	};

	consumer->done++;
	consumer->death(consumer->context, &told);
}

static void ring_drain(struct guard_exits *exits, struct consumer *consumer)
{
	struct policy_death death;

	while (consumer->done < consumer->max &&
	       guard_ring_next(&exits->ring, &death, sizeof(death))) {
		if (death.pid)
			death_tell(consumer, &death);
	}
}

/* Takes the next deaths out of the spill; 0 with none left ends the sweep. */
static int spill_take(struct guard_exits *exits)
{
	uint32_t count = SWEEP_BATCH;
	int r;

	exits->swept_at = 0;
	exits->swept_count = 0;
	r = bpf_map_lookup_and_delete_batch(exits->spill_fd,
					    exits->sweep_begun ? &exits->sweep_token : NULL,
					    &exits->sweep_token, exits->swept_keys, exits->swept,
					    &count, NULL);
	if (r < 0 && r != -ENOENT)
		return r;
	exits->sweep_begun = true;
	exits->swept_count = count;
	if (r == -ENOENT)
		exits->sweeping = false;
	return 0;
}

static int spill_sweep(struct guard_exits *exits, struct consumer *consumer)
{
	uint64_t spilled;
	int r;

	while (consumer->done < consumer->max) {
		if (exits->swept_at < exits->swept_count) {
			death_tell(consumer, &exits->swept[exits->swept_at++]);
			continue;
		}
		if (!exits->sweeping) {
			spilled = __atomic_load_n(&exits->counts[exits->shard].spilled,
						  __ATOMIC_ACQUIRE);
			if (spilled == exits->spilled_seen)
				return 0;
			exits->spilled_seen = spilled;
			exits->sweeping = true;
			exits->sweep_begun = false;
		}
		r = spill_take(exits);
		if (r < 0)
			return r;
	}
	return 0;
}
