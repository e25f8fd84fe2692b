/*
 * Owns the program of taps and its maps; the only user of libxdp. Called by who makes the taps of
 * virtual machines.
 *
 * Must hold: a tap's settings are in the map before the program is on it, and go after it: on a tap
 * that is set nothing passes unlooked.
 */
#include "bpf/guard_tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <xdp/libxdp.h>

#include "bpf/guard_destination.h"
#include "bpf/guard_policy.h"
#include "bpf/policy.h" /* the skeleton speaks of its structs */
#include "bpf/tap.skel.h"
#include "engine/base/cleanup.h"

_Static_assert((int)GUARD_FLOWS_MAX == (int)POLICY_FLOWS_MAX, "as many as there are");

struct guard_taps {
	struct tap_bpf *tap;
	int cpus;
};

/* What libxdp and libbpf would print is in errno, and goes to the caller. */
static int xdp_quiet(enum libxdp_print_level level, const char *format, va_list arguments)
{
	(void)level;
	(void)format;
	(void)arguments;
	return 0;
}

int guard_taps_open(struct guard_taps **ret)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	struct guard_taps *taps = calloc(1, sizeof(*taps));
	int r = -ENOMEM;

	if (taps) {
		taps->tap = tap_bpf__open();
		r = taps->tap ? tap_bpf__load(taps->tap) : -errno;
		taps->cpus = libbpf_num_possible_cpus();
	}
	(void)libbpf_set_print(print);
	if (r == 0 && taps->cpus < 0)
		r = taps->cpus;
	if (r < 0) {
		guard_taps_close(taps);
		return r == -EPERM || r == -EINVAL ? -EOPNOTSUPP : r;
	}
	*ret = taps;
	return 0;
}

void guard_taps_close(struct guard_taps *taps)
{
	if (!taps)
		return;
	tap_bpf__destroy(taps->tap);
	free(taps);
}

/* ---- on the interface ---- */

/* On a veth or a tap the driver does it; elsewhere the stack, later and slower. */
static const enum xdp_attach_mode modes[] = { XDP_MODE_NATIVE, XDP_MODE_SKB };

enum { MODES = sizeof(modes) / sizeof(*modes) };

/* NULL: *ret_error says why. */
static struct xdp_program *program_open(const struct guard_taps *taps, int *ret_error)
{
	struct xdp_program *program;

	(void)libxdp_set_print(xdp_quiet);
	program = xdp_program__from_fd(bpf_program__fd(taps->tap->progs.dsec_tap));
	*ret_error = (int)libxdp_get_error(program);
	return *ret_error ? NULL : program;
}

static int program_attach(const struct guard_taps *taps, int interface)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	int r;
	struct xdp_program *program = program_open(taps, &r);

	if (!program)
		goto out;
	r = -EOPNOTSUPP;
	if (xdp_program__is_attached(program, interface) != XDP_MODE_UNSPEC)
		r = 0;
	for (int i = 0; i < MODES && (r == -EOPNOTSUPP || r == -EINVAL); i++)
		r = xdp_program__attach(program, interface, modes[i], 0);
	xdp_program__close(program);
out:
	(void)libbpf_set_print(print);
	return r == -EEXIST ? -EBUSY : r;
}

static int program_detach(const struct guard_taps *taps, int interface)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	enum xdp_attach_mode mode;
	int r;
	struct xdp_program *program = program_open(taps, &r);

	if (!program)
		goto out;
	mode = xdp_program__is_attached(program, interface);
	if (mode != XDP_MODE_UNSPEC)
		r = xdp_program__detach(program, interface, mode, 0);
	xdp_program__close(program);
out:
	(void)libbpf_set_print(print);
	return r;
}

static int counts_clear(const struct guard_taps *taps, const struct policy_interface *key,
			bool make)
{
	const int fd = bpf_map__fd(taps->tap->maps.tap_counts);
	auto_free struct policy_tap_counts *zero = NULL;
	int r;

	if (!make) {
		r = bpf_map_delete_elem(fd, key);
		return r == -ENOENT ? 0 : r;
	}
	zero = calloc((size_t)taps->cpus, sizeof(*zero));
	if (!zero)
		return -ENOMEM;
	r = bpf_map_update_elem(fd, key, zero, BPF_NOEXIST);
	return r == -EEXIST ? 0 : r;
}

static int settings_clear(const struct guard_taps *taps, const struct policy_interface *key)
{
	int r = bpf_map_delete_elem(bpf_map__fd(taps->tap->maps.taps), key);
	int counted = counts_clear(taps, key, false);

	return r < 0 && r != -ENOENT ? r : counted;
}

static void flows_clear(const struct guard_taps *taps, uint32_t interface);

