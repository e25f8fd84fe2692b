/*
 * Owns the maps that BPF programs count violations in and tell them by, and the reading end of each
 * shard's ring. The maps are guard.c's, a stream is its shard's.
 *
 * Must hold: what is read of tallies is what the kernel has now; none is left when its sandbox is
 * gone, so the next in that cgroup begins at nothing.
 */
#include "bpf/guard_violations.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/guard_pins.h"
#include "bpf/guard_ring.h"
#include "bpf/tallies.skel.h"
#include "engine/base/cleanup.h"

enum { VIOLATION_RING_BYTES = 1 << 18 /* some 800 records */ };

struct guard_violation_maps {
	struct tallies_bpf *object;
	uint32_t shards;
	int ring_fds[];
};

struct guard_violations {
	struct guard_ring ring;
	int tallies_fd, heads_fd;
};

static int maps_load(struct guard_violation_maps *maps, const struct guard_options *options,
		     const struct policy_engine *place)
{
	const uint32_t zero = 0;
	int r;

	maps->object = tallies_bpf__open();
	if (!maps->object)
		return -errno;
	bpf_map__set_max_entries(maps->object->maps.violations, options->shards);
	r = tallies_bpf__load(maps->object);
	if (r < 0)
		return r;
	return bpf_map_update_elem(bpf_map__fd(maps->object->maps.engine_place), &zero, place, 0);
}

static int ring_add(struct guard_violation_maps *maps, uint64_t cgroup_id, uint32_t at)
{
	const struct policy_cgroup shard = { .cgroup_id = cgroup_id };
	char name[24];

	(void)snprintf(name, sizeof(name), "dsec_vio_%u", at);
	maps->ring_fds[at] =
		bpf_map_create(BPF_MAP_TYPE_RINGBUF, name, 0, 0, VIOLATION_RING_BYTES, NULL);
	if (maps->ring_fds[at] < 0)
		return maps->ring_fds[at];
	return bpf_map_update_elem(bpf_map__fd(maps->object->maps.violations), &shard,
				   &maps->ring_fds[at], BPF_NOEXIST);
}

int guard_violation_maps_open(const struct guard_options *options,
			      const struct policy_engine *place, struct guard_violation_maps **ret)
{
	struct guard_violation_maps *maps;
	int r;

	maps = calloc(1, sizeof(*maps) + options->shards * sizeof(maps->ring_fds[0]));
	if (!maps)
		return -ENOMEM;
	maps->shards = options->shards;
	for (uint32_t i = 0; i < maps->shards; i++)
		maps->ring_fds[i] = -1;
	r = maps_load(maps, options, place);
	for (uint32_t i = 0; i < maps->shards && r == 0; i++)
		r = ring_add(maps, options->shard_cgroup_ids[i], i);
	if (r < 0) {
		guard_violation_maps_close(maps);
		return r;
	}
	*ret = maps;
	return 0;
}

void guard_violation_maps_close(struct guard_violation_maps *maps)
{
	if (!maps)
		return;
	for (uint32_t i = 0; i < maps->shards; i++) {
		if (maps->ring_fds[i] >= 0)
			close(maps->ring_fds[i]);
	}
	tallies_bpf__destroy(maps->object);
	free(maps);
}

int guard_violation_maps_share(const struct guard_violation_maps *maps, struct bpf_object *object)
{
	struct bpf_map *own, *other;
	int r;

	if (!maps)
		return 0;
	bpf_object__for_each_map(own, maps->object->obj)
	{
		other = bpf_object__find_map_by_name(object, bpf_map__name(own));
		if (!other || bpf_map__is_internal(own))
			continue;
		r = bpf_map__reuse_fd(other, bpf_map__fd(own));
		if (r < 0)
			return r;
	}
	return 0;
}

int guard_violation_maps_pin(const struct guard_violation_maps *maps, const struct guard_pins *pins)
{
	int r;

	if (!maps)
		return 0;
	r = guard_pins_add(pins, bpf_map__fd(maps->object->maps.tallies), "tallies");
	if (r == 0)
		r = guard_pins_add(pins, bpf_map__fd(maps->object->maps.tally_heads),
				   "tally_heads");
	return r;
}

