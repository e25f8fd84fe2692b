/*
 * dsec-floor: how often a second the kernel can do what a sandbox takes, in bare loops side by
 * side. Owns the workers and the clock. Must hold: a failed call ends the run and is told; nothing
 * is left behind, whatever happened.
 */
#include "loadgen/cleanup.h"
#include "loadgen/clock.h"
#include "loadgen/floor/floor.h"
#include "loadgen/histogram.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* All uids are below 2^31: the terminals of Linux 6.12 know no groups beyond. */
enum { WORKERS_MAX = 64, UID_FIRST = 0x7f100000, UID_RANGE = 65536, WARMUP_MS = 300 };

enum scenario { SCENARIO_READY, SCENARIO_READY_FRESH, SCENARIO_EXEC, SCENARIO_LIVE_EXEC };

static const char *const scenario_names[] = { "ready", "ready-fresh", "exec", "live-exec" };

struct settings {
	struct floor floor;
	enum scenario scenario;
	double seconds;
	uint32_t workers, count; /* count: so many each, and no clock; for tracing */
	char cgroup[512];
};

/* Shared with the workers. */
struct shared {
	volatile uint64_t begin_ns, end_ns; /* 0 until all are ready */
	uint64_t done[WORKERS_MAX];
	struct histogram latency[];
};

static int usage(void)
{
	fputs("usage: dsec-floor --image FILE.erofs --init FILE [--scenario ready|ready-fresh|exec|"
	      "live-exec]\n"
	      "                  [--program PATH] [--seconds S] [--workers N] [--count N]\n"
	      "Writes one line of JSON. --init: the program that is PID 1 (the build has it).\n",
	      stderr);
	return 2;
}

static int scenario_parse(const char *name, enum scenario *ret)
{
	for (size_t i = 0; i < sizeof(scenario_names) / sizeof(*scenario_names); i++) {
		if (strcmp(name, scenario_names[i]))
			continue;
		*ret = (enum scenario)i;
		return 0;
	}
	return -EINVAL;
}

