/*
 * Owns the comparison of a configuration with the machine. config_check() is called by the keeper
 * before anything starts; config_fit() by it and by tests. After success every limit in the
 * configuration is one that the machine can hold, so running into a host limit later is a surprise,
 * not a plan.
 */
#include "engine/config_fit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"

/* One host limit and the number of things it leaves room for. */
struct bound {
	const char *option; /* whose value must not exceed `room` */
	const char *limit;  /* the host's name for it */
	const char *remedy;
	uint64_t have, room;
};

static void machine_read(const struct config *config, struct machine *ret);
static int bound_apply(const struct config *config, const struct bound *b, uint32_t *value);
static int descriptors_fit(struct config *config, uint64_t have);

/*
 * Each shard holds its share of the sandboxes. Few of them on many shards would be refused by one
 * that is full while another has room.
 */
static void shards_fit(struct config *config)
{
	uint32_t most = config->sandboxes_max / SHARD_SANDBOXES_MIN;

	if (config_is_given(config, "shards") || config->shards <= most || config->shards == 1)
		return;
	config->shards = most ? most : 1;
	log_info("%u shards are enough for %u sandboxes", config->shards, config->sandboxes_max);
}

/* What was named must be there; where the defaults are missing, starting them says so. */
static int program_check(const struct config *config, const char *option, const char *path)
{
	struct stat st;
	int r = 0;

	if (!config_is_given(config, option))
		return 0;
	if (stat(path, &st) < 0 || access(path, X_OK) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode))
		r = -EACCES;
	if (r < 0)
		log_error("--%s %s: %s: it must be a program", option, path, strerror(-r));
	return r;
}

int config_check(struct config *config)
{
	struct machine machine;

	if (program_check(config, "launcher", config->launcher_path) < 0 ||
	    program_check(config, "importer", config->import_path) < 0 ||
	    program_check(config, "store-program", config->store_path) < 0 ||
	    program_check(config, "fetch-program", config->fetch_path) < 0)
		return -EINVAL;
	if (config->egress6_range && !config->egress_range) {
		log_error("--egress6 %s: it is beside --egress RANGE, which is not there",
			  config->egress6_range);
		return -EINVAL;
	}
	shards_fit(config);
	machine_read(config, &machine);
	return config_fit(config, &machine);
}

/* `have` less what is reserved, divided by what one thing takes. */
static uint64_t room_for(uint64_t have, uint64_t reserved, uint64_t each)
{
	if (have == UINT64_MAX)
		return UINT64_MAX;
	return have > reserved ? (have - reserved) / each : 0;
}

/* The most of a shard. */
static uint64_t crew_workers(const struct config *config)
{
	const uint32_t each = config->launchers < CREW_LAUNCHERS_MAX ? config->launchers :
								       CREW_LAUNCHERS_MAX;

	return (uint64_t)CREWS_PER_SHARD_MAX * each;
}

