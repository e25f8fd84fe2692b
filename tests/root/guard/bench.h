/* How bench_network and bench_policy measure: the best of several rounds of each call. */
#pragma once

enum { BENCH_ROUNDS = 7 };

struct bench {
	int count;
	const int *repeats; /* of each call in a round */
	void (*call)(int which, const void *with);
};

double bench_now_ns(void);
/* Ends the program where r is negative. */
void must(long r, const char *what);
/* A round of all calls; keeps the best of what it and others measured. 0: nobody has yet. */
void bench_round(const struct bench *bench, const void *with, double *best_ns);
