/*
 * Confining dsec-store. Called once, by its main(), or by a verb that has opened what it needs
 * first. Must hold: after it nothing is reached but by descriptors, and no descriptor leads above
 * its directory.
 */
#include "backends/store/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/image.h"
#include "backends/store/powers.h"
#include "engine/base/cleanup.h"

/* ---- what is reached ---- */

/* In its place a mount of its own, of which the directory is the root. */
static int directory_cut(int fd)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
					       MOUNT_ATTR_NOEXEC };
	auto_close int cut =
		(int)syscall(SYS_open_tree, fd, "",
			     OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);

	if (cut < 0 || syscall(SYS_mount_setattr, cut, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return -errno;
	auto_close int opened = openat(cut, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (opened < 0 || dup2(opened, fd) < 0)
		return -errno;
	return 0;
}

static bool is_directory(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

/* While the descriptors are of the mount namespace that we are in. */
static int places_cut(bool uncut)
{
	int r = directory_cut(IMAGE_FD_SCRATCH);

	if (r >= 0 && !uncut)
		r = directory_cut(IMAGE_FD_IMAGES);
	/* A sandbox's files may be of another mount namespace: nothing of ours is above those. */
	if (r >= 0 && is_directory(IMAGE_FD_FURTHER)) {
		r = directory_cut(IMAGE_FD_FURTHER);
		if (r == -EINVAL)
			r = 0;
	}
	if (r >= 0 && (fchdir(IMAGE_FD_SCRATCH) < 0 || chroot(".") < 0))
		r = -errno;
	return r;
}

/* ---- all of it ---- */

int store_confine(const struct store_confine *wish)
{
	const uint64_t files = POWERS_CAPABILITY(DAC_OVERRIDE) |
			       POWERS_CAPABILITY(DAC_READ_SEARCH) | POWERS_CAPABILITY(FOWNER) |
			       POWERS_CAPABILITY(LEASE);
	int r = powers_limit();

	if (r < 0)
		return r;
	if (setgroups(0, NULL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	r = places_cut(wish->uncut);
	if (r >= 0 && unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS |
			      (wish->network ? 0 : CLONE_NEWNET)) < 0)
		r = -errno;
	if (r >= 0)
		r = powers_keep_capabilities(files | wish->capabilities);
	return r < 0 || wish->network ? r : powers_keep_calls(POWERS_STORE);
}
