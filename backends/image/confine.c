/*
 * What the program's processes may do. Called once each, before hostile bytes are touched.
 *
 * All of it: a root of its own (the import's scratch, the images), no network, no privileges by
 * exec, limits. The unpacker: only its folder, no capability, the system calls to read a stream and
 * to write files. The sealer: those to make blobs of the store.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/image/import.h"
#include "backends/store/powers.h"
#include "engine/base/cleanup.h"

enum { FILES_MAX = 512 };

/* ---- a root of its own ---- */

static int tree_clone(int dir_fd, const char *path, uint64_t attributes)
{
	struct mount_attr attr = { .attr_set = attributes };
	int fd = (int)syscall(SYS_open_tree, dir_fd, path,
			      OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

	if (fd < 0)
		return -errno;
	if (syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0) {
		int r = -errno;

		(void)close(fd); /* and with it the mount */
		return r;
	}
	return fd;
}

static int tree_hang(int tree_fd, const char *path)
{
	if (mkdir(path, 0700) < 0)
		return -errno;
	return syscall(SYS_move_mount, tree_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ?
		       -errno :
		       0;
}

static int root_change(int scratch, int images)
{
	int r;

	/* Over /proc, which every machine has and nothing here needs. */
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", "/proc", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=0755") < 0 ||
	    chdir("/proc") < 0)
		return -errno;
	r = tree_hang(scratch, "scratch");
	if (r >= 0)
		r = tree_hang(images, "images");
	if (r < 0)
		return r;
	if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
	    chdir("/") < 0 ||
	    mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) <
		    0)
		return -errno;
	return 0;
}

/* ---- the processes ---- */

int confine_process(int scratch_fd, int images_fd)
{
	const uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
	const struct rlimit files = { FILES_MAX, FILES_MAX };
	int r = powers_limit();

	if (r < 0)
		return r;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return -errno;
	/* While their descriptors are of the mount namespace that we are in. */
	auto_close int scratch = tree_clone(scratch_fd, "", attributes);
	auto_close int images = tree_clone(images_fd, "", attributes);
	if (scratch < 0 || images < 0)
		return scratch < 0 ? scratch : images;
	if (setgroups(0, NULL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
		return -errno;
	return root_change(scratch, images);
}

/* The supervisor's end is everybody's. */
static int follow_parent(pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	return getppid() == parent ? 0 : -ESRCH;
}

int confine_unpacker(pid_t parent)
{
	int r = follow_parent(parent);

	if (r < 0)
		return r;
	if (chroot("/scratch/work") < 0 || chdir("/") < 0)
		return -errno;
	r = powers_keep_capabilities(0);
	return r < 0 ? r : powers_keep_calls(POWERS_UNPACKER);
}

/* A file without a name gets one by its descriptor: that is what DAC_READ_SEARCH is for. */
int confine_sealer(pid_t parent)
{
	int r = follow_parent(parent);

	if (r >= 0)
		r = powers_keep_capabilities(POWERS_CAPABILITY(DAC_OVERRIDE) |
					     POWERS_CAPABILITY(DAC_READ_SEARCH));
	return r < 0 ? r : powers_keep_calls(POWERS_SEALER);
}
