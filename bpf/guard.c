/*
 * Owns the loaded BPF programs, their maps and attachments: the deaths of sandboxes (exit.bpf.c)
 * and what network `none` may not do (net.bpf.c). Called by the engine's control thread.
 *
 * Must hold: each part fails alone and then says why and what would help; nothing that was attached
 * is enforced less than its capability says.
 */
#include "bpf/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "bpf/guard_apparmor.h"
#include "bpf/guard_egress.h"
#include "bpf/guard_exits.h"
#include "bpf/guard_hooks.h"
#include "bpf/guard_lsm.h"
#include "bpf/guard_pins.h"
#include "bpf/guard_shared.h"
#include "bpf/guard_violations.h"
#include "bpf/guard_why.h"
#include "bpf/policy.h" /* the skeletons speak of its structs */
#include "bpf/exit.skel.h"
#include "bpf/net.skel.h"
#include "engine/base/cleanup.h"

enum {
	RING_BYTES_DEFAULT = 1 << 20,
	SPILL_DEATHS_DEFAULT = 65536,
	SPILL_DEATHS_MAX = 1 << 22, /* more than a host can have processes */
	VERIFIER_LOG_BYTES = 64 * 1024,
};

struct guard {
	uint32_t capabilities;
	int cgroup_fd; /* a copy */
	uint32_t root_level;
	uint32_t shards, ring_bytes;
	struct exit_bpf *exit;
	struct bpf_link *exit_link;
	int *ring_fds, *spill_fds;		 /* by shard */
	struct guard_violation_maps *violations; /* NULL: nothing is told */
	struct guard_lsm *lsm;
	struct guard_apparmor *apparmor; /* NULL: no profiles */
	struct net_bpf *net;
	struct shared_bpf *shared; /* NULL: not loaded. Any thread reads it */
	int shared_error;
	struct egress_bpf *egress;
	struct guard_hooks hooks;
	struct guard_pins pins;
};

static int options_check(const struct guard_options *options);
static int exit_open(struct guard *guard, const struct guard_options *options,
		     struct guard_why *why);
static void exit_close(struct guard *guard);
static int violations_open(struct guard *guard, const struct guard_options *options,
			   struct guard_why *why);
static int net_open(struct guard *guard, const struct guard_options *options,
		    struct guard_why *why);
static void net_close(struct guard *guard);
static int egress_open(struct guard *guard, struct guard_why *why);
static int shared_open(struct guard *guard, struct guard_why *why);
static int lsm_open(struct guard *guard, struct guard_why *why);
static int profiles_open(struct guard *guard, const struct guard_options *options,
			 struct guard_why *why);

int guard_open(const struct guard_options *options, char *ret_why, size_t why_bytes,
	       struct guard **ret)
{
	struct guard_why why = { .text = ret_why, .bytes = why_bytes };
	libbpf_print_fn_t print;
	struct guard *guard;
	int r;

	r = options_check(options);
	if (r < 0)
		return r;
	guard = calloc(1, sizeof(*guard));
	if (!guard)
		return -ENOMEM;
	guard->cgroup_fd = fcntl(options->cgroup_fd, F_DUPFD_CLOEXEC, 0);
	if (guard->cgroup_fd < 0) {
		r = -errno;
		free(guard);
		return r;
	}
	guard->hooks.cgroup_fd = guard->cgroup_fd;
	guard->hooks.pins = &guard->pins;
	guard->root_level = options->cgroup_level;
	guard->shards = options->shards;
	guard->ring_bytes = options->ring_bytes ? options->ring_bytes : RING_BYTES_DEFAULT;
	if (why.bytes)
		why.text[0] = '\0';

	/* What libbpf would print is in the verifier's log or in errno, and goes to ret_why. */
	print = libbpf_set_print(NULL);
	r = exit_open(guard, options, &why);
	if (r != -ENOMEM)
		r = violations_open(guard, options, &why);
	if (r != -ENOMEM)
		r = net_open(guard, options, &why);
	if (r != -ENOMEM)
		r = lsm_open(guard, &why);
	if (r != -ENOMEM)
		r = profiles_open(guard, options, &why);
	if (guard->violations && guard->capabilities & GUARD_NETWORK_NONE)
		guard->capabilities |= GUARD_VIOLATIONS;
	libbpf_set_print(print);
	if (r == -ENOMEM) {
		guard_close(guard);
		return r;
	}
	*ret = guard;
	return 0;
}

