/* The load generator's time. The unit tests link a clock of their own in place of clock.c. */
#pragma once

#include <stdint.h>

#define CLOCK_SECOND_NS 1000000000ull
#define CLOCK_MS_NS	1000000ull

/* Monotonic. */
uint64_t clock_now_ns(void);

/* Sleeps until fd is readable (-1: nothing to read) or the time has come, whichever is first. */
void clock_wait_readable(int fd, uint64_t until_ns);
