/*
 * Opens control groups by their ids. Called by the governor and by hogs.c, on its thread. Must
 * hold: no path is followed, so what is opened is the group that was told of, or nothing.
 */
#include "backends/container/group.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { KERNFS_HANDLE = 0xfe }; /* FILEID_KERNFS: an id, as a handle */

int group_open(int cgroup_fd, uint64_t id)
{
	union {
		struct file_handle handle;
		char bytes[sizeof(struct file_handle) + sizeof(uint64_t)];
	} at = { .handle = { .handle_bytes = sizeof id, .handle_type = KERNFS_HANDLE } };
	int fd;

	memcpy(at.handle.f_handle, &id, sizeof id);
	fd = open_by_handle_at(cgroup_fd, &at.handle, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int group_file_open(int group_fd, const char *name, int flags)
{
	int fd = openat(group_fd, name, flags | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}
