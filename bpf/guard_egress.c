/*
 * Owns the programs that say where sandboxes may go (egress.bpf.c), and the maps of who has a way
 * out, of where policies let it lead, and of what went through. Called by guard.c and the engine.
 *
 * Must hold: all of the programs are attached, or none is; a policy's destinations are all in the
 * trie, or none is.
 */
#include "bpf/guard_egress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
	if (r == 0)
		r = guard_pins_add(pins, bpf_map__fd(egress->maps.egress_tops), "egress_tops");
	if (r == 0)
		r = guard_pins_add(pins, bpf_map__fd(egress->maps.egress_caps), "egress_caps");
	if (r == 0)
		r = guard_pins_add(pins, bpf_map__fd(egress->maps.learned), "learned");
	if (r == 0)
		r = guard_pins_add(pins, bpf_map__fd(egress->maps.redirects), "redirects");
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

/* What passed by them is looked at again: the programs keep what they found. Any thread. */
static int destinations_drop(const struct egress_bpf *egress, const struct guard_policy *policy)
{
	int r = destinations_put(egress, policy, true);

	(void)__atomic_add_fetch(&egress->bss->drops, 1, __ATOMIC_RELEASE);
	return r;
}

static int caps_put(const struct egress_bpf *egress, const struct guard_policy *policy)
{
	const struct guard_caps *caps = &policy->caps;
	const struct policy_number key = { .policy = policy->number };
	const struct policy_egress_caps value = {
		.connections = caps->connections,
		.bytes = caps->bytes,
		.connections_per_s = caps->connections_per_s,
		.bytes_per_s = caps->bytes_per_s,
	};

	if (!(value.connections | value.bytes | value.connections_per_s | value.bytes_per_s))
		return 0;
	return bpf_map_update_elem(bpf_map__fd(egress->maps.egress_caps), &key, &value, BPF_ANY);
}

static int caps_drop(const struct egress_bpf *egress, const struct guard_policy *policy)
{
	const struct policy_number key = { .policy = policy->number };
	int r = bpf_map_delete_elem(bpf_map__fd(egress->maps.egress_caps), &key);

	return r == -ENOENT ? 0 : r;
}

int guard_egress_load(struct guard *guard, const struct guard_policy *policy)
{
	const struct egress_bpf *egress = guard_egress_of(guard);
	int r;

	if (!egress)
		return -EOPNOTSUPP;
	if (!policy->number)
		return -EINVAL;
	r = caps_put(egress, policy);
	if (r == 0)
		r = destinations_put(egress, policy, false);
	if (r < 0) {
		(void)destinations_drop(egress, policy); /* the first error is what counts */
		(void)caps_drop(egress, policy);
	}
	return r == -ENOSPC ? -E2BIG : r;
}

int guard_egress_drop(struct guard *guard, const struct guard_policy *policy)
{
	const struct egress_bpf *egress = guard_egress_of(guard);
	int r, failed;

	if (!egress)
		return -EOPNOTSUPP;
	r = destinations_drop(egress, policy);
	failed = caps_drop(egress, policy);
	return r < 0 ? r : failed;
}

/* ---- sandboxes ---- */

