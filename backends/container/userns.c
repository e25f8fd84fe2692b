/*
 * User namespaces, one per slot and uid range. Called while building a slot. A child of the
 * worker's own makes it and ends; the worker writes the maps into what it left. Must hold: the
 * child's user is the range's first id, so that inotify instances, message queues and processes are
 * counted for the range alone; RLIMIT_NPROC is set by then and bounds the whole namespace; no
 * nested namespace can be made in it.
 */
#include "backends/container/worker.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "backends/container/kernel.h"
#include "backends/container/spawn.h"

#define TRY(attempt, call) LAUNCH_TRY(attempt, LAUNCH_STEP_USERNS, call)

/* Become the range's user and keep the one capability that making a namespace may need. */
static long range_become(struct attempt *a, uint32_t base)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	const struct __user_cap_data_struct data[2] = { { 1u << CAP_SYS_ADMIN, 1u << CAP_SYS_ADMIN,
							  0 } };
	long r = TRY(a, kernel_prctl(PR_SET_KEEPCAPS, 1));

	if (r >= 0)
		r = TRY(a, KERNEL_CALL(SYS_setresgid, base, base, base));
	if (r >= 0)
		r = TRY(a, KERNEL_CALL(SYS_setresuid, base, base, base));
	return r < 0 ? r : TRY(a, KERNEL_CALL(SYS_capset, (long)&header, (long)data));
}

static long nesting_forbid(struct child *child)
{
	struct attempt *a = &child->attempt;
	long r, fd = TRY(a, kernel_openat(child->worker->sysctl_fd, "sys/user/max_user_namespaces",
					  O_WRONLY | O_CLOEXEC, 0));

	if (fd < 0)
		return fd;
	r = TRY(a, kernel_write((int)fd, "0\n", 2));
	return r < 0 ? r : 0;
}

/* The child; everything it holds goes with it, but the namespace while the zombie is there. */
static long userns_run(struct child *child)
{
	const struct launch_request *q = &child->worker->order.request;
	struct attempt *a = &child->attempt;
	long r = 0;

	if (q->processes_max) {
		const struct rlimit limit = { q->processes_max, q->processes_max };

		r = TRY(a, KERNEL_CALL(SYS_prlimit64, 0, RLIMIT_NPROC, (long)&limit, 0));
	}
	if (r >= 0)
		r = range_become(a, q->uid_base);
	if (r >= 0)
		r = TRY(a, kernel_unshare(CLONE_NEWUSER, child->worker->secret));
	return r < 0 ? r : nesting_forbid(child);
}

static long map_write(struct worker *w, pid_t pid, const char *name)
{
	char path[WORKER_PATH_BYTES], map[WORKER_PATH_BYTES];
	long r, fd;

	(void)snprintf(path, sizeof path, "%d/%s", pid, name);
	(void)snprintf(map, sizeof map, "0 %u 65536\n", w->order.request.uid_base);
	fd = TRY(&w->attempt, kernel_openat(LAUNCH_FD_PROC, path, O_WRONLY | O_CLOEXEC, 0));
	if (fd < 0)
		return fd;
	r = TRY(&w->attempt, kernel_write((int)fd, map, strlen(map)));
	(void)kernel_close((int)fd); /* a map is taken at once */
	return r < 0 ? r : 0;
}

static long userns_take(struct worker *w, pid_t pid)
{
	char path[WORKER_PATH_BYTES];
	long r = map_write(w, pid, "uid_map");

	if (r >= 0)
		r = map_write(w, pid, "gid_map");
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof path, "%d/ns/user", pid);
	return TRY(&w->attempt, kernel_openat(LAUNCH_FD_PROC, path, O_RDONLY | O_CLOEXEC, 0));
}

long userns_make(struct worker *w)
{
	struct spawn spawn = { .run = userns_run };
	long r = sysctl_renew(w, LAUNCH_STEP_USERNS);
	long fd;

	if (r >= 0)
		r = child_spawn(w, &spawn);
	fd = r < 0 ? r : userns_take(w, spawn.pid);

	/* It left our memory and is a zombie any moment, but for one that could not be killed. */
	if (spawn.pid > 0)
		(void)KERNEL_CALL(SYS_wait4, spawn.pid, 0,
				  r == -ETIMEDOUT ? __WALL | WNOHANG : __WALL, 0);
	return fd;
}
