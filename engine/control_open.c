/*
 * Starting and ending an engine, in order, on the control thread. Called by engine.c. What fails
 * half-way is taken back by control_close(), which accepts a half-made control.
 */
#include "engine/control_open.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bpf/guard.h"
#include "dsec/ring.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/engine.h"
#include "engine/request/records.h"
#include "engine/sandbox/network.h"
#include "engine/keeper/sweep.h"
#include "engine/serve/serve.h"
#include "engine/tenant/tenant.h"

enum { CONTROL_RING_ENTRIES = 256, REQUESTS_PER_SHARD = 4096 };

/* Backends number limits as the wire does. */
#define LIMIT_IS_SAME(name) _Static_assert((int)DSEC_LIMIT_##name == (int)BOX_LIMIT_##name, #name)

LIMIT_IS_SAME(MEMORY);
LIMIT_IS_SAME(PIDS);
LIMIT_IS_SAME(CPU);
LIMIT_IS_SAME(SWAP);
LIMIT_IS_SAME(IO);
LIMIT_IS_SAME(IO_WEIGHT);
LIMIT_IS_SAME(PROCESSES);

static int node_identify(struct node *node)
{
	struct timespec now;
	uint32_t random;

	if (getrandom(&random, sizeof random, 0) != sizeof random ||
	    getrandom(node->claim_keys, sizeof node->claim_keys, 0) != sizeof node->claim_keys)
		return -EIO;
	clock_gettime(CLOCK_REALTIME, &now);
	node->epoch = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	node->epoch_ns = records_clock_ns();
	node->id = (uint64_t)random << 32 | (uint32_t)now.tv_sec;
	return 0;
}

/* A directory that was named must be there; the default one may come later. */
static int images_check(const struct config *config)
{
	const bool given = config_is_given(config, "images");
	struct stat st;
	int r = stat(config->images_path, &st) < 0	     ? -errno :
		!S_ISDIR(st.st_mode)			     ? -ENOTDIR :
		access(config->images_path, R_OK | X_OK) < 0 ? -errno :
							       0;

	if (r == 0)
		return 0;
	log_line(given ? LOG_ERROR : LOG_WARNING, "images cannot be read path=\"%s\" err=%s%s",
		 config->images_path, strerror(-r), given ? "" : ", continuing without any");
	return given ? r : 0;
}

static int program_check(const char *path, const char *option)
{
	if (access(path, X_OK) == 0)
		return 0;
	int r = -errno;

	log_error("program missing path=\"%s\" err=%s: install it there, or name it by %s", path,
		  strerror(-r), option);
	return r;
}

/* Without its launcher an engine can do nothing; without the others, nothing that makes images. */
static int programs_check(const struct config *config)
{
	(void)program_check(config->import_path, "--importer");
	(void)program_check(config->store_path, "--store-program");
	return program_check(config->launcher_path, "--launcher");
}

static bool has_lsm(const struct policy_enforcer *e)
{
	return e->guard && guard_capabilities(e->guard) & GUARD_LSM;
}

static uint32_t rule_levels(const struct policy_enforcer *e, const struct guard_policy *policy,
			    uint32_t at)
{
	const struct guard_rule *rule = &policy->rules[at];

	if (rule->kind == GUARD_RULE_NAME && !e->has_resolver)
		return 0;
	return backend_rule_levels(rule, has_lsm(e)) |
	       (e->guard ? guard_rule_levels(e->guard, policy, at) : 0);
}

static int walls_new(const struct policy_enforcer *e, const struct guard_policy *policy,
		     struct backend_walls **ret)
{
	char profile[GUARD_PROFILE_NAME_BYTES] = "";
	int r = e->guard ? guard_profile_name(e->guard, policy, profile) : 0;

	return r < 0 ? r : backend_walls_new(policy, has_lsm(e), profile, ret);
}

