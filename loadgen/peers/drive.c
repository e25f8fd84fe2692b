/* Copyright (C) The DSec Authors. SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how often a second a command can be started and waited for: several threads, each of
 * which starts the command, waits for its end and starts it again, until the time is over. Used by
 * peers.sh, once for every peer and every degree of parallelism. Writes one line of JSON.
 *
 *   drive --parallel N --seconds N [--lower DIR --scratch DIR] -- COMMAND [ARGUMENT...]
 *
 * In an argument "%d" becomes a number that no other run of this process gets (container runtimes
 * want a new name every time), "%t" the thread's number, from 0. With --lower and --scratch each
 * run has a writable root of its own, an overlay of DIR with a new tmpfs above it, mounted before
 * and unmounted after the command at SCRATCH/%t/root: what a sandbox is given elsewhere, for those
 * that do not do it themselves. To be run in a mount namespace of its own, then.
 * Must hold: it ends within the asked time and one command's limit more; a command that did not
 * exit with 0 within its limit is counted as failed and is no part of the rate or of the latencies.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* so that plain cc builds it, too */
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX	 64
#define ARGUMENTS_MAX	 128
#define ARGUMENT_BYTES	 256
#define COMMAND_LIMIT_MS 10000

/* A latency's bucket: exact below 128 us, above it 64 buckets for each power of two. */
#define BUCKET_BITS 6
#define BUCKETS	    ((32 - BUCKET_BITS + 1) << BUCKET_BITS)

struct drive {
	char **command;
	const char *lower; /* NULL: no roots are made */
	const char *scratch;
	unsigned int parallel;
	unsigned int seconds;
	uint64_t end_ns;
	posix_spawn_file_actions_t actions;
};

struct runner {
	pthread_t thread;
	const struct drive *drive;
	unsigned int index;
	char upper[ARGUMENT_BYTES]; /* a tmpfs during a run, holds the overlay's two directories */
	char root[ARGUMENT_BYTES];
	char options[4 * ARGUMENT_BYTES];
	uint64_t last_ns;
	uint64_t done;
	uint64_t failed;
	int error; /* -errno of a failure to start at all, which ends the runner */
	uint32_t buckets[BUCKETS];
};

static int options_read(struct drive *drive, int argc, char **argv);
static int root_prepare(struct runner *runner);
static void *runner_main(void *argument);
static void report(const struct drive *drive, struct runner *runners, uint64_t start_ns);
static uint64_t now_ns(void);

int main(int argc, char **argv)
{
	struct drive drive = { 0 };
	struct runner *runners;
	uint64_t start_ns;
	int r, fd;

	if (options_read(&drive, argc, argv) < 0) {
		fprintf(stderr, "usage: drive --parallel N --seconds N -- COMMAND...\n");
		return 2;
	}
	runners = calloc(drive.parallel, sizeof(*runners));
	if (!runners)
		return 1;
	posix_spawn_file_actions_init(&drive.actions);
	/* Nothing of the host's: a runtime may give its stdio to the user inside. */
	fd = memfd_create("stdio", MFD_CLOEXEC);
	if (fd < 0) {
		fprintf(stderr, "drive: memfd: %s\n", strerror(errno));
		return 1;
	}
	for (int at = 0; at <= STDERR_FILENO; at++)
		posix_spawn_file_actions_adddup2(&drive.actions, fd, at);

	start_ns = now_ns();
	drive.end_ns = start_ns + drive.seconds * UINT64_C(1000000000);
	for (unsigned int i = 0; i < drive.parallel; i++) {
		runners[i].drive = &drive;
		runners[i].index = i;
		r = drive.lower ? root_prepare(&runners[i]) : 0;
		if (r < 0) {
			fprintf(stderr, "drive: %s: %s\n", drive.scratch, strerror(-r));
			return 1;
		}
		r = pthread_create(&runners[i].thread, NULL, runner_main, &runners[i]);
		if (r) {
			fprintf(stderr, "drive: thread: %s\n", strerror(r));
			return 1;
		}
	}
	r = 0;
	for (unsigned int i = 0; i < drive.parallel; i++) {
		pthread_join(runners[i].thread, NULL);
		if (runners[i].error)
			r = runners[i].error;
	}
	if (r < 0)
		fprintf(stderr, "drive: %s: %s\n", drive.command[0], strerror(-r));
	else
		report(&drive, runners, start_ns);
	posix_spawn_file_actions_destroy(&drive.actions);
	free(runners);
	return r < 0;
}

