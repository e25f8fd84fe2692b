/* The clock and the loop of the benchmarks here. Called by bench_network.c and bench_policy.c. */
#include "tests/root/guard/bench.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

double bench_now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

void must(long r, const char *what)
{
	if (r >= 0)
		return;
	perror(what);
	_exit(1);
}

void bench_round(const struct bench *bench, const void *with, double *best_ns)
{
	for (int which = 0; which < bench->count; which++) {
		/* The CPU's time: nothing here waits, and what others take does not count. */
		double begun = clock_ns(CLOCK_PROCESS_CPUTIME_ID), each;

		for (int i = 0; i < bench->repeats[which]; i++)
			bench->call(which, with);
		each = (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begun) / bench->repeats[which];
		if (!best_ns[which] || each < best_ns[which])
			best_ns[which] = each;
	}
}
