/*
 * Resource limits of one program. Called by program.c: checked by the worker, whose own limits the
 * child inherits, and set by the child, which shares the worker's memory and makes system calls
 * only. Must hold: nothing rises above what the worker has, but the size of core files, which it
 * has not for itself; and that only where no program of the host would get the core.
 */
#include "backends/container/rlimit.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/resource.h>

#include "backends/container/kernel.h"
#include "backends/container/spawn.h"
#include "backends/container/worker.h"

#define TRY(step, call)	      LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)
#define CHILD_TRY(step, call) LAUNCH_TRY(&child->attempt, LAUNCH_STEP_##step, call)

/* The most that a core may be here: a file of the sandbox's own counts as its other files do. */
static long core_most(struct worker *w, uint64_t *ret)
{
	char first = '|';
	long r, fd = TRY(LIMIT, kernel_openat(LAUNCH_FD_PROC, "sys/kernel/core_pattern",
					      O_RDONLY | O_CLOEXEC, 0));

	if (fd < 0)
		return fd;
	r = TRY(LIMIT, kernel_read((int)fd, &first, sizeof first));
	(void)kernel_close((int)fd); /* only read */
	if (r < 0)
		return r;
	*ret = first == '|' || first == '@' ? 0 : UINT64_MAX;
	return 0;
}

static long limit_most(struct worker *w, uint32_t resource, uint64_t *ret)
{
	struct rlimit own;
	long r;

	if (resource == RLIMIT_CORE)
		return core_most(w, ret);
	r = TRY(LIMIT, KERNEL_CALL(SYS_prlimit64, 0, resource, 0, (long)&own));
	if (r >= 0)
		*ret = own.rlim_max;
	return r;
}

long rlimits_check(struct worker *w)
{
	struct launch_reply *reply = &w->order.reply;
	uint64_t most = 0;

	for (uint32_t i = 0; i < w->order.request.limit_count; i++) {
		const struct launch_limit *limit = &w->order.limits[i];
		long r = limit_most(w, limit->resource, &most);

		reply->limit = limit->resource;
		if (r < 0)
			return r;
		if (limit->hard > most)
			return -EPERM;
	}
	return 0;
}

static long rlimits_put(struct child *child, bool cores)
{
	struct order *o = &child->worker->order;
	long r = 0;

	for (uint32_t i = 0; r >= 0 && i < o->request.limit_count; i++) {
		const struct launch_limit *limit = &o->limits[i];
		struct rlimit value = { limit->soft, limit->hard };

		if ((limit->resource == RLIMIT_CORE) != cores)
			continue;
		if (cores && value.rlim_cur < WORKER_CORE_NONE)
			value.rlim_cur = WORKER_CORE_NONE; /* no core: see limits_set() */
		if (cores && value.rlim_max < WORKER_CORE_NONE)
			value.rlim_max = WORKER_CORE_NONE;
		o->reply.limit = limit->resource; /* EPERM: the engine may not raise it */
		r = CHILD_TRY(LIMIT, KERNEL_CALL(SYS_prlimit64, 0, limit->resource, (long)&value, 0,
						 0, child->worker->secret));
	}
	return r;
}

long rlimits_raise(struct child *child)
{
	return rlimits_put(child, true);
}

long rlimits_lower(struct child *child)
{
	return rlimits_put(child, false);
}