static int number_read(const char *text, unsigned int max, unsigned int *ret_number)
{
	unsigned long number;
	char *end;

	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno || end == text || *end || number < 1 || number > max)
		return -EINVAL;
	*ret_number = (unsigned int)number;
	return 0;
}

static int text_read(const char *text, const char **ret_text)
{
	if (!*text || strlen(text) >= ARGUMENT_BYTES)
		return -EINVAL;
	*ret_text = text;
	return 0;
}

static int options_read(struct drive *drive, int argc, char **argv)
{
	int at, r;

	for (at = 1; at + 1 < argc && strcmp(argv[at], "--"); at += 2) {
		if (!strcmp(argv[at], "--parallel"))
			r = number_read(argv[at + 1], THREADS_MAX, &drive->parallel);
		else if (!strcmp(argv[at], "--seconds"))
			r = number_read(argv[at + 1], 3600, &drive->seconds);
		else if (!strcmp(argv[at], "--lower"))
			r = text_read(argv[at + 1], &drive->lower);
		else if (!strcmp(argv[at], "--scratch"))
			r = text_read(argv[at + 1], &drive->scratch);
		else
			r = -EINVAL;
		if (r < 0)
			return r;
	}
	if (!drive->lower != !drive->scratch)
		return -EINVAL;
	if (at + 1 >= argc || argc - at > ARGUMENTS_MAX || !drive->parallel || !drive->seconds)
		return -EINVAL;
	drive->command = argv + at + 1;
	return 0;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static unsigned int bucket_of(uint64_t us)
{
	unsigned int shift;

	if (us > UINT32_MAX)
		us = UINT32_MAX;
	if (us < 2U << BUCKET_BITS)
		return (unsigned int)us;
	shift = (unsigned int)(63 - __builtin_clzll(us)) - BUCKET_BITS;
	return (shift << BUCKET_BITS) + (unsigned int)(us >> shift);
}

/* The middle of a bucket. */
static uint64_t bucket_us(unsigned int bucket)
{
	unsigned int shift;

	if (bucket < 2U << BUCKET_BITS)
		return bucket;
	shift = (bucket >> BUCKET_BITS) - 1;
	return ((uint64_t)(bucket - (shift << BUCKET_BITS)) << shift) + ((1U << shift) >> 1);
}

/* Writes the argument with its marks filled in. */
static int argument_fill(const struct runner *runner, const char *from, uint64_t number,
			 char *ret_text)
{
	size_t used = 0;

	for (; *from; from++) {
		if (from[0] == '%' && (from[1] == 'd' || from[1] == 't')) {
			used += (size_t)snprintf(ret_text + used, ARGUMENT_BYTES - used, "%" PRIu64,
						 from[1] == 'd' ? number : runner->index);
			from++;
		} else {
			ret_text[used++] = *from;
		}
		if (used >= ARGUMENT_BYTES)
			return -E2BIG;
	}
	ret_text[used] = '\0';
	return 0;
}

static int path_format(char *ret_path, const struct runner *runner, const char *name)
{
	int r = snprintf(ret_path, ARGUMENT_BYTES, "%s/%u%s", runner->drive->scratch, runner->index,
			 name);

	return r < ARGUMENT_BYTES ? 0 : -ENAMETOOLONG;
}

static int root_prepare(struct runner *runner)
{
	char folder[ARGUMENT_BYTES];
	int r;

	if (path_format(folder, runner, "") < 0 ||
	    path_format(runner->upper, runner, "/upper") < 0 ||
	    path_format(runner->root, runner, "/root") < 0)
		return -ENAMETOOLONG;
	r = snprintf(runner->options, sizeof(runner->options),
		     "lowerdir=%s,upperdir=%s/u,workdir=%s/w", runner->drive->lower, runner->upper,
		     runner->upper);
	if (r >= (int)sizeof(runner->options))
		return -ENAMETOOLONG;
	for (int i = 0; i < 3; i++) {
		const char *made = i == 0 ? folder : i == 1 ? runner->upper : runner->root;

		if (mkdir(made, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int root_mount(const struct runner *runner)
{
	char folder[ARGUMENT_BYTES + 2];
	int r;

	if (mount("tmpfs", runner->upper, "tmpfs", 0, "mode=0755,size=64m") < 0)
		return -errno;
	snprintf(folder, sizeof(folder), "%s/u", runner->upper);
	r = mkdir(folder, 0755) < 0 ? -errno : 0;
	snprintf(folder, sizeof(folder), "%s/w", runner->upper);
	if (r == 0 && mkdir(folder, 0755) < 0)
		r = -errno;
	if (r == 0 && mount("overlay", runner->root, "overlay", 0, runner->options) < 0)
		r = -errno;
	if (r < 0)
		umount2(runner->upper, MNT_DETACH);
	return r;
}

static void root_unmount(const struct runner *runner)
{
	umount2(runner->root, MNT_DETACH);
	umount2(runner->upper, MNT_DETACH);
}

/* 0: exited with 0. 1: anything else, also killed by us after its limit. */
static int child_wait(pid_t pid)
{
	struct pollfd ended = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	int status, r;

	if (ended.fd < 0) {
		r = -errno;
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return r;
	}
	do
		r = poll(&ended, 1, COMMAND_LIMIT_MS);
	while (r < 0 && errno == EINTR);
	close(ended.fd);
	if (r <= 0)
		kill(pid, SIGKILL); /* not reaped yet, so the pid is still its own */
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return r <= 0 || status != 0;
}

static int command_run(const struct runner *runner, uint64_t number)
{
	const struct drive *drive = runner->drive;
	char texts[ARGUMENTS_MAX][ARGUMENT_BYTES];
	char *arguments[ARGUMENTS_MAX + 1];
	pid_t pid;
	int count, r;

	for (count = 0; drive->command[count]; count++) {
		r = argument_fill(runner, drive->command[count], number, texts[count]);
		if (r < 0)
			return r;
		arguments[count] = texts[count];
	}
	arguments[count] = NULL;
	r = drive->lower ? root_mount(runner) : 0;
	if (r < 0)
		return r;
	r = -posix_spawnp(&pid, arguments[0], &drive->actions, NULL, arguments, environ);
	if (r == 0)
		r = child_wait(pid);
	if (drive->lower)
		root_unmount(runner);
	return r;
}

static void *runner_main(void *argument)
{
	struct runner *runner = argument;
	uint64_t start_ns, end_ns, number;
	int r;

	runner->last_ns = now_ns();
	for (uint64_t round = 0; (start_ns = now_ns()) < runner->drive->end_ns; round++) {
		number = round * runner->drive->parallel + runner->index;
		r = command_run(runner, number);
		end_ns = now_ns();
		if (r < 0) {
			runner->error = r;
			break;
		}
		runner->last_ns = end_ns;
		if (r > 0) {
			runner->failed++;
			continue;
		}
		runner->done++;
		runner->buckets[bucket_of((end_ns - start_ns) / 1000)]++;
	}
	return NULL;
}

/* The latency that the given share of all runs did not exceed. */
static uint64_t percentile_us(const struct runner *all, double share)
{
	uint64_t wanted = (uint64_t)((double)all->done * share);
	uint64_t seen = 0;

	for (unsigned int bucket = 0; bucket < BUCKETS; bucket++) {
		seen += all->buckets[bucket];
		if (seen > wanted || (seen && seen == all->done))
			return bucket_us(bucket);
	}
	return 0;
}

/* Adds all runners up in the first one and writes what they did. */
static void report(const struct drive *drive, struct runner *runners, uint64_t start_ns)
{
	struct runner *all = &runners[0];
	double elapsed_s;

	for (unsigned int i = 1; i < drive->parallel; i++) {
		all->done += runners[i].done;
		all->failed += runners[i].failed;
		if (runners[i].last_ns > all->last_ns)
			all->last_ns = runners[i].last_ns;
		for (unsigned int bucket = 0; bucket < BUCKETS; bucket++)
			all->buckets[bucket] += runners[i].buckets[bucket];
	}
	elapsed_s = (double)(all->last_ns - start_ns) / 1e9;
	printf("{\"parallel\": %u, \"duration_s\": %.3f, \"done\": %" PRIu64 ", ", drive->parallel,
	       elapsed_s, all->done);
	printf("\"failed\": %" PRIu64 ", \"rate_per_s\": %.1f, ", all->failed,
	       elapsed_s > 0 ? (double)all->done / elapsed_s : 0);
	printf("\"p50_us\": %" PRIu64 ", \"p99_us\": %" PRIu64 "}\n", percentile_us(all, 0.5),
	       percentile_us(all, 0.99));
}
