/*
 * Owns the user namespace of probes. Called inside a probe's process; the namespace ends with the
 * child and the descriptor.
 */
#include "engine/check/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/check/child.h"
#include "engine/check/file.h"

static _Noreturn void member(int tell_fd, int await_fd, int (*inside)(void))
{
	/* With the uid of its range, so that limits are counted for it and not for root. */
	if (setgroups(0, NULL) < 0 || setresgid(PROBE_UID, PROBE_UID, PROBE_UID) < 0 ||
	    setresuid(PROBE_UID, PROBE_UID, PROBE_UID) < 0 || unshare(CLONE_NEWUSER) < 0)
		_exit(errno);
	if (probe_child_tell(tell_fd) < 0 || probe_child_await(await_fd) < 0)
		_exit(EPIPE);
	if (probe_child_await(await_fd) < 0)
		_exit(EPIPE);
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		_exit(errno);
	_exit(inside ? inside() : 0);
}

static int maps_write(int pid)
{
	char path[48], map[48];
	int r;

	snprintf(map, sizeof(map), "0 %u 65536\n", PROBE_UID);
	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	r = file_write(path, map);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
	return file_write(path, map);
}

int userns_start(struct userns *ns, int (*inside)(void), const char **ret_step)
{
	int up[2], down[2], pid, r;
	char path[48];

	*ret_step = "pipe";
	if (pipe2(up, O_CLOEXEC) < 0)
		return -errno;
	if (pipe2(down, O_CLOEXEC) < 0)
		return -errno; /* the probe ends, and with it the first pipe */
	*ret_step = "clone3";
	pid = probe_child_start(0, -1);
	if (pid < 0)
		return pid;
	if (pid == 0) {
		(void)close(up[0]); /* the probe's */
		(void)close(down[1]);
		member(up[1], down[0], inside);
	}
	(void)close(up[1]); /* the child's */
	(void)close(down[0]);
	*ns = (struct userns){ .pid = pid, .fd = -1, .tell_fd = down[1], .await_fd = up[0] };
	*ret_step = "unshare(CLONE_NEWUSER) by an unprivileged uid";
	if (probe_child_await(ns->await_fd) < 0) {
		r = probe_child_end(pid);
		return r > 0 ? -r : -EPIPE;
	}
	*ret_step = "uid_map of 65536 uids";
	r = maps_write(pid);
	if (r == 0) {
		snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
		ns->fd = open(path, O_RDONLY | O_CLOEXEC);
		r = ns->fd < 0 ? -errno : probe_child_tell(ns->tell_fd);
	}
	if (r < 0)
		userns_done(ns);
	return r;
}

int userns_end(struct userns *ns)
{
	if (probe_child_tell(ns->tell_fd) < 0)
		return -EPIPE;
	return probe_child_end(ns->pid);
}

void userns_done(struct userns *ns)
{
	probe_child_kill(ns->pid);
	if (ns->fd >= 0)
		(void)close(ns->fd); /* only a handle */
}
