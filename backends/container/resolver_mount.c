/*
 * Puts our resolv.conf into one sandbox: where its names are asked. Called by the child that
 * becomes PID 1, as wall_mounts.c is. Must hold: whatever stands under that name in the image, a
 * file or a link to anywhere, ours is over it, read-only; the way there is resolved inside the
 * sandbox's root.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>

#include "backends/container/kernel.h"
#include "backends/container/root.h"
#include "backends/container/spawn.h"
#include "backends/container/worker.h"

#define RESOLVER_TRY(call) LAUNCH_TRY(&child->attempt, LAUNCH_STEP_RESOLVER, call)

static long place_open(struct child *child, int root_fd, uint64_t flags)
{
	const struct open_how how = { .flags = flags | O_NOFOLLOW | O_CLOEXEC,
				      .mode = flags & O_CREAT ? 0644 : 0,
				      .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };

	return RESOLVER_TRY(
		KERNEL_CALL(SYS_openat2, root_fd, (long)"etc/resolv.conf", (long)&how, sizeof how));
}

/* What the image has there; an empty file where it has nothing. */
static long place_get(struct child *child, int root_fd)
{
	long fd = place_open(child, root_fd, O_PATH);

	if (fd != -ENOENT)
		return fd;
	fd = place_open(child, root_fd, O_WRONLY | O_CREAT | O_EXCL);
	if (fd < 0)
		return fd;
	(void)kernel_close((int)fd); /* nothing was written */
	return place_open(child, root_fd, O_PATH);
}

long resolver_mount(struct child *child, int root_fd)
{
	const uint64_t secret = child->worker->secret;
	long tree, r, fd = place_get(child, root_fd);

	if (fd < 0)
		return fd;
	tree = r = RESOLVER_TRY(kernel_open_tree(AT_FDCWD, "/" ROOT_RESOLVER,
						 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC, secret));
	if (tree >= 0) {
		r = RESOLVER_TRY(kernel_move_mount((int)tree, (int)fd, "", secret));
		(void)kernel_close((int)tree); /* it hangs, or goes */
	}
	(void)kernel_close((int)fd); /* only the way there */
	return r;
}
