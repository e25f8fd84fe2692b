/*
 * Owns how probes make processes. Called inside a probe's own process, which has one thread. Every
 * child is killed when its parent ends, so a probe that is killed leaves none.
 */
#include "engine/check/child.h"

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int probe_child_start(uint64_t flags, int cgroup_fd)
{
	struct clone_args args = { .flags = flags, .exit_signal = SIGCHLD };
	long pid;

	if (cgroup_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)cgroup_fd;
	}
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0)
		return -errno;
	if (pid == 0)
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a valid signal */
	return (int)pid;
}

int probe_child_end(int pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

void probe_child_kill(int pid)
{
	if (pid <= 0)
		return;
	(void)kill(pid, SIGKILL); /* not reaped yet: the number is its own */
	(void)probe_child_end(pid);
}

int probe_child_tell(int fd)
{
	return write(fd, "x", 1) == 1 ? 0 : -EPIPE;
}

int probe_child_await(int fd)
{
	char byte;

	return read(fd, &byte, 1) == 1 ? 0 : -EPIPE;
}
