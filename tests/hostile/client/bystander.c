/*
 * The bystander of hostile claims: a thread that asks every few milliseconds while a claim runs.
 * Its samples are read when the thread has ended.
 */
#include "tests/hostile/client/bystander.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

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

static void *watch(void *argument)
{
	struct bystander *by = argument;

	do {
		uint64_t began_us = claim_now_us();

		if (ask(by->d) < 0)
			break;
		if (by->count < BYSTANDER_SAMPLES)
			by->took_us[by->count++] = (uint32_t)(claim_now_us() - began_us);
		claim_sleep_ms(PAUSE_MS);
	} while (!atomic_load(&by->over));
	return NULL;
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void join(struct bystander *by)
{
	atomic_store(&by->over, true);
	(void)pthread_join(by->thread, NULL);
	qsort(by->took_us, by->count, sizeof *by->took_us, by_size);
}

static uint32_t share_us(const struct bystander *by, unsigned percent)
{
	return by->count ? by->took_us[(uint64_t)by->count * percent / 100] : 0;
}

int bystander_start(struct bystander *by)
{
	by->count = 0;
	atomic_store(&by->over, false);
	return -pthread_create(&by->thread, NULL, watch, by);
}

void bystander_stop(struct bystander *by)
{
	join(by);
	printf("  a bystander was answered %u times in %u us, p99 %u us; alone %u us and %u us\n",
	       by->count, share_us(by, 50), share_us(by, 99), by->alone_p50_us, by->alone_p99_us);
}

int bystander_open(struct bystander *by, const char *address)
{
	const struct dsec_open_opts opts = { .size = sizeof opts, .address = address };
	int r = dsec_open(&opts, &by->d);

	if (r < 0)
		return r;
	r = bystander_start(by);
	if (r < 0) {
		dsec_close(by->d);
		return r;
	}
	claim_sleep_ms(ALONE_MS);
	join(by);
	by->alone_p50_us = share_us(by, 50);
	by->alone_p99_us = share_us(by, 99);
	return 0;
}

void bystander_close(struct bystander *by)
{
	dsec_close(by->d);
}
