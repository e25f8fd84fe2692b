/*
 * Who waits for contents that are elsewhere: readers FD THREADS BYTES < OFFSETS. So many threads
 * read so many bytes at each offset, whoever is free the next; printed are seconds of all, and
 * microseconds of the median read. For figures_serve.py: an interpreter's threads cost more than
 * what is measured.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 256, OFFSETS_MAX = 1 << 16, BYTES_MAX = 1 << 20 };

static struct {
	int fd;
	size_t bytes;
	uint32_t count;
	atomic_uint next;
	long long offsets[OFFSETS_MAX];
	uint64_t times_ns[OFFSETS_MAX];
} work;

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail */
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *reader(void *buffer)
{
	uint32_t at;

	while ((at = atomic_fetch_add(&work.next, 1)) < work.count) {
		const uint64_t begin_ns = now_ns();

		if (pread(work.fd, buffer, work.bytes, work.offsets[at]) != (ssize_t)work.bytes) {
			perror("pread");
			exit(1);
		}
		work.times_ns[at] = now_ns() - begin_ns;
	}
	return NULL;
}

static int by_time(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS_MAX];
	unsigned long count = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
	uint64_t begin_ns;

	work.bytes = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	if (!count || count > THREADS_MAX || !work.bytes || work.bytes > BYTES_MAX) {
		fprintf(stderr, "usage: readers FD THREADS BYTES < offsets\n");
		return 2;
	}
	work.fd = (int)strtol(argv[1], NULL, 10);
	while (work.count < OFFSETS_MAX && scanf("%lld", &work.offsets[work.count]) == 1)
		work.count++;
	begin_ns = now_ns();
	for (unsigned long i = 0; i < count; i++) {
		void *buffer = malloc(work.bytes);

		if (!buffer || pthread_create(&threads[i], NULL, reader, buffer)) {
			perror("a thread");
			return 1;
		}
	}
	for (unsigned long i = 0; i < count; i++)
		(void)pthread_join(threads[i], NULL); /* they end */
	printf("%.6f ", (double)(now_ns() - begin_ns) / 1e9);
	qsort(work.times_ns, work.count, sizeof *work.times_ns, by_time);
	printf("%.1f\n", (double)work.times_ns[work.count / 2] / 1e3);
	return fflush(stdout) < 0;
}