/* One slot has a sandbox after the other, and each for longer than that. */
static uint32_t use_now(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_BOOTTIME, &now); /* cannot fail */
	return (uint32_t)((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

static int tops_new(const struct egress_bpf *egress, const struct policy_cgroup *slot)
{
	static const struct policy_egress_tops none;

	return bpf_map_update_elem(bpf_map__fd(egress->maps.egress_tops), slot, &none, BPF_ANY);
}

int guard_egress_set(struct guard *guard, uint64_t cgroup_id, const struct guard_egress *what)
{
	const struct egress_bpf *egress = guard_egress_of(guard);
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	const struct policy_number number = { .policy = what->policy };
	struct policy_egress entry;
	int fd, r = 0;

	if (!egress)
		return -EOPNOTSUPP;
	if (!what->policy)
		return -EINVAL;
	fd = bpf_map__fd(egress->maps.egress);
	if (bpf_map_lookup_elem(fd, &slot, &entry) < 0) {
		entry = (struct policy_egress){ .use = use_now() };
		r = tops_new(egress, &slot);
	}
	if (r < 0)
		return r;
	entry.policy = what->policy;
	entry.address4 = what->address4;
	entry.resolver4 = what->resolver4;
	entry.resolver_port = what->resolver_port;
	entry.tls_port = what->tls_port;
	memcpy(entry.address6, what->address6, sizeof(entry.address6));
	if (bpf_map_lookup_elem(bpf_map__fd(egress->maps.egress_caps), &number, &entry.caps) < 0)
		entry.caps = (struct policy_egress_caps){ 0 };
	return bpf_map_update_elem(fd, &slot, &entry, BPF_ANY);
}

int guard_egress_clear(struct guard *guard, uint64_t cgroup_id)
{
	const struct egress_bpf *egress = guard_egress_of(guard);
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	int r, failed;

	if (!egress)
		return 0;
	r = bpf_map_delete_elem(bpf_map__fd(egress->maps.egress), &slot);
	failed = bpf_map_delete_elem(bpf_map__fd(egress->maps.egress_tops), &slot);
	if (r == 0 || r == -ENOENT)
		r = failed;
	return r == -ENOENT ? 0 : r;
}

int guard_egress_learn(struct guard *guard, uint64_t cgroup_id, uint32_t policy,
		       const struct guard_learned *what)
{
	const struct egress_bpf *egress = guard_egress_of(guard);
	const int fd = egress ? bpf_map__fd(egress->maps.learned) : -1;
	struct policy_learned_key key = { .cgroup_id = cgroup_id, .policy = policy };
	struct policy_learned value = { .range_count = what->range_count };
	int r;

	if (!egress)
		return -EOPNOTSUPP;
	if (what->range_count > POLICY_PORT_RANGES_MAX)
		return -EINVAL;
	memcpy(key.address, what->address, sizeof(key.address));
	for (uint32_t i = 0; i < what->range_count; i++)
		value.ranges[i] = (struct policy_learned_range){
			.ports = { .first = what->ranges[i].first,
				   .last = what->ranges[i].last,
				   .protocol = what->ranges[i].protocol,
				   .is_tls = what->ranges[i].is_tls,
				   .rule = what->ranges[i].rule },
			.until_ns = what->until_ns[i],
		};
	if (what->range_count)
		return bpf_map_update_elem(fd, &key, &value, BPF_ANY);
	r = bpf_map_delete_elem(fd, &key);
	return r == -ENOENT ? 0 : r;
}

int guard_egress_redirect(struct guard *guard, uint32_t address4, uint16_t port,
			  struct guard_redirect *ret)
{
	const struct egress_bpf *egress = guard_egress_of(guard);
	const struct policy_redirect_key key = { .address4 = address4, .port = port };
	struct policy_redirect redirect;
	int fd, r;

	if (!egress)
		return -EOPNOTSUPP;
	fd = bpf_map__fd(egress->maps.redirects);
	r = bpf_map_lookup_elem(fd, &key, &redirect);
	if (r < 0)
		return r;
	(void)bpf_map_delete_elem(fd, &key); /* it can only be gone: the oldest are forgotten */
	memcpy(ret->address, redirect.address, sizeof(ret->address));
	ret->port = redirect.port;
	return 0;
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
		.sent_bytes = entry.counts.sent_bytes,
		.connections = entry.counts.connections,
		.refused = entry.counts.refused,
		.dropped = entry.counts.dropped,
		.capped = entry.counts.capped_calls + entry.counts.capped_packets,
	};
	return 0;
}

static int flow_compare(const void *a, const void *b)
{
	const struct guard_egress_flow *x = a, *y = b;

	return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

/* What is forgotten of a flow since, for others came, began again from nothing. */
static struct guard_egress_flow flow_read(int flows_fd, const struct policy_egress_top *top,
					  uint64_t cgroup_id, uint32_t use)
{
	struct policy_egress_flow_key key = {
		.cgroup_id = cgroup_id, .use = use, .port = top->port, .protocol = top->protocol
	};
	struct guard_egress_flow flow = {
		.port = top->port, .protocol = top->protocol, .rule = top->rule, .bytes = top->bytes
	};
	struct policy_egress_flow now;

	memcpy(key.address, top->address, sizeof(key.address));
	memcpy(flow.address, top->address, sizeof(flow.address));
	if (bpf_map_lookup_elem(flows_fd, &key, &now) == 0 && now.bytes >= top->bytes)
		flow.bytes = now.bytes;
	return flow;
}

int guard_egress_flows(const struct guard *guard, uint64_t cgroup_id,
		       struct guard_egress_flow ret[static GUARD_EGRESS_FLOWS_MAX])
{
	const struct egress_bpf *egress = guard_egress_of(guard);
	const struct policy_cgroup slot = { .cgroup_id = cgroup_id };
	struct policy_egress_tops tops;
	struct policy_egress entry;
	uint32_t count = 0;

	_Static_assert((int)GUARD_EGRESS_FLOWS_MAX == (int)POLICY_EGRESS_TOPS_MAX, "all");
	if (!egress)
		return -EOPNOTSUPP;
	if (bpf_map_lookup_elem(bpf_map__fd(egress->maps.egress), &slot, &entry) < 0 ||
	    bpf_map_lookup_elem(bpf_map__fd(egress->maps.egress_tops), &slot, &tops) < 0)
		return 0;
	for (uint32_t i = 0; i < POLICY_EGRESS_TOPS_MAX; i++)
		if (tops.tops[i].bytes)
			ret[count++] = flow_read(bpf_map__fd(egress->maps.egress_flows),
						 &tops.tops[i], cgroup_id, entry.use);
	qsort(ret, count, sizeof(ret[0]), flow_compare);
	return (int)count;
}