/* Tenants' own come back; not to a private engine, whose name nobody has again. */
static void policies_keep(struct control *control)
{
	const struct config *config = control->config;
	uint32_t count;

	if (config->lifeline_fd >= 0)
		return;
	for (uint32_t i = 0; i < config->tenant_count; i++)
		control->tenant_names[i] = config->tenants[i].name;
	control->policy_files = (struct policy_files){ .state = config->state_path,
						       .instance = config->instance,
						       .tenants = control->tenant_names,
						       .tenant_count = config->tenant_count };
	policy_files_init(&control->policy_files);
	count = policy_files_restore(&control->policy_files, &control->policies,
				     io_clock_ns(control->io));
	control->policies.store = &control->policy_files.store;
	if (count)
		log_info("policies restored count=%u", count);
}

int control_read_services(struct control *control)
{
	const char *path = control->config->services_path;
	char why[SERVICES_WHY_BYTES];
	int r = path ? policies_read_services(&control->policies, path, why) : 0;

	if (r < 0)
		log_error("services not read path=\"%s\" err=%s: %s%s", path, strerror(-r), why,
			  control->policies.services ? ", continuing with those before" : "");
	else if (path)
		log_info("services %s path=\"%s\" count=%u", r ? "read" : "are as before", path,
			 control->policies.services->count);
	return r < 0 ? r : 0;
}

/* After the guard, which says how each rule is enforced. */
static int policies_start(struct control *control)
{
	struct policy_mistake mistake = { 0 };
	int r;

	control->enforcer = (struct policy_enforcer){
		.guard = control->guard,
		.has_resolver = control->node.upstreams,
		.rule_levels = rule_levels,
		.walls_new = walls_new,
		.walls_free = backend_walls_free,
		.load = guard_policy_load,
		.drop = guard_policy_drop,
	};
	control->policies.enforcer = &control->enforcer;
	r = control_read_services(control);
	if (r < 0)
		return r;
	r = policies_open(&control->policies, &mistake);
	control->node.policies = control->policies.ready;
	if (r < 0)
		log_error("ready-made policies err=%s at=%u:%u %s", strerror(-r), mistake.line,
			  mistake.column, mistake.text);
	else
		policies_keep(control);
	return r;
}

static int signals_open(int *ret_fd)
{
	sigset_t wanted;
	int fd;

	sigemptyset(&wanted);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGINT);
	sigaddset(&wanted, SIGHUP);
	fd = signalfd(-1, &wanted, SFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	sigaddset(&wanted, SIGCHLD);	       /* children are waited for by pid */
	sigaddset(&wanted, SIGPIPE);	       /* writes say EPIPE */
	sigprocmask(SIG_BLOCK, &wanted, NULL); /* threads inherit it */
	*ret_fd = fd;
	return 0;
}

static int cgroup_id_of(int fd, uint64_t *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = st.st_ino;
	return 0;
}