void guard_close(struct guard *guard)
{
	if (!guard)
		return;
	exit_close(guard);
	guard_lsm_close(guard->lsm);
	guard_apparmor_close(guard->apparmor);
	net_close(guard);
	guard_violation_maps_close(guard->violations);
	if (guard->cgroup_fd >= 0)
		close(guard->cgroup_fd);
	free(guard);
}

int guard_sweep(const char *instance, int cgroup_fd)
{
	int r, apparmor_r;

	if (!guard_instance_valid(instance))
		return -EINVAL;
	if (cgroup_fd >= 0)
		guard_hooks_sweep(cgroup_fd, NULL);
	r = guard_pins_sweep(instance);
	apparmor_r = guard_apparmor_sweep(instance);
	return r < 0 ? r : apparmor_r;
}

const struct guard_lsm *guard_lsm_of(const struct guard *guard)
{
	return guard->lsm;
}

const struct guard_apparmor *guard_apparmor_of(const struct guard *guard)
{
	return guard->apparmor;
}

struct egress_bpf *guard_egress_of(const struct guard *guard)
{
	return guard->egress;
}

uint32_t guard_capabilities(const struct guard *guard)
{
	return guard->capabilities | (guard_shared_is_loaded(guard) ? GUARD_SHARED : 0);
}

int guard_shared_load(struct guard *guard, char *ret_why, size_t why_bytes)
{
	struct guard_why why = { .text = ret_why, .bytes = why_bytes };
	libbpf_print_fn_t print;
	int r;

	if (why.bytes)
		why.text[0] = '\0';
	if (guard->shared || guard->shared_error)
		return guard->shared_error;
	print = libbpf_set_print(NULL);
	r = shared_open(guard, &why);
	libbpf_set_print(print);
	if (r < 0 && r != -ENOMEM)
		guard->shared_error = r;
	return r;
}

struct guard_sharing guard_sharing_of(const struct guard *guard)
{
	return (struct guard_sharing){
		.programs = __atomic_load_n(&guard->shared, __ATOMIC_ACQUIRE),
		.networks_fd = guard->net ? bpf_map__fd(guard->net->maps.networks) : -1,
	};
}

int guard_exits_open(struct guard *guard, uint32_t shard, struct guard_exits **ret)
{
	struct guard_exit_maps maps;

	if (!(guard->capabilities & GUARD_EXIT_EVENTS))
		return -EOPNOTSUPP;
	if (shard >= guard->shards)
		return -EINVAL;
	maps = (struct guard_exit_maps){
		.ring_fd = guard->ring_fds[shard],
		.ring_bytes = guard->ring_bytes,
		.spill_fd = guard->spill_fds[shard],
		.counts_fd = bpf_map__fd(guard->exit->maps.counts),
		.shards = guard->shards,
	};
	return guard_exits_new(&maps, shard, ret);
}

int guard_violations_open(struct guard *guard, uint32_t shard, struct guard_violations **ret)
{
	if (!(guard->capabilities & GUARD_VIOLATIONS))
		return -EOPNOTSUPP;
	return shard < guard->shards ? guard_violations_new(guard->violations, shard, ret) :
				       -EINVAL;
}

static int options_check(const struct guard_options *options)
{
	const uint32_t page_bytes = (uint32_t)sysconf(_SC_PAGESIZE);
	uint32_t ring = options->ring_bytes;

	if (!guard_instance_valid(options->instance) || options->cgroup_fd < 0)
		return -EINVAL;
	if (!options->cgroup_id || options->engine_pid <= 0)
		return -EINVAL;
	if (!options->shards || options->shards > POLICY_SHARDS_MAX || !options->shard_cgroup_ids)
		return -EINVAL;
	if (ring && (ring < page_bytes || (ring & (ring - 1))))
		return -EINVAL;
	return options->spill_deaths_max <= SPILL_DEATHS_MAX ? 0 : -EINVAL;
}

