/*
 * A program in a running sandbox, entered from outside. Called by the worker's loop; the child's
 * part runs in the worker's memory until execve and makes system calls only. Must hold: the order.
 * The worker borrows the sandbox's pid namespace for one clone; the child is in its own leaf from
 * birth, joins the namespaces while it still has the host's rights, then the user namespace, and
 * from there on nothing it does is done with more rights than the sandbox's.
 */
#include "backends/container/worker.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>

#include "backends/container/credentials.h"
#include "backends/container/kernel.h"
#include "backends/container/rlimit.h"
#include "backends/container/spawn.h"
#include "backends/container/tty.h"

enum { FD_SANDBOX, FD_INPUT, FD_OUTPUT, FD_ERROR }; /* of child.fds */

#define TRY(step, call)	      LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)
#define CHILD_TRY(step, call) LAUNCH_TRY(&child->attempt, LAUNCH_STEP_##step, call)

#define PATH_STANDARD "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static long namespaces_join(struct child *child)
{
	const int types = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET |
			  CLONE_NEWCGROUP;

	return CHILD_TRY(NAMESPACES,
			 kernel_setns(child->fds[FD_SANDBOX], types, child->worker->secret));
}

static long stdio_put(struct child *child)
{
	long r = 0;

	/* Input may be left out: 0 is /dev/null. The sources lie above 2. */
	if (child->fds[FD_INPUT] >= 0)
		r = CHILD_TRY(STDIO, kernel_dup3(child->fds[FD_INPUT], 0, 0));
	if (r >= 0)
		r = CHILD_TRY(STDIO, kernel_dup3(child->fds[FD_OUTPUT], 1, 0));
	if (r >= 0)
		r = CHILD_TRY(STDIO, kernel_dup3(child->fds[FD_ERROR], 2, 0));
	if (r >= 0)
		r = CHILD_TRY(SESSION, KERNEL_CALL(SYS_setsid, 0));
	if (r >= 0 && child->worker->order.request.flags & LAUNCH_TTY)
		r = tty_take(child);
	return r;
}

static long folder_enter(struct child *child, const char *home)
{
	const char *cwd = child->worker->order.cwd;
	long r = CHILD_TRY(CWD, kernel_chdir(*cwd ? cwd : home));

	/* Nobody asked for this one: where it is missing or closed, the root will do. */
	if (r < 0 && *cwd == 0)
		r = CHILD_TRY(CWD, kernel_chdir("/"));
	return r;
}

/* The slot that the worker left is this child's alone: no other runs before its program does. */
static void home_put(struct child *child, const char *home)
{
	const struct order *o = &child->worker->order;
	static const char name[] = "HOME=";

	if (!(o->request.flags & LAUNCH_HOME))
		return;
	if (*home != '/' || strlen(home) >= STACK_HOME_BYTES - sizeof name)
		home = "/";
	memcpy(child->home, name, sizeof name - 1);
	memcpy(child->home + sizeof name - 1, home, strlen(home) + 1);
	o->envp[o->request.environment_count] = child->home;
}

static const char *path_find(char *const *envp)
{
	for (; *envp; envp++)
		if (strncmp(*envp, "PATH=", 5) == 0)
			return *envp + 5;
	return PATH_STANDARD;
}

/* "folder/name" into text; an empty folder is the working directory. False: it does not fit. */
static bool candidate_write(char *text, const char *folder, size_t folder_bytes, const char *name)
{
	const size_t name_bytes = strlen(name) + 1;

	if (folder_bytes + 1 + name_bytes > STACK_TEXT_BYTES)
		return false;
	memcpy(text, folder, folder_bytes);
	if (folder_bytes)
		text[folder_bytes++] = '/';
	memcpy(text + folder_bytes, name, name_bytes);
	return true;
}

static long program_run(struct child *child, const char *path)
{
	const struct order *o = &child->worker->order;

	return CHILD_TRY(ARGV0, KERNEL_CALL(SYS_execve, (long)path, (long)o->argv, (long)o->envp));
}

static long helper_run(struct child *child)
{
	const struct order *o = &child->worker->order;
	long r = CHILD_TRY(STDIO, kernel_close_range(3, LAUNCH_FD_HELPER - 1, 0));

	if (r >= 0)
		r = CHILD_TRY(STDIO, kernel_close_range(LAUNCH_FD_HELPER + 1, ~0u, 0));
	if (r < 0)
		return r;
	return CHILD_TRY(ARGV0, KERNEL_CALL(SYS_execveat, LAUNCH_FD_HELPER, (long)"", (long)o->argv,
					    (long)o->envp, AT_EMPTY_PATH));
}

/* As execvp() searches: what is missing is passed over, what is forbidden is remembered. */
static long program_search(struct child *child)
{
	const struct order *o = &child->worker->order;
	const char *folder = path_find(o->envp);
	long result = CHILD_TRY(ARGV0, -ENOENT);

	while (*o->argv[0]) {
		const char *end = strchrnul(folder, ':');
		long r = -ENAMETOOLONG;

		if (candidate_write(child->text, folder, (size_t)(end - folder), o->argv[0]))
			r = program_run(child, child->text);
		if (r == -EACCES)
			result = r;
		else if (r != -ENOENT && r != -ENOTDIR && r != -ENAMETOOLONG)
			return r;
		if (*end == 0)
			return result;
		folder = end + 1;
	}
	return result;
}

