/*
 * The end of a program whose sandbox may serve another call: what it left running is killed, what
 * was used is counted, and what only the kernel can tell is looked at. Called by the worker's loop.
 * Must hold: the worker is back in its own IPC namespace when the request is answered. What cannot
 * be compared is not proven: the answer is then without LAUNCH_CLEAN, and no error.
 */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>

#include "backends/container/kernel.h"
#include "backends/container/worker.h"

#define TRY(step, call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)

enum { IOPRIO_PROCESS = 1 };

/* ---- SysV IPC: memory, semaphores, message queues; POSIX queues cannot be made ---- */

/* 1: something is there. The worker is in the sandbox's namespace. */
static long ipc_look(struct worker *w)
{
	struct shm_info memory = { 0 };
	struct seminfo semaphores = { 0 };
	struct msginfo queues = { 0 };
	long r = TRY(PROOF, KERNEL_CALL(SYS_shmctl, 0, SHM_INFO, (long)&memory));

	if (r >= 0)
		r = TRY(PROOF, KERNEL_CALL(SYS_semctl, 0, 0, SEM_INFO, (long)&semaphores));
	if (r >= 0)
		r = TRY(PROOF, KERNEL_CALL(SYS_msgctl, 0, MSG_INFO, (long)&queues));
	if (r < 0)
		return r;
	return memory.used_ids || semaphores.semusz || queues.msgpool;
}

static long ipc_visit(struct worker *w, int sandbox)
{
	long back, r = TRY(PROOF, kernel_setns(sandbox, CLONE_NEWIPC, w->secret));

	if (r < 0)
		return r;
	r = ipc_look(w);
	back = kernel_setns(w->own_ipc_fd, CLONE_NEWIPC, w->secret);
	if (back < 0)
		worker_die("cannot return to its ipc namespace", back);
	return r;
}

/* ---- PID 1, which the sandbox's root may set limits and priorities of ---- */

/* As text: a worker may not ask the kernel for another user namespace's limits. */
static long limits_read(const char *path, char text[static WORKER_LIMITS_BYTES])
{
	long r, fd = kernel_openat(LAUNCH_FD_PROC, path, O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return fd;
	r = kernel_read((int)fd, text, WORKER_LIMITS_BYTES);
	(void)kernel_close((int)fd); /* only read */
	return r;
}

/* The worker's own do not change. */
static bool limits_differ(struct worker *w, pid_t pid)
{
	char path[WORKER_PATH_BYTES], text[WORKER_LIMITS_BYTES];
	long bytes;

	if (w->limits_bytes <= 0)
		w->limits_bytes = limits_read("self/limits", w->limits);
	(void)snprintf(path, sizeof path, "%d/limits", pid);
	bytes = limits_read(path, text);
	return bytes <= 0 || bytes == WORKER_LIMITS_BYTES || bytes != w->limits_bytes ||
	       memcmp(text, w->limits, (size_t)bytes) != 0;
}

/* The worker may be elsewhere for a while; where it began is what it gives its children. */
static bool cpus_differ(struct worker *w, pid_t pid)
{
	uint64_t own[128] = { 0 }, theirs[128] = { 0 };
	long bytes = (long)w->cpus_bytes;

	if (bytes)
		memcpy(own, w->cpus, (size_t)bytes);
	else /* it is never moved */
		bytes = KERNEL_CALL(SYS_sched_getaffinity, 0, sizeof own, (long)own);
	return bytes <= 0 ||
	       KERNEL_CALL(SYS_sched_getaffinity, pid, sizeof theirs, (long)theirs) != bytes ||
	       memcmp(own, theirs, sizeof own) != 0;
}

/* As the worker, whose child it was. */
static bool init_differs(struct worker *w, pid_t pid)
{
	return cpus_differ(w, pid) ||
	       KERNEL_CALL(SYS_sched_getscheduler, pid) != KERNEL_CALL(SYS_sched_getscheduler, 0) ||
	       KERNEL_CALL(SYS_getpriority, PRIO_PROCESS, pid) !=
		       KERNEL_CALL(SYS_getpriority, PRIO_PROCESS, 0) ||
	       KERNEL_CALL(SYS_ioprio_get, IOPRIO_PROCESS, pid) !=
		       KERNEL_CALL(SYS_ioprio_get, IOPRIO_PROCESS, 0) ||
	       limits_differ(w, pid);
}

static void sandbox_prove(struct worker *w)
{
	const pid_t pid = w->order.request.pid;
	long r, sandbox = TRY(PROOF, kernel_pidfd_open(pid));

	if (sandbox < 0)
		return;
	r = ipc_visit(w, (int)sandbox);
	(void)kernel_close((int)sandbox); /* the worker keeps nothing of a sandbox */
	if (r == 0 && !init_differs(w, pid))
		w->order.reply.flags |= LAUNCH_CLEAN;
}

long program_finish(struct worker *w)
{
	long r = cgroup_leaf_finish(w);

	if (r >= 0)
		r = cgroup_cpu(w);
	if (r >= 0)
		r = cgroup_oom_count(w);
	if (r >= 0 && w->order.request.flags & LAUNCH_PROVE)
		sandbox_prove(w);
	return r;
}