int config_fit(struct config *config, const struct machine *m)
{
	/* Of each shard a thread, its workers, and those of crews. */
	uint64_t workers =
		(uint64_t)config->shards * (1 + config->launchers + crew_workers(config));
	/* A running exec is about two processes: a shell and what it started. */
	uint64_t busy = MACHINE_PIDS_RESERVED + workers + 2ull * config->execs_max;
	uint64_t spare = MACHINE_NAMESPACES_RESERVED;
	/* Each launcher holds one mount at a time that hangs nowhere yet, and has its own. */
	uint64_t mounts = spare + 2 * workers;
	const struct bound bounds[] = {
		{ "execs-max", "kernel.pid_max", "sysctl -w kernel.pid_max=4194304", m->pids,
		  room_for(m->pids, MACHINE_PIDS_RESERVED + workers, 4) },
		{ "sandboxes-max", "kernel.pid_max", "sysctl -w kernel.pid_max=4194304", m->pids,
		  room_for(m->pids, busy, 1) },
		{ "sandboxes-max", "kernel.threads-max", "sysctl -w kernel.threads-max=N",
		  m->threads, room_for(m->threads, busy, 1) },
		{ "sandboxes-max", "user.max_user_namespaces",
		  "sysctl -w user.max_user_namespaces=N", m->user_namespaces,
		  room_for(m->user_namespaces, spare, 1) },
		{ "sandboxes-max", "user.max_{pid,ipc,uts,cgroup}_namespaces",
		  "sysctl -w user.max_pid_namespaces=N and the others", m->slot_namespaces,
		  room_for(m->slot_namespaces, spare, 1) },
		{ "sandboxes-max", "user.max_mnt_namespaces", "sysctl -w user.max_mnt_namespaces=N",
		  m->mount_namespaces, room_for(m->mount_namespaces, mounts, 1) },
		{ "sandboxes-max", "user.max_net_namespaces", "sysctl -w user.max_net_namespaces=N",
		  m->network_namespaces, room_for(m->network_namespaces, spare, 1) },
		{ "sandboxes-max", "available memory", "add memory or stop other programs",
		  m->memory_bytes,
		  room_for(m->memory_bytes, MACHINE_MEMORY_RESERVED, SANDBOX_IDLE_BYTES) },
	};
	int r;

	for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
		bool is_execs = !strcmp(bounds[i].option, "execs-max");

		r = bound_apply(config, &bounds[i],
				is_execs ? &config->execs_max : &config->sandboxes_max);
		if (r < 0)
			return r;
	}
	/* Else a shard that has the room would refuse creates for want of a queue. */
	if (!config_is_given(config, "creates-waiting-max"))
		config->creates_waiting_max =
			(config->sandboxes_max + config->shards - 1) / config->shards;
	return descriptors_fit(config, m->descriptors);
}

int machine_kernel_check(const char *release)
{
	unsigned int major, minor;

	if (sscanf(release, "%u.%u", &major, &minor) != 2)
		return -ENOSYS;
	return major > 6 || (major == 6 && minor >= 12) ? 0 : -ENOSYS;
}

uint64_t config_descriptors(const struct config *config)
{
	/* Per shard a ring, mailboxes, deaths, the cgroup; per launcher its channel and pidfd; per
	 * crew a sheet. */
	uint64_t own = 64 + (uint64_t)config->shards *
				    (8 + 2 * (config->launchers + crew_workers(config)) +
				     CREWS_PER_SHARD_MAX);
	/* Per client its socket, memory and one doorbell per shard; per exec three pipes' ends
	 * and one that a background child holds (sink.c), and the other ends until the launcher
	 * has them (bounded by the launchers). */
	uint64_t clients = (uint64_t)config->clients_max * (2ull + config->shards);
	uint64_t passing = 3ull * config->shards * config->launchers;
	/* Per operation on a file two pipes' ends and a socket; never more of them than execs. */
	uint64_t files = (uint64_t)config->shards * FILES_PER_SHARD_MAX;

	if (files > config->execs_max)
		files = config->execs_max;

	/* Two of each connection to a port, the listener, and networks that end; see network.md. */
	uint64_t ports =
		(uint64_t)config->shards * (2ull * config->inbounds_max + 1 + NETWORKS_ENDING);

	/* Questions under way, connections that ask or are forwarded, and where they come. */
	uint64_t names = config->egress_range ? config->shards * (uint64_t)NAMES_DESCRIPTORS : 0;

	/* Two of a segment that is served, and one of each while its image is mounted. */
	uint64_t served = config->remote_address ? 2ull * SERVED_MAX + IMAGE_DEVICES_MAX : 0;

	return served + own + clients + ports + names + 3 * files + 4ull * config->execs_max +
	       passing;
}

static int bound_apply(const struct config *config, const struct bound *b, uint32_t *value)
{
	uint32_t before = *value;

	if (before <= b->room)
		return 0;
	if (b->room < 1) {
		log_error("%s of %" PRIu64 " leaves no room for --%s 1; %s", b->limit, b->have,
			  b->option, b->remedy);
		return -ERANGE;
	}
	if (config_is_given(config, b->option)) {
		log_error("--%s %" PRIu32 " does not fit: %s of %" PRIu64 " allows %" PRIu64 "; %s",
			  b->option, before, b->limit, b->have, b->room, b->remedy);
		return -ERANGE;
	}
	*value = (uint32_t)b->room;
	log_warning("--%s reduced from %" PRIu32 " to %" PRIu32 ": %s is %" PRIu64 "; %s",
		    b->option, before, *value, b->limit, b->have, b->remedy);
	return 0;
}

