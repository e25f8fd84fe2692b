/*
 * Holds a sandbox still while what it wrote is read. Called by the worker's loop. Must hold: nobody
 * stays frozen where the request fails; the directory that goes with the reply is the slot's own,
 * reached by no path that a sandbox could have written.
 */
#include <errno.h>

#include "backends/container/kernel.h"
#include "backends/container/worker.h"

#define TRY(step, call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)

/* The overlay's work directory and mount point are beside it, never in it. */
static long upper_open(struct worker *w)
{
	long fd, slot_fd, r = vault_enter(w);

	if (r < 0)
		return r;
	slot_fd = fd = TRY(ROOT, slot_open(w));
	if (slot_fd >= 0) {
		fd = TRY(UPPER, kernel_openat((int)slot_fd, "up/u",
					      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0));
		(void)kernel_close((int)slot_fd); /* only the way there */
	}
	vault_leave(w);
	return fd;
}

long slot_freeze(struct worker *w)
{
	struct attempt failed;
	long fd, r = cgroup_freeze(w);

	if (r < 0)
		return r;
	fd = upper_open(w);
	if (fd >= 0) {
		w->order.reply_fd = (int)fd;
		return 0;
	}
	failed = w->attempt;
	(void)cgroup_thaw(w); /* what failed is told; the engine thaws again */
	w->attempt = failed;
	return fd;
}

long slot_thaw(struct worker *w)
{
	return cgroup_thaw(w);
}
