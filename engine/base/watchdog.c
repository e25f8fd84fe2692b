/*
 * The watchdog of a loop. Called by io_uring.c on the loop's thread, whose CPU time and sleeps it
 * reads; it must cost next to nothing per callback, so they are read again only now and then.
 */
#include "engine/base/watchdog.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <time.h>

#include "engine/base/io.h"

#define NS_PER_S	1000000000ull
#define SLOW_NS		1000000ull
/* What many short callbacks did must not be held against the one that was preempted. */
#define NOTE_AGE_NS_MAX 250000ull

static uint64_t clock_read_ns(clockid_t clock)
{
	struct timespec ts;

	(void)clock_gettime(clock, &ts); /* cannot fail for these clocks */
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static int64_t sleeps_read(void)
{
	struct rusage usage;

	(void)getrusage(RUSAGE_THREAD, &usage); /* cannot fail for this argument */
	return usage.ru_nvcsw;
}

static void effort_note(struct watchdog *dog, uint64_t now_ns)
{
	dog->noted_ns = now_ns;
	dog->sleeps = sleeps_read();
	dog->cpu_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

void watchdog_start(struct watchdog *dog, uint64_t now_ns)
{
	dog->began_ns = now_ns;
	effort_note(dog, now_ns);
}

static bool was_preempted(const struct watchdog *dog)
{
	return sleeps_read() == dog->sleeps &&
	       clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - dog->cpu_ns < SLOW_NS;
}

uint64_t watchdog_measure(struct watchdog *dog, struct io_stats *stats, uintptr_t address)
{
	uint64_t now_ns = clock_read_ns(CLOCK_MONOTONIC), took_ns = now_ns - dog->began_ns;

	dog->began_ns = now_ns;
	stats->callbacks++;
	if (took_ns > SLOW_NS && was_preempted(dog)) {
		stats->callbacks_preempted++;
	} else {
		if (took_ns > stats->callback_max_ns)
			stats->callback_max_ns = took_ns;
		if (took_ns > SLOW_NS) {
			stats->callbacks_over_1ms++;
			stats->slow_ns = took_ns;
			stats->slow_address = address;
		}
	}
	if (now_ns - dog->noted_ns > NOTE_AGE_NS_MAX)
		effort_note(dog, now_ns);
	return now_ns;
}
