/*
 * Owns the making of a worker's user namespace: one range, made by the range's own user, without
 * nesting. Called once per worker, before its loop.
 */
#include "loadgen/floor/floor.h"

#include "loadgen/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: becomes the range's user, leaves for the namespace, says so and waits to end. */
static void range_enter(uint32_t base, int channel)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	const struct __user_cap_data_struct data[2] = { { 1u << CAP_SYS_ADMIN, 1u << CAP_SYS_ADMIN,
							  0 } };
	char byte = '+';
	int fd;

	if (prctl(PR_SET_KEEPCAPS, 1) || syscall(SYS_setresgid, base, base, base) ||
	    syscall(SYS_setresuid, base, base, base) || syscall(SYS_capset, &header, data) ||
	    unshare(CLONE_NEWUSER))
		_exit(1);
	fd = openat(FLOOR_FD_PROC, "sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0\n", 2) != 2 || write(channel, &byte, 1) != 1)
		_exit(1);
	_exit(read(channel, &byte, 1) ? 1 : 0); /* until the other end closes */
}

static int map_write(pid_t pid, const char *name, uint32_t base)
{
	char path[64], map[64];
	auto_close int fd = -1;
	int bytes = snprintf(map, sizeof(map), "0 %u 65536\n", base);

	snprintf(path, sizeof(path), "%d/%s", pid, name);
	fd = openat(FLOOR_FD_PROC, path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, map, (size_t)bytes) != bytes)
		return -errno;
	return 0;
}

static int namespace_take(pid_t pid, uint32_t base, int channel)
{
	char path[64], byte;
	int r, fd;

	if (read(channel, &byte, 1) != 1)
		return -EPERM;
	r = map_write(pid, "uid_map", base);
	if (!r)
		r = map_write(pid, "gid_map", base);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%d/ns/user", pid);
	fd = openat(FLOOR_FD_PROC, path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int floor_userns_make(struct floor *floor)
{
	int ends[2], r;
	pid_t pid;

	floor->failed = "user namespace";
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	pid = fork();
	if (pid == 0) {
		(void)close(ends[0]); /* so that our end is ours alone */
		range_enter(floor->uid_base, ends[1]);
	}
	(void)close(ends[1]); /* so that its death ends the read */
	r = pid < 0 ? -errno : namespace_take(pid, floor->uid_base, ends[0]);
	(void)close(ends[0]); /* lets it end */
	if (pid > 0)
		(void)waitpid(pid, NULL, 0); /* it has nothing to tell */
	return r;
}