static int settings_parse(struct settings *settings, int argc, char **argv)
{
	static const struct option choices[] = {
		{ "image", required_argument, NULL, 'i' },
		{ "init", required_argument, NULL, 'p' },
		{ "scenario", required_argument, NULL, 's' },
		{ "program", required_argument, NULL, 'x' },
		{ "seconds", required_argument, NULL, 't' },
		{ "workers", required_argument, NULL, 'w' },
		{ "count", required_argument, NULL, 'n' },
		{ 0 },
	};
	int choice, r = 0;

	*settings = (struct settings){ .seconds = 3,
				       .workers = 3 * (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
				       .floor.program = "/usr/libexec/dsec/tiny-exit" };
	while (!r && (choice = getopt_long(argc, argv, "", choices, NULL)) != -1) {
		if (choice == 'i')
			settings->floor.image = optarg;
		else if (choice == 'p')
			settings->floor.init = optarg;
		else if (choice == 'x')
			settings->floor.program = optarg;
		else if (choice == 's')
			r = scenario_parse(optarg, &settings->scenario);
		else if (choice == 't')
			settings->seconds = strtod(optarg, NULL);
		else if (choice == 'w')
			settings->workers = (uint32_t)strtoul(optarg, NULL, 10);
		else if (choice == 'n')
			settings->count = (uint32_t)strtoul(optarg, NULL, 10);
		else
			r = -EINVAL;
	}
	if (!settings->floor.image || !settings->floor.init || settings->seconds <= 0 ||
	    settings->workers < 1 || settings->workers > WORKERS_MAX || optind < argc)
		r = -EINVAL;
	return r;
}

/* ---- a worker ---- */

static long turn(struct settings *settings, struct floor_sandbox *sandbox)
{
	struct floor *floor = &settings->floor;
	long r;

	if (settings->scenario == SCENARIO_LIVE_EXEC)
		return floor_exec(floor, sandbox);
	r = floor_spawn(floor, settings->scenario == SCENARIO_READY_FRESH, sandbox);
	if (r >= 0 && settings->scenario == SCENARIO_EXEC)
		r = floor_exec(floor, sandbox);
	return r < 0 ? r : floor_destroy(floor, sandbox);
}

static long turns(struct settings *settings, struct shared *shared, struct floor_sandbox *sandbox)
{
	uint32_t worker = settings->floor.worker, left = settings->count;
	long r = 0;

	while (r >= 0) {
		uint64_t begin_ns = clock_now_ns(), end_ns;

		r = turn(settings, sandbox);
		if (settings->count && !--left)
			return r;
		end_ns = clock_now_ns();
		if (settings->count || !shared->begin_ns || end_ns < shared->begin_ns)
			continue;
		if (end_ns >= shared->end_ns)
			return r;
		shared->done[worker]++;
		histogram_record(&shared->latency[worker], end_ns - begin_ns);
	}
	return r;
}

static int worker_run(struct settings *settings, struct shared *shared, int cgroup_fd)
{
	struct floor_sandbox sandbox = { 0 };
	long r;

	/* What a worker leaves dies with it: PID 1s by their own parent's death. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	r = floor_slot_make(&settings->floor, cgroup_fd);
	if (r >= 0 && settings->scenario == SCENARIO_LIVE_EXEC)
		r = floor_spawn(&settings->floor, false, &sandbox);
	if (r >= 0)
		r = turns(settings, shared, &sandbox);
	if (r >= 0 && settings->scenario == SCENARIO_LIVE_EXEC)
		r = floor_destroy(&settings->floor, &sandbox);
	if (r < 0)
		fprintf(stderr, "dsec-floor: worker %u: %s: %s\n", settings->floor.worker,
			settings->floor.failed, strerror((int)-r));
	return r < 0;
}

/* ---- all of them ---- */

static int cgroup_make(struct settings *settings)
{
	auto_file FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[1024], path[400] = "";

	while (file && fgets(line, sizeof(line), file)) {
		if (strstr(line, " - cgroup2 ") && sscanf(line, "%*s %*s %*s %*s %399s", path) == 1)
			break;
		path[0] = '\0';
	}
	if (!path[0])
		return -ENOENT;
	snprintf(settings->cgroup, sizeof(settings->cgroup), "%s/dsec-floor-%d", path, getpid());
	if (mkdir(settings->cgroup, 0755))
		return -errno;
	return open(settings->cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Everything in it is killed first: after a failed run something may live. */
static void cgroup_remove(const struct settings *settings)
{
	char path[600];
	auto_close int kill_fd = -1;

	snprintf(path, sizeof(path), "%s/cgroup.kill", settings->cgroup);
	kill_fd = open(path, O_WRONLY | O_CLOEXEC);
	if (kill_fd >= 0 && write(kill_fd, "1", 1) != 1)
		perror("dsec-floor: cgroup.kill");
	for (int tries = 0; tries < 200; tries++) {
		for (uint32_t i = 0; i < settings->workers; i++) {
			snprintf(path, sizeof(path), "%s/b%u/e0", settings->cgroup, i);
			(void)rmdir(path); /* the last one's result counts */
			snprintf(path, sizeof(path), "%s/b%u", settings->cgroup, i);
			(void)rmdir(path);
		}
		if (!rmdir(settings->cgroup))
			return;
		clock_wait_readable(-1, clock_now_ns() + 10 * CLOCK_MS_NS);
	}
	perror(settings->cgroup);
}

static void report(const struct settings *settings, struct shared *shared)
{
	struct histogram *all = &shared->latency[settings->workers];
	uint64_t done = 0;

	for (uint32_t i = 0; i < settings->workers; i++) {
		done += shared->done[i];
		all->total += shared->latency[i].total;
		if (shared->latency[i].max > all->max)
			all->max = shared->latency[i].max;
		for (uint32_t k = 0; k < HISTOGRAM_COUNTS; k++)
			all->counts[k] += shared->latency[i].counts[k];
	}
	printf("{\"scenario\": \"%s\", \"rate_per_s\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f,"
	       " \"workers\": %u, \"duration_s\": %.2f, \"done\": %llu}\n",
	       scenario_names[settings->scenario], (double)done / settings->seconds,
	       (double)histogram_value_at(all, 0.5) / 1e3,
	       (double)histogram_value_at(all, 0.99) / 1e3, settings->workers, settings->seconds,
	       (unsigned long long)done);
}

static int workers_run(struct settings *settings, struct shared *shared, int cgroup_fd)
{
	pid_t pids[WORKERS_MAX];
	int status, r = 0;

	for (uint32_t i = 0; i < settings->workers; i++) {
		settings->floor.worker = i;
		settings->floor.uid_base = UID_FIRST + i * UID_RANGE;
		pids[i] = fork();
		if (pids[i] == 0)
			_exit(worker_run(settings, shared, cgroup_fd));
	}
	if (!settings->count) {
		clock_wait_readable(-1, clock_now_ns() + WARMUP_MS * CLOCK_MS_NS);
		shared->end_ns = clock_now_ns() + (uint64_t)(settings->seconds * 1e9);
		shared->begin_ns = clock_now_ns();
	}
	for (uint32_t i = 0; i < settings->workers; i++) {
		if (pids[i] < 0 || waitpid(pids[i], &status, 0) < 0 || status)
			r = -ECHILD;
	}
	return r;
}

int main(int argc, char **argv)
{
	struct settings settings;
	struct shared *shared;
	int cgroup_fd, r;
	size_t bytes;

	if (settings_parse(&settings, argc, argv))
		return usage();
	/* Descriptors have numbers of their own here, which none that is inherited may hold. */
	if (close_range(3, ~0u, 0)) {
		perror("dsec-floor: close_range");
		return 1;
	}
	bytes = sizeof(*shared) + (settings.workers + 1) * sizeof(struct histogram);
	shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || unshare(CLONE_NEWNET)) {
		perror("dsec-floor");
		return 1;
	}
	cgroup_fd = cgroup_make(&settings);
	if (cgroup_fd < 0) {
		fprintf(stderr, "dsec-floor: %s\n", strerror(-cgroup_fd));
		return 1;
	}
	r = workers_run(&settings, shared, cgroup_fd);
	cgroup_remove(&settings);
	if (!r)
		report(&settings, shared);
	return r < 0;
}
