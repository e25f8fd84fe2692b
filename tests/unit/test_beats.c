/*
 * Claims about beats: their threads are counted by how often they slept.
 */
#include <criterion/criterion.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/container/beats.h"

enum { WAIT_MS = 10000, AT_LEAST = 20 };

static long naps_of(int tid)
{
	char path[64], line[128];
	long naps = 0;
	FILE *file;

	(void)snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "voluntary_ctxt_switches: %ld", &naps) == 1)
			break;
	if (file)
		(void)fclose(file);
	return naps;
}

/* Of all threads but the first; `ret_threads`: how many there are. */
static long naps_sum(int *ret_threads)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *entry;
	long naps = 0;

	*ret_threads = 0;
	while (tasks && (entry = readdir(tasks)) != NULL) {
		const int tid = atoi(entry->d_name);

		if (tid == 0 || tid == getpid())
			continue;
		naps += naps_of(tid);
		++*ret_threads;
	}
	if (tasks)
		(void)closedir(tasks);
	return naps;
}

static void pause_ms(long ms)
{
	const struct timespec time = { 0, ms * 1000000 };

	(void)nanosleep(&time, NULL);
}

Test(beats, threads_beat_while_they_are_told_to_and_end_when_closed)
{
	struct beats *b = NULL;
	long naps, more;
	cpu_set_t cpus;
	int others, threads, r, waited_ms;

	(void)naps_sum(&others); /* of the test's runner, if any */
	cr_assert(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
	r = beats_open(&cpus, &b);
	if (r == -EPERM)
		cr_skip_test("realtime threads are not allowed here");
	cr_assert(r == 0, "%s", strerror(-r));
	beats_set(b, true);
	naps = naps_sum(&threads);
	cr_expect(threads == others + CPU_COUNT(&cpus));
	for (waited_ms = 0; waited_ms < WAIT_MS; waited_ms++) {
		more = naps_sum(&threads);
		if (more - naps >= AT_LEAST * threads)
			break;
		pause_ms(1);
	}
	cr_expect(waited_ms < WAIT_MS, "%ld beats", more - naps);
	beats_set(b, false);
	/* Each may beat once more: until two looks in a row are alike. */
	for (waited_ms = 0; waited_ms < WAIT_MS; waited_ms += 100) {
		naps = naps_sum(&threads);
		pause_ms(100);
		if (naps_sum(&threads) == naps)
			break;
	}
	cr_expect(waited_ms < WAIT_MS, "they go on");
	beats_set(b, true);
	beats_close(b);
	(void)naps_sum(&threads);
	cr_expect(threads == others);
}
