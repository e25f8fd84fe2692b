/*
 * Owns the real clock. Called by the load loop and main. Must hold: monotonic, and finer than a
 * millisecond, or an open loop would start late.
 */
#include "loadgen/clock.h"

#include <poll.h>
#include <time.h>

uint64_t clock_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with this clock */
	return (uint64_t)now.tv_sec * CLOCK_SECOND_NS + (uint64_t)now.tv_nsec;
}

void clock_wait_readable(int fd, uint64_t until_ns)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };
	uint64_t now_ns = clock_now_ns(), left_ns;
	struct timespec left;

	if (until_ns <= now_ns)
		return;
	left_ns = until_ns - now_ns;
	left.tv_sec = (time_t)(left_ns / CLOCK_SECOND_NS);
	left.tv_nsec = (long)(left_ns % CLOCK_SECOND_NS);
	(void)ppoll(&pollfd, 1, &left, NULL); /* woken early is fine: the caller looks again */
}
