/*
 * The priority of a shard's thread. It is a realtime thread while it uses little of its CPU, so
 * that it is there at once when something comes, whoever else computes there: an ordinary thread
 * that worked for a busy client owes the scheduler time, and everybody else's requests wait until
 * that is paid. It is an ordinary one while it uses more, so that programs and workers run, too.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What is used is looked at over about so long. */
#define PRIORITY_WINDOW_NS 10000000ull

struct priority {
	uint32_t percent;	     /* of a CPU, to use as a realtime thread; 0: it is none */
	uint64_t looked_ns, used_ns; /* the clock and the CPU time when looked at */
	int64_t spare_ns;	     /* of CPU time: more is not used as a realtime thread */
	bool is_realtime;
	int32_t nice;
	uint64_t slice_ns; /* as an ordinary thread */
};

/* Of one that has rested. */
struct priority priority_of(uint32_t percent, uint64_t now_ns, uint64_t used_ns);
/* It is this late, and so much CPU time was used in all: is it to be a realtime thread now? */
bool priority_is_due(struct priority *p, uint64_t now_ns, uint64_t used_ns);

/*
 * Of the calling thread, for priority_turn(): 0, or why it cannot be a realtime thread (-EPERM: no
 * CAP_SYS_NICE, or no realtime time for its cgroup); then it stays an ordinary one.
 */
int priority_open(struct priority *p, uint32_t percent);
/* Now and then, on that thread; costs next to nothing. */
void priority_turn(struct priority *p, uint64_t now_ns);
/* Until when it may sleep: one that has rested is told so, or it would be late the next time. */
uint64_t priority_until_ns(const struct priority *p);