/* A ring and a spill for each shard, and the way from its cgroup to them. */
static int exit_shard_add(struct guard *guard, const struct guard_options *options, uint32_t at)
{
	const struct policy_cgroup cgroup = { .cgroup_id = options->shard_cgroup_ids[at] };
	const struct policy_shard shard = { .index = at };
	struct btf *btf = bpf_object__btf(guard->exit->obj);
	uint32_t spill_deaths = options->spill_deaths_max;
	LIBBPF_OPTS(bpf_map_create_opts, named);
	char name[16];
	int r;

	snprintf(name, sizeof(name), "dsec_ring_%u", at);
	guard->ring_fds[at] =
		bpf_map_create(BPF_MAP_TYPE_RINGBUF, name, 0, 0, guard->ring_bytes, NULL);
	if (guard->ring_fds[at] < 0)
		return guard->ring_fds[at];
	named.btf_fd = (uint32_t)bpf_object__btf_fd(guard->exit->obj);
	r = btf__find_by_name_kind(btf, "policy_process", BTF_KIND_STRUCT);
	named.btf_key_type_id = r < 0 ? 0 : (uint32_t)r;
	r = btf__find_by_name_kind(btf, "policy_death", BTF_KIND_STRUCT);
	named.btf_value_type_id = r < 0 ? 0 : (uint32_t)r;
	snprintf(name, sizeof(name), "dsec_spill_%u", at);
	guard->spill_fds[at] = bpf_map_create(
		BPF_MAP_TYPE_HASH, name, sizeof(struct policy_process), sizeof(struct policy_death),
		spill_deaths ? spill_deaths : SPILL_DEATHS_DEFAULT, &named);
	if (guard->spill_fds[at] < 0)
		return guard->spill_fds[at];
	r = bpf_map_update_elem(bpf_map__fd(guard->exit->maps.rings), &at, &guard->ring_fds[at], 0);
	if (r == 0)
		r = bpf_map_update_elem(bpf_map__fd(guard->exit->maps.spills), &at,
					&guard->spill_fds[at], 0);
	if (r == 0)
		r = bpf_map_update_elem(bpf_map__fd(guard->exit->maps.shards), &cgroup, &shard,
					BPF_NOEXIST);
	return r;
}

static int exit_load(struct guard *guard, const struct guard_options *options, char *log)
{
	LIBBPF_OPTS(bpf_object_open_opts, open, .kernel_log_buf = log,
		    .kernel_log_size = VERIFIER_LOG_BYTES);
	struct exit_bpf *exit;

	exit = exit_bpf__open_opts(&open);
	if (!exit)
		return -errno;
	guard->exit = exit;
	exit->rodata->root_cgroup_id = options->cgroup_id;
	exit->bss->engine.pid = options->engine_pid;
	bpf_map__set_max_entries(exit->maps.shards, options->shards);
	bpf_map__set_max_entries(exit->maps.rings, options->shards);
	bpf_map__set_max_entries(exit->maps.spills, options->shards);
	bpf_map__set_max_entries(exit->maps.counts, options->shards);
	return exit_bpf__load(exit);
}

static int exit_attach(struct guard *guard, const struct guard_options *options)
{
	LIBBPF_OPTS(bpf_test_run_opts, run);
	int r = 0;

	guard->ring_fds = malloc(options->shards * sizeof(int));
	guard->spill_fds = malloc(options->shards * sizeof(int));
	if (!guard->ring_fds || !guard->spill_fds)
		return -ENOMEM;
	for (uint32_t i = 0; i < options->shards; i++) {
		guard->ring_fds[i] = -1;
		guard->spill_fds[i] = -1;
	}
	for (uint32_t i = 0; i < options->shards && r == 0; i++)
		r = exit_shard_add(guard, options, i);
	if (r < 0)
		return r;
	r = bpf_prog_test_run_opts(bpf_program__fd(guard->exit->progs.dsec_engine), &run);
	if (r < 0)
		return r;
	if (run.retval)
		return -ESRCH;
	guard->root_level = guard->exit->bss->engine.root_level;
	guard->exit_link = bpf_program__attach(guard->exit->progs.dsec_exit);
	return guard->exit_link ? 0 : -errno;
}

static int exit_open(struct guard *guard, const struct guard_options *options,
		     struct guard_why *why)
{
	auto_free char *log = calloc(1, VERIFIER_LOG_BYTES);
	int r;

	if (!log)
		return -ENOMEM;
	r = exit_load(guard, options, log);
	if (r == 0)
		r = exit_attach(guard, options);
	if (r == 0) {
		guard->capabilities |= GUARD_EXIT_EVENTS;
		return 0;
	}
	guard_why_load(why, "no events of deaths", r, log);
	exit_close(guard);
	return r;
}

static void exit_close(struct guard *guard)
{
	bpf_link__destroy(guard->exit_link);
	guard->exit_link = NULL;
	for (uint32_t i = 0; guard->spill_fds && i < guard->shards; i++) {
		if (guard->ring_fds[i] >= 0)
			close(guard->ring_fds[i]);
		if (guard->spill_fds[i] >= 0)
			close(guard->spill_fds[i]);
	}
	free(guard->ring_fds);
	free(guard->spill_fds);
	guard->ring_fds = NULL;
	guard->spill_fds = NULL;
	exit_bpf__destroy(guard->exit);
	guard->exit = NULL;
}