/* Only who may raise priorities on the host leaves it again: nobody inside. */
static long priority_drop(struct child *child)
{
	const struct sched_param none = { 0 };

	if (!(child->worker->order.request.flags & LAUNCH_SCHED_IDLE))
		return 0;
	return CHILD_TRY(CREDENTIALS, KERNEL_CALL(SYS_sched_setscheduler, 0, SCHED_IDLE,
						  (long)&none, 0, 0, (long)child->worker->secret));
}

static long program_child(struct child *child)
{
	const bool is_helper = child->worker->order.request.flags & LAUNCH_HELPER;
	const char *home = "/";
	long r = priority_drop(child);

	if (r >= 0)
		r = namespaces_join(child);
	if (r >= 0)
		r = stdio_put(child);
	if (r >= 0)
		r = rlimits_raise(child);
	if (r >= 0)
		r = CHILD_TRY(NAMESPACES, kernel_setns(child->fds[FD_SANDBOX], CLONE_NEWUSER,
						       child->worker->secret));
	if (r >= 0)
		r = credentials_root(child);
	if (r >= 0)
		r = credentials_user(child, &home);
	if (r >= 0)
		r = walls_close_in(child);
	if (r >= 0)
		home_put(child, home);
	if (r >= 0)
		r = folder_enter(child, home);
	if (r >= 0 && is_helper)
		return helper_run(child);
	if (r >= 0)
		r = CHILD_TRY(STDIO, kernel_close_range(3, ~0u, 0));
	if (r >= 0)
		r = rlimits_lower(child);
	if (r < 0)
		return r;
	if (strchr(child->worker->order.argv[0], '/'))
		return program_run(child, child->worker->order.argv[0]);
	return program_search(child);
}

/* A pid namespace whose PID 1 is gone gives no more pids, and says that there is no memory. */
static bool sandbox_is_gone(int pidfd)
{
	struct pollfd dead = { .fd = pidfd, .events = POLLIN };

	return KERNEL_CALL(SYS_poll, (long)&dead, 1, 0) > 0;
}

/*
 * Not by the child: execve sends whoever may run anywhere to the CPU that has the least weight on
 * it, which may be the hogs'. The child has just left the worker's memory: its program is being
 * loaded. On a busy machine it may look at its mask before the worker gets here, and sees fewer
 * CPUs for that moment. One that has died is not looked at.
 */
static void program_widen(const struct worker *w, pid_t pid)
{
	if (w->order.request.flags & LAUNCH_WIDE && w->cpus_bytes)
		(void)KERNEL_CALL(SYS_sched_setaffinity, pid, w->cpus_bytes, (long)w->cpus);
}

/* The worker borrows the sandbox's pid namespace for its next child. */
static long program_clone(struct worker *w, struct spawn *spawn)
{
	const int sandbox = spawn->child.fds[FD_SANDBOX];
	long back, r = TRY(NAMESPACES, kernel_setns(sandbox, CLONE_NEWPID, w->secret));

	if (r < 0)
		return r;
	r = child_spawn(w, spawn);
	if (r >= 0)
		program_widen(w, spawn->pid);
	back = kernel_setns(w->own_pid_fd, CLONE_NEWPID, w->secret);
	if (back < 0)
		worker_die("cannot return to its pid namespace", back);
	if (r == -ENOMEM && spawn->pid == 0 && sandbox_is_gone(sandbox))
		r = -ESRCH;
	return r;
}

static long program_spawn(struct worker *w, struct spawn *spawn)
{
	const struct order *o = &w->order;
	const int *fds = o->descriptors;
	const bool has_input = o->descriptor_count == 3;
	int *child_fds = spawn->child.fds;
	long r, slave_fd = -1;

	r = rlimits_check(w);
	if (r >= 0 && o->request.flags & LAUNCH_TTY)
		r = slave_fd = tty_open(w);
	if (r < 0)
		return r;
	child_fds[FD_INPUT] = has_input ? fds[0] : (int)slave_fd;
	child_fds[FD_OUTPUT] = slave_fd >= 0 ? (int)slave_fd : fds[has_input];
	child_fds[FD_ERROR] = slave_fd >= 0 ? (int)slave_fd : fds[has_input + 1];
	r = program_clone(w, spawn);
	w->order.reply.pid = spawn->pid;
	if (slave_fd >= 0)
		tty_close(w, (int)slave_fd, r >= 0);
	return r;
}

long program_exec(struct worker *w)
{
	long r, sandbox = TRY(NAMESPACES, kernel_pidfd_open(w->order.request.pid));
	long leaf = sandbox < 0 ? sandbox : cgroup_leaf_open(w);
	struct spawn spawn = {
		.flags = CLONE_PARENT | CLONE_INTO_CGROUP,
		.cgroup_fd = (int)leaf,
		.run = program_child,
		.child.fds = { [FD_SANDBOX] = (int)sandbox },
		.limit_ms = w->order.request.limit_ms,
	};

	r = leaf;
	if (leaf >= 0 && w->order.request.flags & LAUNCH_OOM)
		r = cgroup_oom_count(w); /* before it: what is more is its own */
	if (r >= 0 && w->order.request.flags & LAUNCH_COUNT)
		r = cgroup_cpu(w);
	if (r >= 0)
		r = program_spawn(w, &spawn);
	if (r == -EAGAIN && w->attempt.step == LAUNCH_STEP_CLONE)
		cgroup_crowd_tell(w);
	if (leaf >= 0)
		(void)kernel_close((int)leaf); /* the child is in it */
	if (sandbox >= 0)
		(void)kernel_close((int)sandbox); /* the worker keeps nothing of a sandbox */
	return r;
}
