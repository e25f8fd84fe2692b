/*
 * Makes the vault. A short-lived child builds it in new namespaces and makes system calls only,
 * since the engine may have threads; the engine then opens the child's namespaces and lets it go.
 */
#include "backends/container/vault.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/container/kernel.h"
#include "backends/container/netns.h"
#include "backends/container/root.h"
#include "engine/base/cleanup.h"

static long vault_make(int proc_fd)
{
	static const struct root_options root = { .mode = "0700", .attributes = MOUNT_ATTR_NOSUID };
	long r;

	r = kernel_unshare(CLONE_NEWNET, 0);
	if (r < 0)
		return r;
	r = netns_mask(proc_fd);
	if (r < 0)
		return r;
	r = root_replace(&root, 0);
	if (r < 0)
		return r;
	r = kernel_mkdirat(AT_FDCWD, "/img", 0700);
	if (r < 0)
		return r;
	r = kernel_mkdirat(AT_FDCWD, "/slots", 0700);
	if (r < 0)
		return r;
	return kernel_mkdirat(AT_FDCWD, "/nets", 0700);
}

/* The child: says how it went and stays until the engine has what it wants, or is gone. */
static void vault_child(int proc_fd, int channel)
{
	int32_t result = (int32_t)vault_make(proc_fd);
	char bye;

	if (kernel_write(channel, &result, sizeof result) == sizeof result)
		(void)kernel_read(channel, &bye, 1); /* its end is what counts */
	_exit(0);
}

static int child_open(int proc_fd, pid_t pid, const char *what, int flags)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof path, "%d/%s", pid, what);
	fd = openat(proc_fd, path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int vault_take(struct vault *ret, int proc_fd, pid_t pid)
{
	auto_close int mount_ns = child_open(proc_fd, pid, "ns/mnt", O_RDONLY);
	auto_close int network = child_open(proc_fd, pid, "ns/net", O_RDONLY);
	auto_close int root = child_open(proc_fd, pid, "root", O_PATH | O_DIRECTORY);

	if (mount_ns < 0)
		return mount_ns;
	if (network < 0)
		return network;
	if (root < 0)
		return root;
	*ret = (struct vault){ .mount_ns_fd = take_fd(&mount_ns),
			       .root_fd = take_fd(&root),
			       .network_ns_fd = take_fd(&network) };
	return 0;
}

int vault_open(struct vault *ret)
{
	auto_close int proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int32_t result = -EIO;
	int ends[2], r;
	pid_t pid;

	if (proc_fd < 0)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	auto_close int mine = ends[0];
	auto_close int its = ends[1];

	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		(void)kernel_close(mine); /* so that the engine's end is the engine's alone */
		vault_child(proc_fd, its);
	}
	(void)close(take_fd(&its)); /* so that the child's death ends the read */
	if (read(mine, &result, sizeof result) != sizeof result)
		result = -EIO;
	r = result < 0 ? result : vault_take(ret, proc_fd, pid);
	(void)close(take_fd(&mine)); /* lets the child end */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return r;
}

void vault_close(struct vault *vault)
{
	cleanup_close(&vault->mount_ns_fd);
	cleanup_close(&vault->root_fd);
	cleanup_close(&vault->network_ns_fd);
	*vault = (struct vault){ -1, -1, -1 };
}
