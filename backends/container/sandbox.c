/*
 * PID 1 of a sandbox: new pid, mount, ipc, uts and cgroup namespaces around the slot's root. Called
 * by the worker's loop; the child's part runs in the worker's memory, with the host's full rights
 * until it enters the slot's user namespace, and makes system calls only. Must hold: every mount is
 * made before that, so none belongs to the sandbox; capabilities and no_new_privs are set after it,
 * since it gives all of them back; the child keeps no descriptor.
 */
#include "backends/container/worker.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "backends/container/credentials.h"
#include "backends/container/kernel.h"
#include "backends/container/netns.h"
#include "backends/container/spawn.h"

enum { FD_ROOT, FD_USER, FD_NETWORK }; /* of child.fds */

#define TRY(step, call)	      LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)
#define CHILD_TRY(step, call) LAUNCH_TRY(&child->attempt, LAUNCH_STEP_##step, call)

/* In proc's own root; the image named the place, and no link may have led elsewhere. */
static long proc_hang(struct child *child, int proc_fd)
{
	const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	long r, place = CHILD_TRY(PROC, kernel_openat(child->fds[FD_ROOT], "proc", flags, 0));

	if (place < 0)
		return place;
	r = CHILD_TRY(PROC, kernel_move_mount(proc_fd, (int)place, "", child->worker->secret));
	return r < 0 ? r : CHILD_TRY(PROC, kernel_fchdir(proc_fd));
}

/* Nobody else lives in these namespaces yet: what was found is what is covered; it is checked. */
static long masks_put(struct child *child, int proc_fd)
{
	const struct worker *w = child->worker;

	for (uint32_t i = 0; i < w->mask_count; i++) {
		const struct proc_mask *mask = &w->masks[i];
		struct stat found;
		long r = CHILD_TRY(MASK, KERNEL_CALL(SYS_mount, (long)mask->cover, (long)mask->name,
						     0, MS_BIND, 0, w->secret));

		if (r >= 0)
			r = CHILD_TRY(MASK, kernel_fstatat(proc_fd, mask->name, &found,
							   AT_SYMLINK_NOFOLLOW));
		if (r < 0)
			return r;
		if (found.st_dev != mask->device || found.st_ino != mask->inode)
			return -EXDEV;
	}
	return 0;
}

static long proc_make(struct child *child)
{
	const unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
	const uint64_t secret = child->worker->secret;
	long r, proc_fd, fs = CHILD_TRY(PROC, kernel_fsopen("proc", secret));

	if (fs < 0)
		return fs;
	r = CHILD_TRY(PROC, kernel_fsconfig_create((int)fs, secret));
	if (r < 0)
		return r;
	proc_fd = CHILD_TRY(PROC, kernel_fsmount((int)fs, attributes, secret));
	if (proc_fd < 0)
		return proc_fd;
	r = proc_hang(child, (int)proc_fd);
	return r < 0 ? r : masks_put(child, (int)proc_fd);
}

/*
 * The slot's root over the worker's empty one, proc in it, and the child's root is there. Until the
 * last step the worker's is the root, since the covers are in it. From inside nothing leads down
 * to it: `..` ends at the upper mount.
 */
static long root_take(struct child *child)
{
	const int root_fd = child->fds[FD_ROOT];
	long r = CHILD_TRY(ROOT, kernel_move_mount(root_fd, AT_FDCWD, "/", child->worker->secret));

	if (r >= 0)
		r = proc_make(child);
	if (r >= 0)
		r = walls_mount(child, root_fd, -1);
	if (r >= 0 && child->worker->order.request.flags & LAUNCH_RESOLVER)
		r = resolver_mount(child, root_fd);
	if (r >= 0)
		r = CHILD_TRY(ROOT, kernel_fchdir(root_fd));
	return r < 0 ? r : CHILD_TRY(ROOT, kernel_chroot("."));
}

static long names_set(struct child *child)
{
	const char *hostname = child->worker->order.request.hostname;

	return CHILD_TRY(HOSTNAME, KERNEL_CALL(SYS_sethostname, (long)hostname, strlen(hostname), 0,
					       0, 0, child->worker->secret));
}

static long namespaces_join(struct child *child)
{
	const uint64_t secret = child->worker->secret;
	long r = 0;

	if (child->fds[FD_NETWORK] >= 0)
		r = CHILD_TRY(NAMESPACES,
			      kernel_setns(child->fds[FD_NETWORK], CLONE_NEWNET, secret));
	if (r >= 0)
		r = CHILD_TRY(SESSION, KERNEL_CALL(SYS_setsid, 0));
	if (r >= 0)
		r = CHILD_TRY(NAMESPACES, kernel_setns(child->fds[FD_USER], CLONE_NEWUSER, secret));
	return r;
}

/* 0, 1 and 2 are /dev/null; PID 1's program closes its own descriptor as it starts. */
static long init_become(struct child *child)
{
	static const char *const argv[] = { "init", NULL }, *const envp[] = { NULL };
	long r = CHILD_TRY(STDIO, kernel_dup3(1, 2, 0));

	if (r >= 0)
		r = CHILD_TRY(STDIO, kernel_close_range(3, LAUNCH_FD_INIT - 1, 0));
	if (r >= 0)
		r = CHILD_TRY(STDIO, kernel_close_range(LAUNCH_FD_INIT + 1, ~0u, 0));
	if (r < 0)
		return r;
	return CHILD_TRY(ARGV0, KERNEL_CALL(SYS_execveat, LAUNCH_FD_INIT, (long)"", (long)argv,
					    (long)envp, AT_EMPTY_PATH));
}

