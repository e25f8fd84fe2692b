/*
 * Hogs: leaves whose programs compute long. While others begin something, hogs are kept off one CPU
 * of each sixteen, so that there is one for those that are done soon. Used from the governor's
 * thread alone.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>

#include "bpf/guard_churn.h"

struct hogs;
struct io;
struct timers;

/* At once: who is one more goes on as it is. A look at each costs the governor some 0.1 ms. */
enum { HOGS_MAX = 256 };

struct hogs_options {
	struct io *io;
	struct timers *timers; /* with room for HOGS_MAX */
	int cgroup_fd;	       /* borrowed: any directory of cgroup v2 */
	void *owner;
	/* Who began something short since it was asked last, as in begins.h: at each look. */
	uint64_t (*who_began)(void *owner);
	/* It takes the CPU back whenever it was told to leave it: said at each look. */
	void (*escapes)(void *owner, const struct guard_churn_event *who);
	/*
	 * Hogs crowd their CPUs: the engine itself is to run beside them, or where it did before.
	 * `cpus`: those that are kept free, or all.
	 */
	void (*move)(void *owner, const cpu_set_t *cpus, bool is_away);
	/* Whoever does little but fail to fork for so long is a bomb; 0: nobody is. See bomb.h. */
	uint32_t fork_bomb_s;
	struct guard_churn_forks (*forks)(void *owner, const struct guard_churn_event *who);
	/* Said once; who goes on all the same is killed, and so nobody's program any more. */
	void (*is_bomb)(void *owner, const struct guard_churn_event *who, uint32_t leaf,
			uint64_t since_ns);
};

/*
 * On the governor's thread, while it may run on every CPU that sandboxes may. -EOPNOTSUPP: there is
 * one CPU, so nobody can be kept off it; -EINVAL: there are more than 1,024.
 */
int hogs_open(const struct hogs_options *options, struct hogs **ret);
/* All may run where they did before. NULL is fine. */
void hogs_close(struct hogs *h);
/* There are some, and they run on every CPU: nothing short has begun for a while. */
bool hogs_are_free(const struct hogs *h);
/* Something short begins now: it is not waited for the next look. */
void hogs_gather(struct hogs *h);
/* The leaf computes long: from now on it is a hog, until it rests. */
void hogs_told(struct hogs *h, const struct guard_churn_event *who);
