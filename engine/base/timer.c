/*
 * Owns the heap of deadlines of one loop: a four-ary heap of pointers, each timer knowing its
 * place. Called on the loop's thread only. Always true: a parent is never later than its children;
 * heap[t->index1 - 1] == t for every timer that is set.
 */
#include "engine/base/timer.h"

#include <errno.h>
#include <stdlib.h>

enum { ARITY = 4 };

int timers_init(struct timers *timers, uint32_t max)
{
	struct timer **heap = calloc(max, sizeof(struct timer *));

	if (!heap)
		return -ENOMEM;
	*timers = (struct timers){ .heap = heap, .max = max };
	return 0;
}

void timers_done(struct timers *timers)
{
	free(timers->heap);
	*timers = (struct timers){ 0 };
}

static void timer_place(struct timers *timers, struct timer *t, uint32_t at)
{
	timers->heap[at] = t;
	t->index1 = at + 1;
}

/* Both find the place of t, starting from the gap at `at`. */
static void timer_rise(struct timers *timers, struct timer *t, uint32_t at)
{
	while (at) {
		uint32_t parent = (at - 1) / ARITY;

		if (timers->heap[parent]->at_ns <= t->at_ns)
			break;
		timer_place(timers, timers->heap[parent], at);
		at = parent;
	}
	timer_place(timers, t, at);
}

static void timer_sink(struct timers *timers, struct timer *t, uint32_t at)
{
	for (;;) {
		uint32_t child = at * ARITY + 1, least = child, end = child + ARITY;

		if (child >= timers->count)
			break;
		if (end > timers->count)
			end = timers->count;
		while (++child < end)
			if (timers->heap[child]->at_ns < timers->heap[least]->at_ns)
				least = child;
		if (timers->heap[least]->at_ns >= t->at_ns)
			break;
		timer_place(timers, timers->heap[least], at);
		at = least;
	}
	timer_place(timers, t, at);
}

int timer_set(struct timers *timers, struct timer *t, uint64_t at_ns)
{
	uint32_t at;

	if (!t->index1) {
		if (timers->count == timers->max)
			return -ENOSPC;
		t->at_ns = at_ns;
		timer_rise(timers, t, timers->count++);
		return 0;
	}
	at = t->index1 - 1;
	if (at_ns < t->at_ns) {
		t->at_ns = at_ns;
		timer_rise(timers, t, at);
	} else {
		t->at_ns = at_ns;
		timer_sink(timers, t, at);
	}
	return 0;
}

void timer_clear(struct timers *timers, struct timer *t)
{
	struct timer *last;
	uint32_t at;

	if (!t->index1)
		return;
	at = t->index1 - 1;
	t->index1 = 0;
	last = timers->heap[--timers->count];
	if (last == t)
		return;
	if (last->at_ns < t->at_ns)
		timer_rise(timers, last, at);
	else
		timer_sink(timers, last, at);
}

uint64_t timers_next(const struct timers *timers)
{
	return timers->count ? timers->heap[0]->at_ns : UINT64_MAX;
}

uint32_t timers_run(struct timers *timers, uint64_t now_ns, uint32_t most)
{
	uint32_t ran = 0;

	if (most > timers->count)
		most = timers->count;
	while (ran < most && timers->count && timers->heap[0]->at_ns <= now_ns) {
		struct timer *t = timers->heap[0];

		timer_clear(timers, t);
		t->expired(t);
		ran++;
	}
	return ran;
}