static long sandbox_run(struct child *child)
{
	long r = root_take(child);

	if (r >= 0)
		r = names_set(child);
	if (r >= 0)
		r = namespaces_join(child);
	if (r >= 0)
		r = credentials_root(child);
	if (r >= 0)
		r = child_widen(child);
	if (r >= 0)
		r = walls_close_in(child);
	return r < 0 ? r : init_become(child);
}

/* What the child takes from the slot's folder; what was opened is in fds also on failure. */
static long slot_take_from(struct worker *w, int slot_fd, int fds[static 3])
{
	struct stat root;
	long r = TRY(ROOT, kernel_open_tree(slot_fd, "up/root",
					    OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE,
					    w->secret));

	if (r < 0)
		return r;
	fds[FD_ROOT] = (int)r;
	r = TRY(ROOT, kernel_fstat(fds[FD_ROOT], &root));
	if (r < 0)
		return r;
	w->order.reply.root_device = root.st_dev;
	r = TRY(NAMESPACES, kernel_openat(slot_fd, "user", O_RDONLY | O_CLOEXEC, 0));
	if (r < 0)
		return r;
	fds[FD_USER] = (int)r;
	if (!(w->order.request.flags & LAUNCH_PRIVATE))
		return 0;
	r = network_open(w);
	if (r >= 0)
		fds[FD_NETWORK] = (int)r;
	return r;
}

static long slot_take(struct worker *w, int fds[static 3])
{
	long slot_fd, r = vault_enter(w);

	if (r < 0)
		return r;
	slot_fd = TRY(ROOT, slot_open(w));
	r = slot_fd;
	if (slot_fd >= 0) {
		r = slot_take_from(w, (int)slot_fd, fds);
		(void)kernel_close((int)slot_fd); /* only the way there */
	}
	vault_leave(w);
	return r;
}

static long sandbox_clone(struct worker *w, const int fds[static 3])
{
	struct spawn spawn = {
		.flags = CLONE_PARENT | CLONE_INTO_CGROUP | CLONE_NEWPID | CLONE_NEWNS |
			 CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
		.run = sandbox_run,
		.must_start = true,
		.child.fds = { fds[FD_ROOT], fds[FD_USER], fds[FD_NETWORK] },
		.limit_ms = w->order.request.limit_ms,
	};
	long r, group = cgroup_open(w);

	if (group < 0)
		return group;
	spawn.cgroup_fd = (int)group;
	r = cgroup_cpu(w);
	if (r >= 0)
		r = child_spawn(w, &spawn);
	w->order.reply.pid = spawn.pid;
	(void)kernel_close((int)group); /* the child is in it */
	return r;
}

/*
 * Until PID 1 runs its own program. The kernel tells that it left our memory a moment before it
 * did, and what is set for a process that shares memory is set for all that share it.
 */
static long init_await(struct worker *w)
{
	enum { PAUSE_NS = 20000, LOOKS_MAX = 25000 };
	const struct timespec pause = { 0, PAUSE_NS };
	struct stat program, runs;
	char path[WORKER_PATH_BYTES];
	long r = TRY(CGROUP, kernel_fstat(LAUNCH_FD_INIT, &program));

	(void)snprintf(path, sizeof path, "%d/exe", w->order.reply.pid);
	for (int looks = 0; r >= 0 && looks < LOOKS_MAX; looks++) {
		r = TRY(CGROUP, kernel_fstatat(LAUNCH_FD_PROC, path, &runs, 0));
		if (r >= 0 && runs.st_dev == program.st_dev && runs.st_ino == program.st_ino)
			return 0;
		(void)nanosleep(&pause, NULL); /* waking early only costs a look */
	}
	return r < 0 ? r : -ETIMEDOUT;
}

/*
 * What goes over the sandbox's memory limit takes everything in it along but PID 1, with which the
 * sandbox would end. Nobody inside may take it back or do the same.
 */
static long oom_spare(struct worker *w)
{
	static const char never[] = "-1000";
	char path[WORKER_PATH_BYTES];
	long fd, r = init_await(w);

	if (r < 0)
		return r;
	(void)snprintf(path, sizeof path, "%d/oom_score_adj", w->order.reply.pid);
	fd = TRY(CGROUP, kernel_openat(LAUNCH_FD_PROC, path, O_WRONLY | O_CLOEXEC, 0));
	if (fd < 0)
		return fd;
	r = TRY(CGROUP, kernel_write((int)fd, never, sizeof never - 1));
	(void)kernel_close((int)fd); /* taken at once */
	return r < 0 ? r : cgroup_oom_count(w);
}

static long group_renew(struct worker *w)
{
	long r = cgroup_drop(w);

	return r < 0 ? r : cgroup_make(w);
}

long sandbox_spawn(struct worker *w)
{
	int fds[3] = { -1, -1, -1 };
	long r = 0;

	if (w->order.request.flags & LAUNCH_NEW_GROUP)
		r = group_renew(w);
	if (r < 0)
		return r;
	if (w->order.request.flags & LAUNCH_REBUILD)
		r = slot_build(w);
	else
		w->order.reply.flags |= LAUNCH_REUSED;
	if (r >= 0 && w->order.request.limits_changed)
		r = cgroup_limit(w);
	if (r >= 0)
		r = slot_take(w, fds);
	if (r >= 0)
		r = sandbox_clone(w, fds);
	if (r >= 0 && w->order.request.flags & LAUNCH_OOM)
		r = oom_spare(w);
	for (unsigned i = 0; i < 3; i++)
		if (fds[i] >= 0)
			(void)kernel_close(fds[i]); /* the child has its own */
	return r;
}
