/*
 * The time slice of the engine and its sandboxes. Called by engine.c, before any thread or process
 * is started. A task that wakes up runs before those whose slice is longer, and waits at most a
 * slice of each of the others: so a short one is what keeps a neighbour from waiting for a sandbox
 * that has many processes. See docs/decisions/0005-storms.md.
 */
#include "engine/slice.h"

#include <errno.h>
#include <linux/sched/types.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/base/log.h"

#define NS_PER_US 1000ull

static int attributes_get(struct sched_attr *ret)
{
	*ret = (struct sched_attr){ .size = sizeof *ret };
	return syscall(SYS_sched_getattr, 0, ret, sizeof *ret, 0) < 0 ? -errno : 0;
}

void slice_set(uint32_t slice_us)
{
	struct sched_attr attributes;
	int r = 0;

	if (!slice_us)
		return;
	r = attributes_get(&attributes);
	attributes.sched_runtime = slice_us * NS_PER_US;
	if (r >= 0 && syscall(SYS_sched_setattr, 0, &attributes, 0) < 0)
		r = -errno;
	/* Until Linux 6.12 is the minimum: before, it is taken and forgotten. */
	if (r >= 0)
		r = attributes_get(&attributes);
	if (r >= 0 && !attributes.sched_runtime)
		r = -EOPNOTSUPP;
	if (r < 0)
		log_info("slices of %u us are not to be had err=%s: it needs Linux 6.12 and an"
			 " ordinary policy, continuing",
			 slice_us, strerror(-r));
}
