/*
 * More mounts around a sandbox that runs: those of the policy of its next phase. Called by the
 * worker's loop. The worker itself goes into the sandbox's mount namespace, and nothing else of it,
 * and comes back, or ends. Must hold: what lives in there meanwhile may change names under it, but
 * every path is resolved below the sandbox's root; so a wall may stand where it is of no use, and
 * never outside.
 */
#include <errno.h>
#include <sched.h>

#include "backends/container/kernel.h"
#include "backends/container/spawn.h"
#include "backends/container/worker.h"

#define TRY(call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_WALLS, call)

_Static_assert(STACK_TEXT_BYTES + STACK_HOME_BYTES <= LAUNCH_PAYLOAD_BYTES_MAX, "no room");

/* As a child would, with the space for payloads, of which this request has none. */
static long walls_add(struct worker *w, int sandbox_fd)
{
	struct child child = { .worker = w,
			       .text = w->payload,
			       .home = w->payload + STACK_TEXT_BYTES };
	long r, root = TRY(kernel_openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0));

	if (root < 0)
		return root;
	r = walls_mount(&child, (int)root, sandbox_fd);
	(void)kernel_close((int)root); /* only the way there */
	if (r < 0)
		w->attempt.step = child.attempt.step;
	return r;
}

long sandbox_narrow(struct worker *w)
{
	long r, sandbox = TRY(kernel_pidfd_open(w->order.request.pid));

	if (sandbox < 0)
		return sandbox;
	r = TRY(kernel_setns((int)sandbox, CLONE_NEWNS, w->secret));
	if (r >= 0) {
		r = walls_add(w, (int)sandbox);
		vault_leave(w);
	}
	(void)kernel_close((int)sandbox); /* the worker keeps nothing of a sandbox */
	return r;
}
