/*
 * Times the callbacks of a loop and counts those over 1 ms, the bug this engine must not have. One
 * that took long by the clock worked, or slept in the kernel, or was preempted; only the last says
 * nothing of us, and it is counted apart.
 */
#pragma once

#include <stdint.h>

struct io_stats;

struct watchdog {
	uint64_t began_ns; /* the running callback */
	uint64_t noted_ns; /* when the two below were read */
	int64_t sleeps;
	uint64_t cpu_ns;
};

/* The loop woke up at now_ns (CLOCK_MONOTONIC). Two system calls, 0.2 µs. */
void watchdog_start(struct watchdog *dog, uint64_t now_ns);
/* A callback of the function at `address` ended: now, which is told. */
uint64_t watchdog_measure(struct watchdog *dog, struct io_stats *stats, uintptr_t address);
