/*
 * Owns the programs that keep sandboxes of network `shared` apart (shared.bpf.c), and the map that
 * says who is one. Called by guard.c. Must hold: all of the programs are attached, or none is.
 */
#include "bpf/guard_shared.h"

#include <arpa/inet.h>
#include <errno.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/guard.h"
#include "bpf/guard_hooks.h"
#include "bpf/guard_pins.h"
#include "bpf/guard_violations.h"
#include "bpf/policy.h"
#include "bpf/policy_shared.h"
#include "bpf/shared.skel.h"

static int shared_attach(struct guard_hooks *hooks, const struct shared_bpf *shared)
{
	struct bpf_program *program;
	int r = 0;

	if (hooks->pinned)
		r = guard_pins_add(hooks->pins, bpf_map__fd(shared->maps.shared), "shared");
	bpf_object__for_each_program(program, shared->obj) if (r == 0)
		r = guard_hooks_attach(hooks, program);
	return r;
}

int guard_shared_open(const struct guard_programs_options *options, struct shared_bpf **ret)
{
	LIBBPF_OPTS(bpf_object_open_opts, open, .kernel_log_buf = options->log,
		    .kernel_log_size = options->log_bytes);
	const uint32_t first = options->hooks->count;
	struct shared_bpf *shared;
	int r;

	options->log[0] = '\0';
	shared = shared_bpf__open_opts(&open);
	if (!shared)
		return -errno;
	shared->rodata->slot_level = options->slot_level;
	r = guard_violation_maps_share(options->violations, shared->obj);
	if (r == 0)
		r = shared_bpf__load(shared);
	if (r == 0) {
		options->log[0] = '\0';
		r = shared_attach(options->hooks, shared);
	}
	if (r < 0) {
		guard_hooks_detach(options->hooks, first);
		shared_bpf__destroy(shared);
		return r;
	}
	*ret = shared;
	return 0;
}

void guard_shared_close(struct shared_bpf *shared)
{
	shared_bpf__destroy(shared);
}

/* Of entries: those of a cgroup that had one before are not counted again. Any thread. */
static uint64_t generation_next(struct shared_bpf *shared)
{
	return __atomic_add_fetch(&shared->bss->generations, 1, __ATOMIC_RELAXED);
}

int guard_shared_add(struct shared_bpf *shared, uint64_t cgroup_id, const struct guard_shared *what)
{
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	struct policy_shared entry = { .ports_max = what->ports_max };

	if (!what->address || what->address >= GUARD_SHARED_ADDRESSES || !what->ports_max)
		return -EINVAL;
	entry.generation = generation_next(shared);
	entry.port_next = what->address * 2654435761u; /* nobody begins where the next one does */
	entry.address4 = htonl(POLICY_SHARED_V4 + what->address);
	entry.address6[0] = htonl(POLICY_SHARED_V6_0);
	entry.address6[3] = htonl(what->address);
	return bpf_map_update_elem(bpf_map__fd(shared->maps.shared), &slot, &entry, BPF_ANY);
}

int guard_shared_read(const struct shared_bpf *shared, uint64_t cgroup_id,
		      struct guard_shared_counts *ret)
{
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	struct policy_shared entry;
	int r = bpf_map_lookup_elem(bpf_map__fd(shared->maps.shared), &slot, &entry);

	if (r < 0)
		return r;
	*ret = (struct guard_shared_counts){
		.sent_packets = entry.counts.sent_packets,
		.sent_bytes = entry.counts.sent_bytes,
		.received_packets = entry.counts.received_packets,
		.received_bytes = entry.counts.received_bytes,
		.refused = entry.counts.refused,
		.dropped = entry.counts.dropped,
		.ports = (uint32_t)entry.ports,
	};
	return 0;
}

int guard_shared_clear(const struct shared_bpf *shared, uint64_t cgroup_id)
{
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	int r = shared ? bpf_map_delete_elem(bpf_map__fd(shared->maps.shared), &slot) : 0;

	return r == -ENOENT ? 0 : r;
}