/* Connections to ports give way first, then execs, then clients: each by as much as is missing. */
static int descriptors_fit(struct config *config, uint64_t have)
{
	const struct {
		const char *option;
		uint32_t *value;
		uint32_t each;
	} users[] = {
		{ "inbounds-max", &config->inbounds_max, 2 * config->shards },
		{ "execs-max", &config->execs_max, 4 },
		{ "clients-max", &config->clients_max, 2 + config->shards },
	};
	const char *remedy = "raise LimitNOFILE= of the service or `ulimit -Hn`";

	for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
		uint64_t need = config_descriptors(config), fewer;
		uint32_t before = *users[i].value;

		if (need <= have)
			return 0;
		if (config_is_given(config, users[i].option))
			continue;
		fewer = (need - have + users[i].each - 1) / users[i].each;
		*users[i].value = fewer < before ? before - (uint32_t)fewer : 1;
		log_warning("--%s reduced from %" PRIu32 " to %" PRIu32 ": %" PRIu64
			    " descriptors are needed, RLIMIT_NOFILE is %" PRIu64 "; %s",
			    users[i].option, before, *users[i].value, need, have, remedy);
	}
	if (config_descriptors(config) <= have)
		return 0;
	log_error("--execs-max %" PRIu32 " and --clients-max %" PRIu32 " need %" PRIu64
		  " descriptors, RLIMIT_NOFILE is %" PRIu64 "; %s",
		  config->execs_max, config->clients_max, config_descriptors(config), have, remedy);
	return -ERANGE;
}

/* ---- reading the machine ---- */

/* A number in a file of /proc, UINT64_MAX when it is not there. */
static uint64_t number_read(const char *path)
{
	FILE *file = fopen(path, "re");
	uint64_t number = UINT64_MAX;

	if (!file)
		return UINT64_MAX;
	if (fscanf(file, "%" SCNu64, &number) != 1)
		number = UINT64_MAX;
	(void)fclose(file); /* was only read */
	return number;
}

static uint64_t memory_available(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];
	uint64_t kib = UINT64_MAX;

	if (!file)
		return UINT64_MAX;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
			break;
	}
	(void)fclose(file); /* was only read */
	return kib == UINT64_MAX ? UINT64_MAX : kib * 1024;
}

/* Raises the soft limit to the hard one, and the hard one where it is too low and we may. */
static uint64_t descriptors_raise(uint64_t need)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return UINT64_MAX;
	if (limit.rlim_max < need) {
		struct rlimit more = { .rlim_cur = need, .rlim_max = need };

		if (!setrlimit(RLIMIT_NOFILE, &more)) {
			log_info("RLIMIT_NOFILE raised from %" PRIu64 " to %" PRIu64,
				 (uint64_t)limit.rlim_max, need);
			return need;
		}
	}
	if (limit.rlim_cur < limit.rlim_max) {
		uint64_t soft = limit.rlim_cur;

		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			return soft;
		log_debug("RLIMIT_NOFILE: soft limit %" PRIu64 " raised to the hard one, %" PRIu64,
			  soft, (uint64_t)limit.rlim_max);
	}
	return limit.rlim_max;
}

static void machine_read(const struct config *config, struct machine *ret)
{
	static const char *const slot_files[] = {
		"/proc/sys/user/max_pid_namespaces",
		"/proc/sys/user/max_ipc_namespaces",
		"/proc/sys/user/max_uts_namespaces",
		"/proc/sys/user/max_cgroup_namespaces",
	};

	*ret = (struct machine){
		.descriptors = descriptors_raise(config_descriptors(config)),
		.pids = number_read("/proc/sys/kernel/pid_max"),
		.threads = number_read("/proc/sys/kernel/threads-max"),
		.user_namespaces = number_read("/proc/sys/user/max_user_namespaces"),
		.slot_namespaces = UINT64_MAX,
		.mount_namespaces = number_read("/proc/sys/user/max_mnt_namespaces"),
		.network_namespaces = number_read("/proc/sys/user/max_net_namespaces"),
		.memory_bytes = memory_available(),
	};
	for (size_t i = 0; i < sizeof(slot_files) / sizeof(slot_files[0]); i++) {
		uint64_t have = number_read(slot_files[i]);

		if (have < ret->slot_namespaces)
			ret->slot_namespaces = have;
	}
}
