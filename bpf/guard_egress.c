/*
 * Owns the programs that say where sandboxes may go (egress.bpf.c), and the maps of who has a way
 * out, of where policies let it lead, and of what went through. Called by guard.c and the engine.
 *
 * Must hold: all of the programs are attached, or none is; a policy's destinations are all in the
 * trie, or none is.
 */
#include "bpf/guard_egress.h"

#include <errno.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/guard.h"
#include "bpf/guard_destination.h"
#include "bpf/guard_hooks.h"
#include "bpf/guard_pins.h"
#include "bpf/guard_policy.h"
#include "bpf/guard_violations.h"
#include "bpf/policy_egress.h"
#include "bpf/egress.skel.h"

static int egress_pin(const struct guard_pins *pins, const struct egress_bpf *egress)
{
	int r = guard_pins_add(pins, bpf_map__fd(egress->maps.egress), "egress");

	if (r == 0)
		r = guard_pins_add(pins, bpf_map__fd(egress->maps.destinations), "destinations");
	if (r == 0)
		r = guard_pins_add(pins, bpf_map__fd(egress->maps.egress_flows), "egress_flows");
	return r;
}

int guard_egress_open(const struct guard_programs_options *options, struct egress_bpf **ret)
{
	LIBBPF_OPTS(bpf_object_open_opts, open, .kernel_log_buf = options->log,
		    .kernel_log_size = options->log_bytes);
	const uint32_t first = options->hooks->count;
	struct bpf_program *program;
	struct egress_bpf *egress;
	int r;

	options->log[0] = '\0';
	egress = egress_bpf__open_opts(&open);
	if (!egress)
		return -errno;
	egress->rodata->slot_level = options->slot_level;
	r = guard_violation_maps_share(options->violations, egress->obj);
	if (r == 0)
		r = egress_bpf__load(egress);
	if (r == 0) {
		options->log[0] = '\0';
		r = options->hooks->pinned ? egress_pin(options->hooks->pins, egress) : 0;
	}
	bpf_object__for_each_program(program, egress->obj) if (r == 0)
		r = guard_hooks_attach(options->hooks, program);
	if (r < 0) {
		guard_hooks_detach(options->hooks, first);
		egress_bpf__destroy(egress);
		return r;
	}
	*ret = egress;
	return 0;
}

void guard_egress_close(struct egress_bpf *egress)
{
	egress_bpf__destroy(egress);
}

/* ---- destinations ---- */

static int destinations_put(const struct egress_bpf *egress, const struct guard_policy *policy,
			    bool is_drop)
{
	const int fd = bpf_map__fd(egress->maps.destinations);
	struct policy_destination_key key;
	struct policy_destination value;
	int r, failed = 0;

	for (uint32_t i = 0; i < policy->destination_count; i++) {
		r = guard_destination_entry(policy->number, &policy->destinations[i], &key, &value);
		if (r == 0)
			r = is_drop ? bpf_map_delete_elem(fd, &key) :
				      bpf_map_update_elem(fd, &key, &value, BPF_ANY);
		if (r < 0 && !is_drop)
			return r;
		if (r < 0 && r != -ENOENT)
			failed = r;
	}
	return failed;
}

int guard_egress_load(struct guard *guard, const struct guard_policy *policy)
{
	const struct egress_bpf *egress = guard_egress_of(guard);
	int r;

	if (!egress)
		return -EOPNOTSUPP;
	if (!policy->number)
		return -EINVAL;
	r = destinations_put(egress, policy, false);
	if (r < 0)
		(void)destinations_put(egress, policy, true); /* the first error is what counts */
	return r == -ENOSPC ? -E2BIG : r;
}

int guard_egress_drop(struct guard *guard, const struct guard_policy *policy)
{
	const struct egress_bpf *egress = guard_egress_of(guard);

	return egress ? destinations_put(egress, policy, true) : -EOPNOTSUPP;
}

/* ---- sandboxes ---- */

int guard_egress_set(struct guard *guard, uint64_t cgroup_id, const struct guard_egress *what)
{
	const struct egress_bpf *egress = guard_egress_of(guard);
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	struct policy_egress entry = { .policy = what->policy,
				       .address4 = what->address4,
				       .resolver4 = what->resolver4,
				       .resolver_port = what->resolver_port };

	if (!egress)
		return -EOPNOTSUPP;
	if (!what->policy)
		return -EINVAL;
	memcpy(entry.address6, what->address6, sizeof(entry.address6));
	return bpf_map_update_elem(bpf_map__fd(egress->maps.egress), &slot, &entry, BPF_ANY);
}

int guard_egress_clear(struct guard *guard, uint64_t cgroup_id)
{
	const struct egress_bpf *egress = guard_egress_of(guard);
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	int r = egress ? bpf_map_delete_elem(bpf_map__fd(egress->maps.egress), &slot) : 0;

	return r == -ENOENT ? 0 : r;
}

int guard_egress_counts(const struct guard *guard, uint64_t cgroup_id,
			struct guard_egress_counts *ret)
{
	const struct egress_bpf *egress = guard_egress_of(guard);
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	struct policy_egress entry;
	int r = egress ? bpf_map_lookup_elem(bpf_map__fd(egress->maps.egress), &slot, &entry) :
			 -EOPNOTSUPP;

	if (r < 0)
		return r;
	*ret = (struct guard_egress_counts){
		.sent_packets = entry.counts.sent_packets,
		.sent_bytes = entry.counts.sent_bytes,
		.refused = entry.counts.refused,
		.dropped = entry.counts.dropped,
	};
	return 0;
}

/* Each once, as far as nobody takes it away meanwhile: the map makes room for new ones. */
int guard_egress_flows(const struct guard *guard, uint64_t cgroup_id, struct guard_egress_flow *ret,
		       uint32_t max)
{
	const struct egress_bpf *egress = guard_egress_of(guard);
	const int fd = egress ? bpf_map__fd(egress->maps.egress_flows) : -1;
	struct policy_egress_flow_key key, *previous = NULL;
	struct policy_flow flow;
	uint32_t count = 0;

	if (!egress)
		return -EOPNOTSUPP;
	for (uint32_t seen = 0; count < max && seen < POLICY_EGRESS_FLOWS_MAX; seen++) {
		if (bpf_map_get_next_key(fd, previous, &key) < 0)
			break;
		previous = &key;
		if (key.cgroup_id != cgroup_id || bpf_map_lookup_elem(fd, &key, &flow) < 0)
			continue;
		ret[count] = (struct guard_egress_flow){ .port = key.port,
							 .protocol = key.protocol,
							 .rule = flow.rule,
							 .packets = flow.packets,
							 .bytes = flow.bytes };
		memcpy(ret[count++].address, key.address, sizeof(key.address));
	}
	return (int)count;
}
