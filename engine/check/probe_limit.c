/*
 * Probes of host settings: how much each limit allows, compared with what an engine would use, and
 * settings that weaken it. Called by check.c, each in a process of its own. Nothing is set.
 */
#include "engine/check/check.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#include "engine/check/file.h"

#ifndef OVERLAYFS_SUPER_MAGIC
#define OVERLAYFS_SUPER_MAGIC 0x794c7630
#endif

/* A limit, as text, has room for `allowed` sandboxes; sandboxes_max are wanted. */
static void room_report(const struct check_context *context, struct check_result *result,
			const char *limit, uint64_t allowed)
{
	uint32_t wanted = context->options->sandboxes_max;

	if (allowed >= wanted)
		check_ok(result, "%s: %" PRIu32 " sandboxes fit", limit, wanted);
	else
		check_degraded(result, "%s: %" PRIu64 " sandboxes fit, not %" PRIu32, limit,
			       allowed, wanted);
}

/* A sysctl less a reserve, one unit a sandbox. */
static void sysctl_report(const struct check_context *context, struct check_result *result,
			  const char *path, uint64_t reserve)
{
	uint64_t limit;
	char text[32];

	if (file_number(path, &limit) < 0) {
		check_missing(result, "%s cannot be read", path);
		return;
	}
	snprintf(text, sizeof(text), "%" PRIu64, limit);
	room_report(context, result, text, limit > reserve ? limit - reserve : 0);
}

static void descriptors_probe(const struct check_context *context, struct check_result *result)
{
	struct rlimit limit;

	(void)context;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		check_failed(result, "getrlimit");
	else if (limit.rlim_max < 16384)
		check_degraded(result, "hard limit %" PRIu64 ": about %" PRIu64 " execs at once",
			       (uint64_t)limit.rlim_max, (uint64_t)limit.rlim_max / 4);
	else
		check_ok(result, "hard limit %" PRIu64, (uint64_t)limit.rlim_max);
}

static void pids_probe(const struct check_context *context, struct check_result *result)
{
	sysctl_report(context, result, "/proc/sys/kernel/pid_max", 8192);
}

static void threads_probe(const struct check_context *context, struct check_result *result)
{
	sysctl_report(context, result, "/proc/sys/kernel/threads-max", 8192);
}

static void user_namespaces_probe(const struct check_context *context, struct check_result *result)
{
	sysctl_report(context, result, "/proc/sys/user/max_user_namespaces", 64);
}

static void mount_namespaces_probe(const struct check_context *context, struct check_result *result)
{
	sysctl_report(context, result, "/proc/sys/user/max_mnt_namespaces", 256);
}

static void network_namespaces_probe(const struct check_context *context,
				     struct check_result *result)
{
	sysctl_report(context, result, "/proc/sys/user/max_net_namespaces", 64);
}

static void memory_probe(const struct check_context *context, struct check_result *result)
{
	unsigned long long kib = 0;
	char text[40];

	if (file_field("/proc/meminfo", "MemAvailable:", 10, &kib) < 0) {
		check_missing(result, "/proc/meminfo has no MemAvailable");
		return;
	}
	snprintf(text, sizeof(text), "%llu MiB available", kib >> 10);
	/* 200 KiB each idle, 64 MiB for the engine. */
	room_report(context, result, text, kib > 65536 ? (kib - 65536) / 200 : 0);
}

static void inotify_probe(const struct check_context *context, struct check_result *result)
{
	uint64_t instances, watches;

	(void)context;
	if (file_number("/proc/sys/fs/inotify/max_user_instances", &instances) < 0 ||
	    file_number("/proc/sys/fs/inotify/max_user_watches", &watches) < 0)
		check_missing(result, "fs.inotify cannot be read");
	else if (instances < 128 || watches < 8192)
		check_degraded(result, "%" PRIu64 " instances, %" PRIu64 " watches per sandbox",
			       instances, watches);
	else
		check_ok(result, "%" PRIu64 " instances, %" PRIu64 " watches per sandbox",
			 instances, watches);
}

static void terminals_probe(const struct check_context *context, struct check_result *result)
{
	uint64_t most, reserved, used;

	(void)context;
	if (file_number("/proc/sys/kernel/pty/max", &most) < 0 ||
	    file_number("/proc/sys/kernel/pty/reserve", &reserved) < 0 ||
	    file_number("/proc/sys/kernel/pty/nr", &used) < 0)
		check_missing(result, "kernel.pty cannot be read");
	else if (most < reserved + used + 1024)
		check_degraded(result, "%" PRIu64 " for all sandboxes, %" PRIu64 " are used",
			       most - (reserved < most ? reserved : most), used);
	else
		check_ok(result, "%" PRIu64 " for all sandboxes, %" PRIu64 " are used",
			 most - reserved, used);
}