/* Without the programs of deaths nobody knows the engine's pid namespace: pids are 0 then. */
static int violations_open(struct guard *guard, const struct guard_options *options,
			   struct guard_why *why)
{
	struct policy_engine place = { .root_level = guard->root_level };
	char log[1] = "";
	int r;

	if (guard->exit)
		place = guard->exit->bss->engine;
	r = guard_violation_maps_open(options, &place, &guard->violations);
	if (r < 0)
		guard_why_load(why, "what is refused is not told", r, log);
	return r;
}

static int net_load(struct guard *guard, bool with_unix, char *log)
{
	LIBBPF_OPTS(bpf_object_open_opts, open, .kernel_log_buf = log,
		    .kernel_log_size = VERIFIER_LOG_BYTES);
	struct net_bpf *net;
	int r;

	log[0] = '\0';
	net = net_bpf__open_opts(&open);
	if (!net)
		return -errno;
	net->rodata->slot_level = guard->root_level + POLICY_SLOT_DEPTH;
	bpf_program__set_autoload(net->progs.dsec_unix_conn, with_unix);
	bpf_program__set_autoload(net->progs.dsec_unix_send, with_unix);
	bpf_program__set_expected_attach_type(net->progs.dsec_unix_conn,
					      (enum bpf_attach_type)GUARD_ATTACH_UNIX_CONNECT);
	bpf_program__set_expected_attach_type(net->progs.dsec_unix_send,
					      (enum bpf_attach_type)GUARD_ATTACH_UNIX_SENDMSG);
	r = guard_violation_maps_share(guard->violations, net->obj);
	if (r == 0)
		r = net_bpf__load(net);
	if (r < 0) {
		net_bpf__destroy(net);
		return r;
	}
	guard->net = net;
	return 0;
}

/* Pins come first, since they decide how the hooks are attached. */
static void net_pins_open(struct guard *guard, const struct guard_options *options,
			  struct guard_why *why)
{
	int r = guard_pins_open(options->instance, &guard->pins);

	if (r == 0)
		r = guard_pins_add(&guard->pins, bpf_map__fd(guard->net->maps.networks),
				   "networks");
	if (r == 0)
		r = guard_violation_maps_pin(guard->violations, &guard->pins);
	guard->hooks.pinned = r == 0;
	if (r < 0)
		guard_why_add(why,
			      "enforcement is not pinned (%s): mount a bpffs, `mount -t bpf bpf "
			      "/sys/fs/bpf`, or let the engine mount one below /run/dsec\n",
			      strerror(-r));
}

static int net_open(struct guard *guard, const struct guard_options *options, struct guard_why *why)
{
	auto_free char *log = calloc(1, VERIFIER_LOG_BYTES);
	bool could_pin;
	int r, unix_r;

	if (!log)
		return -ENOMEM;
	unix_r = net_load(guard, true, log);
	if (unix_r < 0) {
		guard_why_load(why, "abstract unix names are not refused", unix_r, log);
		r = net_load(guard, false, log);
		if (r < 0) {
			guard_why_load(why, "network `none` is not enforced on sockets", r, log);
			return r;
		}
	}
	net_pins_open(guard, options, why);
	could_pin = guard->hooks.pinned;
	r = guard_hooks_attach(&guard->hooks, guard->net->progs.dsec_socket);
	if (r < 0) {
		log[0] = '\0';
		guard_why_load(why, "network `none` is not enforced on sockets", r, log);
		net_close(guard);
		return r;
	}
	guard->capabilities |= GUARD_NETWORK_NONE;
	if (unix_r == 0) {
		unix_r = guard_hooks_attach(&guard->hooks, guard->net->progs.dsec_unix_conn);
		if (unix_r == 0)
			unix_r =
				guard_hooks_attach(&guard->hooks, guard->net->progs.dsec_unix_send);
		log[0] = '\0';
		if (unix_r < 0)
			guard_why_load(why, "abstract unix names are not refused", unix_r, log);
		else
			guard->capabilities |= GUARD_ABSTRACT;
	}
	if (guard->hooks.pinned)
		guard->capabilities |= GUARD_PINNED;
	else if (could_pin)
		guard_why_add(why, "enforcement is not pinned: links cannot be pinned on %s\n",
			      guard->pins.directory);
	if (options->with_egress)
		(void)egress_open(guard, why); /* told in why; the others were loaded */
	guard_hooks_sweep(guard->cgroup_fd, &guard->hooks);
	return 0;
}

