/*
 * Priorities of shards. Called by a shard's thread between its turns. Must hold: over any second a
 * shard uses no more of a CPU as a realtime thread than its percentage and one window's worth,
 * whatever clients ask of it; what it starts is ordinary.
 */
#include "engine/priority.h"

#include <errno.h>
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* CPU time is read no more often: that is a system call. */
#define LOOK_NS 250000ull

/* ---- arithmetic ---- */

static int64_t spare_most_ns(const struct priority *p)
{
	return (int64_t)(PRIORITY_WINDOW_NS * p->percent / 100);
}

struct priority priority_of(uint32_t percent, uint64_t now_ns, uint64_t used_ns)
{
	struct priority p = { .percent = percent, .looked_ns = now_ns, .used_ns = used_ns };

	p.spare_ns = spare_most_ns(&p);
	return p;
}

bool priority_is_due(struct priority *p, uint64_t now_ns, uint64_t used_ns)
{
	const int64_t most_ns = spare_most_ns(p);
	uint64_t past_ns = now_ns - p->looked_ns, more_ns = used_ns - p->used_ns;

	/* As much as empties or fills it from anywhere: the sums below cannot overflow. */
	if (past_ns > 4 * PRIORITY_WINDOW_NS)
		past_ns = 4 * PRIORITY_WINDOW_NS;
	if (more_ns > 4 * PRIORITY_WINDOW_NS)
		more_ns = 4 * PRIORITY_WINDOW_NS;
	p->spare_ns += (int64_t)(past_ns * p->percent / 100) - (int64_t)more_ns;
	if (p->spare_ns > most_ns)
		p->spare_ns = most_ns;
	if (p->spare_ns < -most_ns)
		p->spare_ns = -most_ns;
	p->looked_ns = now_ns;
	p->used_ns = used_ns;
	return p->spare_ns > (p->is_realtime ? 0 : most_ns / 2);
}

/* ---- the thread ---- */

static uint64_t used_read_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts); /* cannot fail for this clock */
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static int realtime_set(struct priority *p, bool is_realtime)
{
	struct sched_attr attributes = {
		.size = sizeof attributes,
		.sched_flags = SCHED_FLAG_RESET_ON_FORK, /* the kernel's workers for its ring */
	};

	if (is_realtime) {
		attributes.sched_policy = SCHED_RR;
		attributes.sched_priority = 1;
	} else {
		attributes.sched_policy = SCHED_NORMAL;
		attributes.sched_nice = p->nice;
		attributes.sched_runtime = p->slice_ns;
	}
	if (syscall(SYS_sched_setattr, 0, &attributes, 0) < 0)
		return -errno;
	p->is_realtime = is_realtime;
	return 0;
}

int priority_open(struct priority *p, uint32_t percent)
{
	struct sched_attr own = { .size = sizeof own };
	int r;

	*p = priority_of(percent, 0, used_read_ns());
	if (!percent)
		return 0;
	r = syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) < 0 ? -errno : 0;
	p->nice = own.sched_nice;
	p->slice_ns = own.sched_runtime;
	if (r >= 0)
		r = realtime_set(p, true);
	if (r < 0)
		p->percent = 0;
	return r;
}

void priority_turn(struct priority *p, uint64_t now_ns)
{
	bool is_due;

	if (!p->percent || now_ns - p->looked_ns < LOOK_NS)
		return;
	is_due = priority_is_due(p, now_ns, used_read_ns());
	/* What the host takes back it is not asked for again. */
	if (is_due != p->is_realtime && realtime_set(p, is_due) < 0)
		p->percent = 0;
}

uint64_t priority_until_ns(const struct priority *p)
{
	return !p->percent || p->is_realtime ? UINT64_MAX : p->looked_ns + PRIORITY_WINDOW_NS;
}