static int guard_start(struct control *control, const uint64_t *shard_ids)
{
	struct guard_options options = {
		.instance = control->config->instance,
		.cgroup_fd = control->cgroup_fd,
		.cgroup_level = 1,
		.shards = control->config->shards,
		.shard_cgroup_ids = shard_ids,
		.engine_pid = getpid(),
		.is_refused = backend_rule_stands,
		.with_egress = control->config->egress_range != NULL,
	};
	char why[2048] = "", *rest = NULL;
	int r;

	r = cgroup_id_of(control->cgroup_fd, &options.cgroup_id);
	if (r >= 0)
		r = guard_open(&options, why, sizeof why, &control->guard);
	for (char *line = strtok_r(why, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		log_warning("guard: %s, continuing", line);
	return r;
}

/* What is not to be had is felt by neighbours of who computes long. */
static void yielding_tell(const struct control *control)
{
	int r = backend_governor_yields(control->node.backend_node);

	if (r < 0)
		log_warning("governor: programs that compute keep short ones waiting err=%s:"
			    " keeping a CPU free of them needs two CPUs and perf events,"
			    " continuing",
			    strerror(-r));
}

/* Without it storms of processes are felt by neighbours, as told in every sandbox's settings. */
static void governor_start(struct control *control)
{
	const char *step = "";
	int r = backend_governor_start(control->node.backend_node, &step);

	if (r < 0) {
		log_warning("governor: sandboxes may make processes as fast as they can step=\"%s\""
			    " err=%s: run as root of the host, with BPF, continuing",
			    step, strerror(-r));
		return;
	}
	if (r > 0)
		log_warning("governor: it is no realtime thread: storms of processes are felt for"
			    " longer: it needs CAP_SYS_NICE and realtime time for its cgroup,"
			    " continuing");
	yielding_tell(control);
}

/* Names are asked where there is a way out. */
static int upstreams_find(struct control *control)
{
	const char *option = control->config->dns_upstream;
	int r = upstreams_read(option, &control->upstreams);

	if (r < 0)
		log_error("dns-upstream=\"%s\" is no ADDR[:PORT], [ADDR]:PORT for IPv6", option);
	if (r < 0 || !control->config->egress_range)
		return r;
	if (control->upstreams.count) {
		control->node.upstreams = &control->upstreams;
		log_info("names upstream=%s", control->upstreams.all[0].text);
	} else {
		log_warning("names: no nameserver in /etc/resolv.conf: policies with host names are"
			    " refused: --dns-upstream ADDR[:PORT], continuing");
	}
	return 0;
}

static int backend_start(struct control *control, const struct engine_handover *handover)
{
	const struct config *config = control->config;
	struct node *node = &control->node;
	uint64_t ids[SHARDS_MAX];
	struct backend_node_options options = {
		.launcher_path = config->launcher_path,
		.cgroup_fd = control->cgroup_fd,
		.shards = config->shards,
		.slots_per_shard = node->sandboxes_per_shard + SLOTS_SPARE,
		.uid_first = handover->uid_first,
		.images_path = config->images_path,
		.instance = config->instance,
		.egress_range = config->egress_range,
		.egress6_range = config->egress6_range,
		.has_resolver = node->upstreams,
		.cpu_burst_ms = config->cpu_burst_ms,
		.fork_bomb_s = config->fork_bomb_s,
	};
	int r, fd = -1;

	if (options.slots_per_shard * config->shards > SLOTS_PER_INSTANCE)
		options.slots_per_shard = SLOTS_PER_INSTANCE / config->shards;
	/* The shards' cgroups first: the guard is told their ids, the node is told the guard. */
	r = backend_node_open(&options, &node->backend_node);
	for (uint32_t i = 0; r >= 0 && i < config->shards; i++)
		r = backend_shard_cgroup(node->backend_node, i, &fd, &ids[i]);
	if (r < 0)
		return r;
	r = guard_start(control, ids);
	if (r < 0)
		return r;
	governor_start(control);
	node->unenforced = backend_unenforced(node->backend_node);
	backend_node_guard(node->backend_node, control->guard);
	node->guard = control->guard;
	node->features = DSEC_FEATURE_RING | DSEC_FEATURE_STREAM | DSEC_FEATURE_CONTAINER |
			 DSEC_FEATURE_NETWORK_PRIVATE;
	if (guard_capabilities(control->guard) & GUARD_EXIT_EVENTS)
		node->features |= DSEC_FEATURE_EXIT_EVENTS;
	if (guard_capabilities(control->guard) & GUARD_ABSTRACT)
		node->features |= DSEC_FEATURE_ABSTRACT_GUARD;
	return network_start(node);
}

static int shards_start(struct control *control)
{
	struct node *node = &control->node;
	int r = 0;

	node->shards = calloc(control->config->shards, sizeof(struct shard *));
	if (!node->shards)
		return -ENOMEM;
	for (uint32_t i = 0; r >= 0 && i < control->config->shards; i++) {
		r = shard_start(node, i, &node->shards[i]);
		if (r < 0)
			log_error("shard start failed shard=%u err=%s%s%s", i, strerror(-r),
				  io_explain(r) ? ": " : "", io_explain(r) ? io_explain(r) : "");
		else
			node->shard_count++;
	}
	for (uint32_t i = 0; r >= 0 && i < node->shard_count * control->config->launchers; i++) {
		r = control_launcher_start(control, node->shards[i % node->shard_count]);
		if (r < 0)
			log_error("launcher start failed path=\"%s\" err=%s",
				  control->config->launcher_path, strerror(-r));
	}
	return r;
}

static void node_size(struct control *control)
{
	const struct config *config = control->config;
	struct node *node = &control->node;

	node->config = config;
	node->control = control;
	node->sandboxes_per_shard = (config->sandboxes_max + config->shards - 1) / config->shards;
	node->execs_per_shard = (config->execs_max + config->shards - 1) / config->shards;
	node->requests_per_shard = REQUESTS_PER_SHARD;
	node->creates.bucket = bucket_of(config->creates_per_s, 1);
}

int control_open(const struct config *config, const struct engine_handover *handover,
		 struct control **ret)
{
	struct io_options options = { .entries = CONTROL_RING_ENTRIES };
	struct control *control = calloc(1, sizeof *control);
	int r;

	if (!control)
		return -ENOMEM;
	control->config = config;
	for (uint32_t i = 0; i < config->tenant_count; i++)
		control->doors[i] = (struct door){ .control = control,
						   .tenant = i,
						   .listen_fd = handover->listen_fds[i] };
	control->cgroup_fd = handover->cgroup_fd;
	control->signal_fd = -1;
	images_init(&control->images);
	options.owner = control;
	node_size(control);
	r = config->fault ? flow_fault_check(config->fault) : 0;
	if (r >= 0)
		r = programs_check(config);
	if (r >= 0)
		r = images_check(config);
	if (r >= 0)
		r = tenants_open(&control->node);
	if (r >= 0)
		r = sweep_instance(config->instance, control->cgroup_fd);
	if (r == -EBUSY && serve_forsake(handover->keeper_fd))
		r = sweep_instance(config->instance, control->cgroup_fd);
	if (r >= 0)
		r = node_identify(&control->node);
	if (r >= 0)
		r = signals_open(&control->signal_fd);
	if (r >= 0)
		r = upstreams_find(control);
	if (r >= 0) {
		r = io_open(&options, &control->io);
		if (r < 0 && io_explain(r))
			log_error("io_uring is not usable: %s", io_explain(r));
	}
	if (r >= 0) {
		r = backend_start(control, handover);
		if (r < 0)
			log_error("backend start failed err=%s", strerror(-r));
	}
	if (r >= 0)
		r = policies_start(control);
	if (r >= 0) {
		image_runs_open(control);
		r = serve_open(control, handover->keeper_fd, &control->serve);
	}
	if (r >= 0)
		r = shards_start(control);
	if (r >= 0 && control->serve)
		serve_adopt(control->serve);
	if (r < 0) {
		(void)control_close(control);
		return r;
	}
	*ret = control;
	return 0;
}

/* Shards that run (a failed start) are stopped as at the end. */
/* Shards have stopped and touch nothing of theirs any more. */
static void stop_report(const struct control *control)
{
	const struct node *node = &control->node;
	uint64_t destroyed = 0, left = 0;

	for (uint32_t i = 0; i < node->shard_count; i++) {
		destroyed += node->shards[i]->stop_destroyed;
		left += node->shards[i]->stop_left;
	}
	log_info("shards stopped destroyed=%llu left=%llu took_ms=%llu",
		 (unsigned long long)destroyed, (unsigned long long)left,
		 (unsigned long long)(io_clock_ns(control->io) - control->stop_ns) / 1000000);
}

static void shards_end(struct control *control)
{
	struct node *node = &control->node;

	control_shards_stop(control);
	while (control->shards_stopped < node->shard_count || image_runs_live(control))
		if (control_stop_turn(control, UINT64_MAX) < 0)
			break;
	backend_governor_stop(node->backend_node);
	stop_report(control);
	for (uint32_t i = 0; i < node->shard_count; i++)
		shard_end(node->shards[i], control->io);
	(void)io_turn(control->io, 0); /* sends them */
	for (uint32_t i = 0; i < node->shard_count; i++)
		shard_free(node->shards[i]);
	free(node->shards);
	images_done(&control->images);
	image_runs_close(control);
	control_workers_end(control);
}

int control_close(struct control *control)
{
	int r;

	if (control->io)
		shards_end(control);
	serve_close(control->serve);
	policies_close(&control->policies);
	services_free(control->policies.services);
	guard_close(control->guard);
	backend_node_close(control->node.backend_node);
	io_close(control->io);
	cleanup_close(&control->signal_fd);
	tenants_close(&control->node);
	r = sweep_check(control->cgroup_fd);
	if (r < 0)
		log_error("stopped, but cgroups are left");
	else
		log_info("stopped, nothing is left");
	free(control);
	return r;
}
