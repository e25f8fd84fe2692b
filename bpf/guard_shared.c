/*
 * Owns the programs that keep sandboxes of network `shared` apart (shared.bpf.c), and what is told
 * of a sandbox's network. Called by guard.c, and by shards for the maps. Must hold: all of the
 * programs are attached, or none is.
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

_Static_assert((int)GUARD_SHARED_BLOCK == (int)POLICY_SHARED_BLOCK,
	       "guard.h and policy_shared.h agree");

/* The one that is on no cgroup: its link is the skeleton's. */
static int ends_attach(const struct guard_hooks *hooks, struct shared_bpf *shared)
{
	struct bpf_link *link = bpf_program__attach(shared->progs.dsec_end);

	if (!link)
		return -errno;
	shared->links.dsec_end = link;
	return hooks->pinned ? guard_pins_add(hooks->pins, bpf_link__fd(link),
					      bpf_program__name(shared->progs.dsec_end)) :
			       0;
}

static int shared_attach(struct guard_hooks *hooks, struct shared_bpf *shared)
{
	struct bpf_program *program;
	int r = 0;

	if (hooks->pinned)
		r = guard_pins_add(hooks->pins, bpf_map__fd(shared->maps.shared), "shared");
	bpf_object__for_each_program(program, shared->obj) if (r == 0)
		r = program == shared->progs.dsec_end ? ends_attach(hooks, shared) :
							guard_hooks_attach(hooks, program);
	return r;
}

