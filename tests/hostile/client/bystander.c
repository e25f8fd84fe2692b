/*
 * The bystander of hostile claims: a thread that asks every few milliseconds while a claim runs.
 * Its samples are read when the thread has ended.
 */
#include "tests/hostile/client/bystander.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/hostile/client/claims.h"

enum { PAUSE_MS = 2, ALONE_MS = 400, ANSWER_MS = 30000 };

/* A question that every shard answers. */
static int ask(struct dsec *d)
{
	int64_t ticket = dsec_check(d, NULL);
	struct dsec_event *event;
	bool is_last = false;

	while (!is_last) {
		int r = dsec_wait(d, ticket, ANSWER_MS, &event);

		if (r < 0)
			return r;
		is_last = event->flags & DSEC_LAST;
		dsec_event_free(event);
	}
	return 0;
}

static int run(struct bystander *by)
{
	static const char *const argv[] = { "/bin/payload", "exit", NULL };
	struct dsec_event *event = NULL;
	const struct dsec_result *result;
	int r = dsec_run(by->d, by->sandbox, argv, ANSWER_MS, &event);

	if (r < 0)
		return r;
	result = event->body;
	r = result && result->reason == DSEC_EXIT && result->exit_code == 0 ? 0 : -EIO;
	dsec_event_free(event);
	return r;
}

static void sample_add(uint32_t *samples_us, uint32_t *count, uint64_t began_us)
{
	if (*count < BYSTANDER_SAMPLES)
		samples_us[(*count)++] = (uint32_t)(claim_now_us() - began_us);
}

/* A folder has two links more than folders in it. */
static void threads_count(struct effort *effort)
{
	struct stat tasks;

	if (stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > effort->threads + 2)
		effort->threads = (uint32_t)tasks.st_nlink - 2;
}

static void *watch(void *argument)
{
	struct bystander *by = argument;

	do {
		uint64_t began_us = claim_now_us();

		by->failed = ask(by->d) < 0;
		if (by->failed)
			break;
		sample_add(by->took_us, &by->count, began_us);
		if (by->has_sandbox) {
			began_us = claim_now_us();
			by->failed = run(by) < 0;
			if (by->failed)
				break;
			sample_add(by->exec_us, &by->exec_count, began_us);
		}
		threads_count(&by->effort);
		claim_sleep_ms(PAUSE_MS);
	} while (!atomic_load(&by->over));
	effort_of_thread(&by->effort);
	return NULL;
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static struct bystander_share share(const uint32_t *sorted_us, uint32_t count)
{
	return (struct bystander_share){
		.count = count,
		.p50_us = count ? sorted_us[(uint64_t)count * 50 / 100] : 0,
		.p99_us = count ? sorted_us[(uint64_t)count * 99 / 100] : 0,
	};
}

struct bystander_share bystander_noops(const struct bystander *by)
{
	return share(by->took_us, by->count);
}

struct bystander_share bystander_execs(const struct bystander *by)
{
	return share(by->exec_us, by->exec_count);
}

void bystander_join(struct bystander *by)
{
	atomic_store(&by->over, true);
	(void)pthread_join(by->thread, NULL);
	qsort(by->took_us, by->count, sizeof *by->took_us, by_size);
	qsort(by->exec_us, by->exec_count, sizeof *by->exec_us, by_size);
}

int bystander_start(struct bystander *by)
{
	by->count = 0;
	by->exec_count = 0;
	by->failed = false;
	by->effort = (struct effort){ 0 };
	atomic_store(&by->over, false);
	return -pthread_create(&by->thread, NULL, watch, by);
}

void bystander_stop(struct bystander *by)
{
	struct bystander_share noops;

	bystander_join(by);
	noops = bystander_noops(by);
	printf("  a bystander was answered %u times in %u us, p99 %u us; alone %u us and %u us\n",
	       noops.count, noops.p50_us, noops.p99_us, by->alone_p50_us, by->alone_p99_us);
}

int bystander_open(struct bystander *by, const char *address)
{
	const struct dsec_open_opts opts = { .size = sizeof opts, .address = address };
	struct bystander_share noops;
	int r;

	by->has_sandbox = false;
	r = dsec_open(&opts, &by->d);
	if (r < 0)
		return r;
	r = bystander_start(by);
	if (r < 0) {
		dsec_close(by->d);
		return r;
	}
	claim_sleep_ms(ALONE_MS);
	bystander_join(by);
	noops = bystander_noops(by);
	by->alone_p50_us = noops.p50_us;
	by->alone_p99_us = noops.p99_us;
	return 0;
}

int bystander_settle_in(struct bystander *by)
{
	int r = dsec_sandbox(by->d, "tiny", &by->sandbox);

	by->has_sandbox = r >= 0;
	return r < 0 ? r : 0;
}

void bystander_close(struct bystander *by)
{
	dsec_close(by->d);
}