static void net_close(struct guard *guard)
{
	guard_hooks_detach(&guard->hooks, 0);
	guard_shared_close(guard->shared);
	guard->shared = NULL;
	guard_egress_close(guard->egress);
	guard->egress = NULL;
	guard_pins_close(&guard->pins);
	net_bpf__destroy(guard->net);
	guard->net = NULL;
}

/* Pins are where net_open() put them; where there are none, or no cgroup, it said so. */
static int lsm_open(struct guard *guard, struct guard_why *why)
{
	auto_free char *log = NULL;
	int r;

	if (!(guard->capabilities & GUARD_NETWORK_NONE))
		return 0;
	log = calloc(1, VERIFIER_LOG_BYTES);
	if (!log)
		return -ENOMEM;
	r = guard_lsm_open(log, VERIFIER_LOG_BYTES, &guard->lsm);
	if (r < 0) {
		guard_why_load(why, "no maps for policies", r, log);
		return r;
	}
	guard->capabilities |= GUARD_POLICIES;
	r = guard_feature_error(GUARD_FEATURE_LSM);
	if (r == 0)
		guard->capabilities |= GUARD_LSM;
	else
		guard_why_add(why,
			      "policies are not enforced by BPF LSM (%s): use a kernel with "
			      "CONFIG_BPF_LSM that lets LSM programs load, and `bpf` in lsm=\n",
			      strerror(r));
	if (guard->hooks.pinned && guard_lsm_pin(guard->lsm, &guard->pins) < 0) {
		guard->capabilities &= ~(uint32_t)GUARD_PINNED;
		guard_why_add(why, "maps of policies are not pinned on %s\n",
			      guard->pins.directory);
	}
	return 0;
}

/* After lsm_open(): where LSM programs tell, a profile holds only what they do not. */
static int profiles_open(struct guard *guard, const struct guard_options *options,
			 struct guard_why *why)
{
	const struct profile_scope scope = {
		.instance = options->instance,
		.lsm_tells = guard->capabilities & GUARD_LSM,
		.is_refused = options->is_refused,
	};
	int r;

	if (!(guard->capabilities & GUARD_POLICIES))
		return 0;
	r = guard_apparmor_open(&scope, why, &guard->apparmor);
	if (r == 0)
		guard->capabilities |= GUARD_APPARMOR;
	return r;
}

int guard_lsm_enforce(struct guard *guard)
{
	const struct guard_lsm_place place = { guard->root_level + POLICY_SLOT_DEPTH,
					       guard->violations };
	libbpf_print_fn_t print;
	int r;

	if (!(guard->capabilities & GUARD_LSM) || guard_lsm_is_attached(guard->lsm))
		return 0;
	print = libbpf_set_print(NULL);
	r = guard_lsm_attach(guard->lsm, &place);
	if (r == 0 && guard->hooks.pinned)
		r = guard_lsm_pin(guard->lsm, &guard->pins);
	libbpf_set_print(print);
	return r;
}

static struct guard_programs_options programs_options(struct guard *guard, char *log)
{
	return (struct guard_programs_options){
		.hooks = &guard->hooks,
		.violations = guard->violations,
		.slot_level = guard->root_level + POLICY_SLOT_DEPTH,
		.log = log,
		.log_bytes = VERIFIER_LOG_BYTES,
	};
}

static int egress_open(struct guard *guard, struct guard_why *why)
{
	auto_free char *log = calloc(1, VERIFIER_LOG_BYTES);
	const struct guard_programs_options options = programs_options(guard, log);
	int r = log ? guard_egress_open(&options, &guard->egress) : -ENOMEM;

	if (r < 0 && log)
		guard_why_load(why, "no egress by policy", r, log);
	else if (r == 0)
		guard->capabilities |= GUARD_EGRESS;
	return r;
}

static int shared_open(struct guard *guard, struct guard_why *why)
{
	auto_free char *log = calloc(1, VERIFIER_LOG_BYTES);
	const struct guard_programs_options options = programs_options(guard, log);
	struct shared_bpf *shared;
	int r = -EOPNOTSUPP;

	if (!log)
		return -ENOMEM;
	if (guard->capabilities & GUARD_ABSTRACT)
		r = guard_shared_open(&options, &shared);
	if (r < 0)
		guard_why_load(why, "network `shared` is not there", r, log);
	else
		__atomic_store_n(&guard->shared, shared, __ATOMIC_RELEASE);
	return r;
}