static void dumpable_probe(const struct check_context *context, struct check_result *result)
{
	uint64_t setting;

	(void)context;
	if (file_number("/proc/sys/fs/suid_dumpable", &setting) < 0)
		check_missing(result, "fs.suid_dumpable cannot be read");
	else if (setting != 0)
		check_degraded(result, "fs.suid_dumpable is %" PRIu64, setting);
	else
		check_ok(result, "fs.suid_dumpable is 0");
}

static void core_probe(const struct check_context *context, struct check_result *result)
{
	char pattern[96];

	(void)context;
	if (file_text("/proc/sys/kernel/core_pattern", pattern, sizeof(pattern)) < 0)
		check_missing(result, "kernel.core_pattern cannot be read");
	else if (pattern[0] == '|')
		check_ok(result, "only the host's crashes are piped to %.90s", pattern + 1);
	else if (pattern[0] == '@')
		check_degraded(result, "crashes are sent to socket %.90s", pattern + 1);
	else
		check_ok(result, "no program gets crashes");
}

static void swap_probe(const struct check_context *context, struct check_result *result)
{
	unsigned long long kib = 0;

	(void)context;
	if (file_field("/proc/meminfo", "SwapTotal:", 10, &kib) < 0)
		check_missing(result, "/proc/meminfo has no SwapTotal");
	else if (kib == 0)
		check_degraded(result, "none");
	else
		check_ok(result, "%llu MiB", kib >> 10);
}

/* What the governor keeps programs off that compute long, while others begin something. */
static void yielding_probe(const struct check_context *context, struct check_result *result)
{
	cpu_set_t cpus;

	(void)context;
	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		check_missing(result, "the CPUs of this process are not told");
	else if (CPU_COUNT(&cpus) < 2)
		check_missing(result, "there is one CPU");
	else
		check_ok(result, "by keeping a CPU free, of %d", CPU_COUNT(&cpus));
}

/* What shards are while they use little of a CPU; the probe's process ends with it. */
static void realtime_probe(const struct check_context *context, struct check_result *result)
{
	const struct sched_param first = { .sched_priority = 1 };

	(void)context;
	if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first) < 0)
		check_missing(result, "%s", strerrordesc_np(errno));
	else
		check_ok(result, "shards that use little of a CPU are there at once");
}

static void images_probe(const struct check_context *context, struct check_result *result)
{
	const char *path = context->options->images_path;
	struct statfs info;

	if (statfs(path, &info) < 0)
		check_degraded(result, "%.100s: %s", path, strerrordesc_np(errno));
	else if (info.f_type == TMPFS_MAGIC || info.f_type == OVERLAYFS_SUPER_MAGIC)
		check_degraded(result, "%.100s is on %s, from which EROFS is not mounted", path,
			       info.f_type == TMPFS_MAGIC ? "tmpfs" : "overlay");
	else
		check_ok(result, "%.100s", path);
}

const struct check_probe check_limit_probes[] = {
	{ "descriptors", false, 0, descriptors_probe, "fewer commands run at once",
	  "raise LimitNOFILE= of the service or `ulimit -Hn`" },
	{ "pid_max", false, 0, pids_probe, "fewer sandboxes are created",
	  "sysctl -w kernel.pid_max=4194304" },
	{ "threads-max", false, 0, threads_probe, "fewer sandboxes are created",
	  "sysctl -w kernel.threads-max=N" },
	{ "user-ns-max", false, 0, user_namespaces_probe, "fewer sandboxes are created",
	  "sysctl -w user.max_user_namespaces=N" },
	{ "mnt-ns-max", false, 0, mount_namespaces_probe, "fewer sandboxes are created",
	  "sysctl -w user.max_mnt_namespaces=N" },
	{ "net-ns-max", false, 0, network_namespaces_probe,
	  "fewer sandboxes have network `private`", "sysctl -w user.max_net_namespaces=N" },
	{ "memory", false, 0, memory_probe, "fewer sandboxes are created", "add memory" },
	{ "inotify", false, 0, inotify_probe, "watchers of files in sandboxes fail",
	  "sysctl -w fs.inotify.max_user_instances=1024 fs.inotify.max_user_watches=1048576" },
	{ "terminals", false, 0, terminals_probe, "commands with a terminal fail",
	  "sysctl -w kernel.pty.max=65536" },
	{ "suid_dumpable", false, 0, dumpable_probe,
	  "a process between two users can be traced or dumped", "sysctl -w fs.suid_dumpable=0" },
	{ "core_pattern", false, 0, core_probe,
	  "a crash in a sandbox runs a program of the host as root",
	  "sysctl -w kernel.core_pattern=core" },
	{ "swap", false, 0, swap_probe, "a paused sandbox keeps its memory",
	  "swapon a file or zram" },
	{ "yielding", false, 0, yielding_probe,
	  "sandboxes that compute keep short commands of others waiting",
	  "give the engine two CPUs or more" },
	{ "realtime", false, 0, realtime_probe, "busy clients keep others waiting for longer",
	  "give the engine CAP_SYS_NICE, and its cgroup realtime time" },
	{ "images", false, 0, images_probe, "no sandbox can be created from there",
	  "make the directory on ext4, xfs or another disk file system" },
	{ 0 },
};
