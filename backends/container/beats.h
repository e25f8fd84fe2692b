/*
 * Beats: on each CPU of the hogs a realtime thread that wakes up and sleeps again, many times a
 * tick. The kernel chooses anew who has the CPU when such a thread leaves it; without, whoever
 * waits there for a hog waits for the tick or the next wake-up.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>

struct beats;

enum { BEATS_US = 200 };

/*
 * One thread for each of the CPUs, at rest. -EPERM: the host lets nobody be realtime, and ordinary
 * threads would wait as all others do; -errno.
 */
int beats_open(const cpu_set_t *cpus, struct beats **ret);
/* From now on they beat, or rest; any thread; NULL is fine. */
void beats_set(struct beats *b, bool are_on);
/* Its threads have ended. NULL is fine. */
void beats_close(struct beats *b);
