/*
 * Owns the threads of the beats. Called by hogs.c, which turns them on while hogs crowd their CPUs
 * and others begin something. Must hold: one that rests costs nothing, and none uses more of a CPU
 * than a wake-up a beat.
 */
#include "backends/container/beats.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { STACK_BYTES = 64 << 10, NS_PER_US = 1000 };

enum state { STATE_REST, STATE_BEAT, STATE_END };

struct beats {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	_Atomic(enum state) state; /* changed under the lock */
	uint32_t count;
	pthread_t threads[CPU_SETSIZE];
};

static void *beat_main(void *argument)
{
	const struct timespec beat = { 0, (long)BEATS_US * NS_PER_US };
	struct beats *b = argument;

	for (;;) {
		while (atomic_load_explicit(&b->state, memory_order_relaxed) == STATE_BEAT)
			(void)nanosleep(&beat, NULL); /* woken early it is one beat more */
		pthread_mutex_lock(&b->lock);
		while (b->state == STATE_REST)
			pthread_cond_wait(&b->changed, &b->lock);
		if (b->state == STATE_END)
			break;
		pthread_mutex_unlock(&b->lock);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

static void state_set(struct beats *b, enum state state)
{
	if (b->state == state)
		return;
	pthread_mutex_lock(&b->lock);
	b->state = state;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

static int beat_start(struct beats *b, int cpu)
{
	const struct sched_param first = { .sched_priority = 1 };
	pthread_attr_t attributes;
	cpu_set_t mask;
	int r;

	CPU_ZERO(&mask);
	CPU_SET(cpu, &mask);
	r = pthread_attr_init(&attributes);
	if (r)
		return -r;
	r = pthread_attr_setstacksize(&attributes, STACK_BYTES);
	if (!r)
		r = pthread_attr_setaffinity_np(&attributes, sizeof mask, &mask);
	if (!r)
		r = pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	if (!r)
		r = pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
	if (!r)
		r = pthread_attr_setschedparam(&attributes, &first);
	if (!r)
		r = pthread_create(&b->threads[b->count], &attributes, beat_main, b);
	if (!r)
		(void)pthread_setname_np(b->threads[b->count++], "beat"); /* for people only */
	(void)pthread_attr_destroy(&attributes);
	return -r;
}

int beats_open(const cpu_set_t *cpus, struct beats **ret)
{
	struct beats *b = calloc(1, sizeof *b);
	int r = 0;

	if (!b)
		return -ENOMEM;
	b->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	b->changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	for (int cpu = 0; cpu < CPU_SETSIZE && r >= 0; cpu++)
		if (CPU_ISSET(cpu, cpus))
			r = beat_start(b, cpu);
	if (r < 0) {
		beats_close(b);
		return r;
	}
	*ret = b;
	return 0;
}

void beats_set(struct beats *b, bool are_on)
{
	if (b)
		state_set(b, are_on ? STATE_BEAT : STATE_REST);
}

void beats_close(struct beats *b)
{
	if (!b)
		return;
	state_set(b, STATE_END);
	while (b->count)
		(void)pthread_join(b->threads[--b->count], NULL);
	free(b);
}