int guard_tap_set(struct guard_taps *taps, uint32_t interface, const struct guard_tap *tap)
{
	const struct policy_interface key = { .index = interface };
	struct policy_tap settings = { .cgroup_id = tap->cgroup_id, .policy = tap->policy }, before;
	const int fd = bpf_map__fd(taps->tap->maps.taps);
	bool is_new = bpf_map_lookup_elem(fd, &key, &before) < 0;
	int r;

	memcpy(settings.mac, tap->mac, sizeof(settings.mac));
	if (tap->has_address4)
		memcpy(settings.address4, tap->address4, sizeof(settings.address4));
	if (tap->has_address6)
		memcpy(settings.address6, tap->address6, sizeof(settings.address6));
	if (is_new)
		flows_clear(taps, interface); /* of one that had this number before */
	r = counts_clear(taps, &key, true);
	if (r == 0)
		r = bpf_map_update_elem(fd, &key, &settings, BPF_ANY);
	if (r == 0)
		r = program_attach(taps, (int)interface);
	if (r < 0 && is_new)
		(void)settings_clear(taps, &key); /* it failed already */
	return r;
}

int guard_tap_clear(struct guard_taps *taps, uint32_t interface)
{
	const struct policy_interface key = { .index = interface };
	int r = program_detach(taps, (int)interface);

	if (r < 0 && r != -ENODEV && r != -ENOENT)
		return r;
	flows_clear(taps, interface);
	return settings_clear(taps, &key);
}

/* ---- what was counted ---- */

int guard_tap_counts(const struct guard_taps *taps, uint32_t interface,
		     struct guard_tap_counts *ret)
{
	const struct policy_interface key = { .index = interface };
	auto_free struct policy_tap_counts *each = calloc((size_t)taps->cpus, sizeof(*each));
	int r;

	if (!each)
		return -ENOMEM;
	r = bpf_map_lookup_elem(bpf_map__fd(taps->tap->maps.tap_counts), &key, each);
	if (r < 0)
		return r;
	*ret = (struct guard_tap_counts){ 0 };
	for (int i = 0; i < taps->cpus; i++) {
		ret->passed_packets += each[i].packets[POLICY_TAP_PASSED];
		ret->passed_bytes += each[i].bytes[POLICY_TAP_PASSED];
		ret->refused_packets += each[i].packets[POLICY_TAP_REFUSED];
		ret->refused_bytes += each[i].bytes[POLICY_TAP_REFUSED];
		ret->spoofed_packets += each[i].packets[POLICY_TAP_SPOOFED];
		ret->malformed_packets += each[i].packets[POLICY_TAP_MALFORMED];
	}
	return 0;
}

/* Each once, as far as nobody takes it away meanwhile: the map makes room for new ones. */
int guard_tap_flows(const struct guard_taps *taps, uint32_t interface, struct guard_flow *ret,
		    uint32_t max)
{
	const int fd = bpf_map__fd(taps->tap->maps.flows);
	struct policy_flow_key key, *previous = NULL;
	struct policy_flow flow;
	uint32_t count = 0;

	for (uint32_t seen = 0; count < max && seen < POLICY_FLOWS_MAX; seen++) {
		if (bpf_map_get_next_key(fd, previous, &key) < 0)
			break;
		previous = &key;
		if (key.interface != interface || bpf_map_lookup_elem(fd, &key, &flow) < 0)
			continue;
		ret[count] = (struct guard_flow){
			.port = key.port,
			.protocol = key.protocol,
			.is_refused = key.refused,
			.rule = flow.rule,
			.packets = flow.packets,
			.bytes = flow.bytes,
		};
		memcpy(ret[count++].address, key.address, sizeof(key.address));
	}
	return (int)count;
}

static void flows_clear(const struct guard_taps *taps, uint32_t interface)
{
	const int fd = bpf_map__fd(taps->tap->maps.flows);
	struct policy_flow_key key, next;
	bool more = bpf_map_get_next_key(fd, NULL, &key) == 0;

	for (uint32_t seen = 0; more && seen < POLICY_FLOWS_MAX; seen++) {
		more = bpf_map_get_next_key(fd, &key, &next) == 0;
		if (key.interface == interface)
			(void)bpf_map_delete_elem(fd, &key); /* gone is as good */
		key = next;
	}
}

/* ---- destinations ---- */

int guard_destination_set(struct guard_taps *taps, uint32_t policy,
			  const struct guard_destination *destination)
{
	struct policy_destination_key key;
	struct policy_destination value;
	int r = guard_destination_entry(policy, destination, &key, &value);

	return r < 0 ? r :
		       bpf_map_update_elem(bpf_map__fd(taps->tap->maps.destinations), &key, &value,
					   BPF_ANY);
}

int guard_destinations_drop(struct guard_taps *taps, uint32_t policy)
{
	const int fd = bpf_map__fd(taps->tap->maps.destinations);
	struct policy_destination_key key, next;
	bool more = bpf_map_get_next_key(fd, NULL, &key) == 0;
	int r = 0;

	for (uint32_t seen = 0; more && seen < POLICY_DESTINATIONS_MAX; seen++) {
		more = bpf_map_get_next_key(fd, &key, &next) == 0;
		if (key.policy == policy && r == 0)
			r = bpf_map_delete_elem(fd, &key);
		key = next;
	}
	return r;
}