int guard_violations_new(const struct guard_violation_maps *maps, uint32_t shard,
			 struct guard_violations **ret)
{
	struct guard_violations *violations;
	int r;

	violations = calloc(1, sizeof(*violations));
	if (!violations)
		return -ENOMEM;
	violations->ring.fd = -1;
	violations->heads_fd = -1;
	violations->tallies_fd = fcntl(bpf_map__fd(maps->object->maps.tallies), F_DUPFD_CLOEXEC, 0);
	if (violations->tallies_fd >= 0)
		violations->heads_fd =
			fcntl(bpf_map__fd(maps->object->maps.tally_heads), F_DUPFD_CLOEXEC, 0);
	r = violations->heads_fd < 0 ?
		    -errno :
		    guard_ring_open(maps->ring_fds[shard], VIOLATION_RING_BYTES, &violations->ring);
	if (r < 0) {
		guard_violations_close(violations);
		return r;
	}
	*ret = violations;
	return 0;
}

int guard_violations_fd(const struct guard_violations *violations)
{
	return violations->ring.fd;
}

int guard_violations_consume(struct guard_violations *violations, int max,
			     void (*seen)(void *context, const struct policy_violation *v),
			     void *context)
{
	struct policy_violation violation;
	int done = 0;

	while (done < max && guard_ring_next(&violations->ring, &violation, sizeof(violation))) {
		seen(context, &violation);
		done++;
	}
	return done;
}

bool guard_violations_wait(const struct guard_violations *violations)
{
	return guard_ring_waits(&violations->ring);
}

int guard_tallies_read(struct guard_violations *violations, uint64_t cgroup_id,
		       struct guard_tallies *ret)
{
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	struct policy_tally_head head;
	struct policy_tally tally;
	uint32_t count;
	int r;

	r = bpf_map_lookup_elem(violations->heads_fd, &slot, &head);
	ret->count = 0;
	ret->others = 0;
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	ret->others = head.others;
	count = head.key_count < POLICY_TALLIES_MAX ? head.key_count : POLICY_TALLIES_MAX;
	for (uint32_t i = 0; i < count; i++) {
		const struct policy_tally_key key = { cgroup_id, head.names[i].rule,
						      head.names[i].hook };

		if (!key.hook)
			continue;
		r = bpf_map_lookup_elem(violations->tallies_fd, &key, &tally);
		if (r < 0)
			return r;
		ret->tallies[ret->count++] = (struct guard_tally){
			.rule = key.rule,
			.hook = key.hook,
			.count = tally.count,
			.lost = tally.lost,
			.first_ns = tally.first_ns,
			.last_ns = tally.last_ns,
		};
	}
	return 0;
}

int guard_tallies_drop(struct guard_violations *violations, uint64_t cgroup_id)
{
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	struct policy_tally_head head;
	uint32_t count;
	int r, failed;

	r = bpf_map_lookup_elem(violations->heads_fd, &slot, &head);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	count = head.key_count < POLICY_TALLIES_MAX ? head.key_count : POLICY_TALLIES_MAX;
	for (uint32_t i = 0; i < count; i++) {
		const struct policy_tally_key key = { cgroup_id, head.names[i].rule,
						      head.names[i].hook };

		failed = key.hook ? bpf_map_delete_elem(violations->tallies_fd, &key) : 0;
		if (failed < 0 && failed != -ENOENT)
			r = failed;
	}
	failed = bpf_map_delete_elem(violations->heads_fd, &slot);
	return r == 0 && failed != -ENOENT ? failed : r;
}

void guard_violations_close(struct guard_violations *violations)
{
	if (!violations)
		return;
	guard_ring_close(&violations->ring);
	if (violations->tallies_fd >= 0)
		close(violations->tallies_fd);
	if (violations->heads_fd >= 0)
		close(violations->heads_fd);
	free(violations);
}