int guard_shared_open(const struct guard_programs_options *options, struct shared_bpf **ret)
{
	LIBBPF_OPTS(bpf_object_open_opts, open, .kernel_log_buf = options->log,
		    .kernel_log_size = options->log_bytes);
	const uint32_t first = options->hooks->count;
	const bool pinned = options->hooks->pinned;
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
	/* What was to outlive the engine does, or is not there. */
	if (r == 0 && pinned && !options->hooks->pinned)
		r = -ENOSPC;
	options->hooks->pinned = pinned;
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

/* Where another one's word has the place, that stays. */
static void word_clear(__u64 *word, __u64 old)
{
	(void)__atomic_compare_exchange_n(word, &old, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static __u64 *hint_of(struct shared_bpf *shared, const struct policy_shared *entry)
{
	return &shared->bss->hints[policy_shared_at(ntohl(entry->address4))];
}

/* Whether the programs have nothing to say of the cgroup's packets. Any thread. */
static void stranger_set(struct shared_bpf *shared, uint64_t cgroup_id, bool is_stranger)
{
	__u64 *word = &shared->bss->strangers[policy_shared_at(cgroup_id)];

	if (is_stranger)
		__atomic_store_n(word, cgroup_id, __ATOMIC_RELAXED);
	else
		word_clear(word, cgroup_id);
}

/* Whether it is there. */
static bool entry_find(struct shared_bpf *shared, uint64_t cgroup_id, struct policy_shared *ret)
{
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };

	return bpf_map_lookup_elem(bpf_map__fd(shared->maps.shared), &slot, ret) == 0;
}

static int entry_add(struct shared_bpf *shared, uint64_t cgroup_id, const struct guard_shared *what)
{
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	struct policy_shared entry = { .ports_max = what->ports_max,
				       .datagrams_max = what->datagrams_max,
				       .connections_max = what->connections_max,
				       .leads_out = (what->leads_out ? POLICY_LEADS_OUT_4 : 0) |
						    (what->leads_out6 ? POLICY_LEADS_OUT_6 : 0) };
	struct policy_shared before;
	int r;

	entry.generation = generation_next(shared);
	entry.port_next = what->address * 2654435761u; /* nobody begins where the next one does */
	entry.address4 = htonl(POLICY_SHARED_V4 + what->address);
	entry.address6[0] = htonl(POLICY_SHARED_V6_0);
	entry.address6[3] = htonl(what->address);
	stranger_set(shared, cgroup_id, false);
	if (entry_find(shared, cgroup_id, &before))
		word_clear(hint_of(shared, &before),
			   policy_shared_hint(cgroup_id, before.address4));
	r = bpf_map_update_elem(bpf_map__fd(shared->maps.shared), &slot, &entry, BPF_ANY);
	if (r == 0)
		__atomic_store_n(hint_of(shared, &entry),
				 policy_shared_hint(cgroup_id, entry.address4), __ATOMIC_RELAXED);
	return r;
}

bool guard_shared_is_loaded(const struct guard *guard)
{
	return guard_sharing_of(guard).programs;
}

int guard_network_set(struct guard *guard, uint64_t cgroup_id, bool is_private)
{
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	const struct policy_network network = { .mode = POLICY_NETWORK_PRIVATE };
	const struct guard_sharing sharing = guard_sharing_of(guard);
	const int fd = sharing.networks_fd;
	int r;

	if (fd < 0)
		return -EOPNOTSUPP;
	if (!is_private) {
		r = bpf_map_delete_elem(fd, &slot);
		return r == 0 || r == -ENOENT ? guard_shared_clear(guard, cgroup_id) : r;
	}
	r = guard_shared_clear(guard, cgroup_id);
	if (r < 0)
		return r;
	if (sharing.programs)
		stranger_set(sharing.programs, cgroup_id, true);
	return bpf_map_update_elem(fd, &slot, &network, BPF_ANY);
}

int guard_sockets_refuse(struct guard *guard, uint64_t cgroup_id)
{
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	const int fd = guard_sharing_of(guard).networks_fd;
	int r = fd < 0 ? -EOPNOTSUPP : bpf_map_delete_elem(fd, &slot);

	return r == -ENOENT ? 0 : r;
}

int guard_shared_set(struct guard *guard, uint64_t cgroup_id, const struct guard_shared *what)
{
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	const struct policy_network network = { .mode = POLICY_NETWORK_SHARED };
	const struct guard_sharing sharing = guard_sharing_of(guard);
	int r;

	if (!sharing.programs)
		return -EOPNOTSUPP;
	if (!what->address || what->address >= GUARD_SHARED_ADDRESSES || !what->ports_max ||
	    !what->datagrams_max || !what->connections_max)
		return -EINVAL;
	/* Nobody runs there yet: it makes no socket before the programs know it. */
	r = entry_add(sharing.programs, cgroup_id, what);
	if (r == 0)
		r = bpf_map_update_elem(sharing.networks_fd, &slot, &network, BPF_ANY);
	if (r < 0)
		(void)bpf_map_delete_elem(sharing.networks_fd, &slot); /* it may make none */
	return r;
}

int guard_shared_counts(const struct guard *guard, uint64_t cgroup_id,
			struct guard_shared_counts *ret)
{
	const struct guard_sharing sharing = guard_sharing_of(guard);
	struct policy_shared entry;

	if (!sharing.programs)
		return -EOPNOTSUPP;
	if (!entry_find(sharing.programs, cgroup_id, &entry))
		return -ENOENT;
	*ret = (struct guard_shared_counts){
		.refused = entry.counts.refused,
		.dropped = entry.counts.dropped,
		.ports = (uint32_t)entry.ports,
		.datagrams = (uint32_t)entry.datagrams,
		.connections = (uint32_t)entry.connections,
	};
	return 0;
}

int guard_shared_clear(const struct guard *guard, uint64_t cgroup_id)
{
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	const struct guard_sharing sharing = guard_sharing_of(guard);
	struct policy_shared before;
	int r;

	if (!sharing.programs)
		return 0;
	stranger_set(sharing.programs, cgroup_id, false);
	if (entry_find(sharing.programs, cgroup_id, &before))
		word_clear(hint_of(sharing.programs, &before),
			   policy_shared_hint(cgroup_id, before.address4));
	r = bpf_map_delete_elem(bpf_map__fd(sharing.programs->maps.shared), &slot);
	return r == -ENOENT ? 0 : r;
}
