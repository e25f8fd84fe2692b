/*
 * How many sandboxes workers make, end and reap in a closed loop: `bench_launch [SECONDS]`. Not a
 * test. One thread per worker stands for the engine, with a slot of its own, so up to as many
 * requests as workers are in flight; the machine's busy time is read from /proc/stat.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/root/launch/harness.h"

struct lane {
	struct harness *harness;
	unsigned worker;
	uint32_t flags;
	bool exec;
	atomic_bool *stop;
	unsigned long done, failed;
	double *latencies_us;
	unsigned long latency_count;
};

enum { LATENCIES_MAX = 400000 };

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double busy_s(void)
{
	char text[512];
	unsigned long user, nice, system, idle, wait, irq, soft;

	(void)text_read_at(-100, "/proc/stat", text, sizeof text);
	if (sscanf(text, "cpu %lu %lu %lu %lu %lu %lu %lu", &user, &nice, &system, &idle, &wait,
		   &irq, &soft) != 7)
		return 0;
	return (double)(user + nice + system + irq + soft) / (double)sysconf(_SC_CLK_TCK);
}

static bool program_run(struct lane *lane, pid_t sandbox)
{
	static const char *const argv[] = { "/bin/tiny-exit", NULL };
	static const char *const envp[] = { NULL };
	static const int fds[] = { 2, 2 };
	struct launch_request request = harness_request(lane->harness, LAUNCH_EXEC, lane->worker);
	const struct parcel parcel = { argv, envp, "/", fds, 2, NULL };
	struct launch_reply reply;

	request.pid = sandbox;
	reply = harness_ask(lane->harness, lane->worker, &request, &parcel);
	if (reply.pid > 0 && child_reap(reply.pid) == 0)
		return reply.error == 0;
	return false;
}

static bool sandbox_run(struct lane *lane)
{
	struct launch_request request = harness_request(lane->harness, LAUNCH_SPAWN, lane->worker);
	const double start = now_us();
	struct launch_reply reply;
	bool fine;

	request.flags = lane->flags;
	reply = harness_ask(lane->harness, lane->worker, &request, NULL);
	fine = reply.error == 0 && reply.pid > 0;
	if (fine && lane->exec)
		fine = program_run(lane, reply.pid);
	if (lane->latency_count < LATENCIES_MAX)
		lane->latencies_us[lane->latency_count++] = now_us() - start;
	if (reply.pid > 0) {
		(void)kill(reply.pid, SIGKILL); /* not reaped yet */
		(void)child_reap(reply.pid);
	}
	return fine;
}

static void *lane_run(void *argument)
{
	struct lane *lane = argument;

	while (!atomic_load(lane->stop)) {
		if (sandbox_run(lane))
			lane->done++;
		else
			lane->failed++;
	}
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void report(const char *name, const struct lane *lanes, unsigned count, double seconds,
		   double busy)
{
	double *all = malloc(sizeof *all * LATENCIES_MAX * count);
	unsigned long done = 0, failed = 0, latencies = 0;

	for (unsigned i = 0; i < count; i++) {
		done += lanes[i].done;
		failed += lanes[i].failed;
		memcpy(all + latencies, lanes[i].latencies_us,
		       lanes[i].latency_count * sizeof *all);
		latencies += lanes[i].latency_count;
	}
	qsort(all, latencies, sizeof *all, by_value);
	printf("%-32s %u workers: %7.0f/s, cpu %6.1f us each, to ready p50 %6.0f us p99 %6.0f us, "
	       "failed %lu\n",
	       name, count, (double)done / seconds, busy * 1e6 / (double)(done ? done : 1),
	       latencies ? all[latencies / 2] : 0, latencies ? all[latencies * 99 / 100] : 0,
	       failed);
	free(all);
}

static double bench_seconds = 3;

static void bench(struct harness *h, const char *name, uint32_t flags, bool exec)
{
	pthread_t threads[HARNESS_WORKERS_MAX];
	struct lane lanes[HARNESS_WORKERS_MAX] = { 0 };
	atomic_bool stop = false;
	double start, busy;

	for (unsigned i = 0; i < h->worker_count; i++) {
		lanes[i] = (struct lane){
			.harness = h, .worker = i, .flags = flags, .exec = exec, .stop = &stop
		};
		lanes[i].latencies_us = malloc(sizeof(double) * LATENCIES_MAX);
	}
	start = now_us();
	busy = busy_s();
	for (unsigned i = 0; i < h->worker_count; i++)
		pthread_create(&threads[i], NULL, lane_run, &lanes[i]);
	sleep_ms((unsigned)(bench_seconds * 1000));
	atomic_store(&stop, true);
	for (unsigned i = 0; i < h->worker_count; i++)
		pthread_join(threads[i], NULL);
	report(name, lanes, h->worker_count, (now_us() - start) / 1e6, busy_s() - busy);
	for (unsigned i = 0; i < h->worker_count; i++)
		free(lanes[i].latencies_us);
}

static void rates(struct harness *h)
{
	for (unsigned i = 0; i < h->worker_count; i++)
		expect(harness_op(h, LAUNCH_BUILD, i).error == 0);
	bench(h, "spawn, root reused", 0, false);
	bench(h, "spawn, root rebuilt", LAUNCH_REBUILD, false);
	bench(h, "spawn, reused, one tiny exec", 0, true);
	for (unsigned i = 0; i < h->worker_count; i++)
		expect(harness_op(h, LAUNCH_NETWORK_MAKE, i).error == 0);
	bench(h, "spawn, reused, private network", LAUNCH_PRIVATE, false);
	for (unsigned i = 0; i < h->worker_count; i++)
		expect(harness_op(h, LAUNCH_DROP, i).error == 0 &&
		       harness_op(h, LAUNCH_NETWORK_DROP, i).error == 0);
}

static const struct harness_test tests[] = {
	{ "one_worker", rates, { .workers = 1 } },
	{ "two_workers", rates, { .workers = 2 } },
	{ "four_workers", rates, { .workers = 4 } },
	{ "eight_workers", rates, { .workers = 8 } },
};

int main(int argc, char **argv)
{
	if (argc > 1)
		bench_seconds = atof(argv[1]);
	return harness_main(1, argv, tests, sizeof tests / sizeof *tests);
}
