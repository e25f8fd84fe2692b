/*
 * Owns what a worker's loop stands on: the vault with the image and the slot, the slot's root, its
 * cgroup, and this process in a mount namespace of one mount. Called once per worker, the root's
 * part again by the loop where roots are made anew. Must hold: the root is made of the same calls,
 * options and attributes as the launcher's.
 */
#include "loadgen/floor/floor.h"

#include "loadgen/floor/call.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <unistd.h>

/* The first failure of a chain names itself and stops the rest. */
#define TRY(floor, what, call) ((floor)->failed = (what), (long)(call))

enum { DISK_BYTES = 1 << 30, INODES = 262144, TTY_GROUP = 5 };

struct option {
	const char *key, *value;
};

static long mount_make(struct floor *floor, const char *type, const struct option *options,
		       unsigned attributes)
{
	long mount_fd, r = 0, fs = TRY(floor, type, CALL(SYS_fsopen, (long)type, FSOPEN_CLOEXEC));

	if (fs < 0)
		return fs;
	for (const struct option *o = options; r >= 0 && o->key; o++)
		r = CALL(SYS_fsconfig, fs, FSCONFIG_SET_STRING, (long)o->key, (long)o->value, 0);
	if (r >= 0)
		r = CALL(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, 0, 0, 0);
	mount_fd = r < 0 ? r : CALL(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes);
	(void)CALL(SYS_close, fs); /* the mount stands alone */
	return mount_fd;
}

static long mount_move(long mount_fd, long folder, const char *path)
{
	return CALL(SYS_move_mount, mount_fd, (long)"", folder, (long)path,
		    MOVE_MOUNT_F_EMPTY_PATH | (*path ? 0 : MOVE_MOUNT_T_EMPTY_PATH));
}

static long mount_hang(long mount_fd, const char *path)
{
	long r = CALL(SYS_mkdirat, AT_FDCWD, (long)path, 0700);

	if (r >= 0 || r == -EEXIST)
		r = mount_move(mount_fd, AT_FDCWD, path);
	(void)CALL(SYS_close, mount_fd); /* it hangs, or goes */
	return r;
}

/* Before the root is replaced: the image has a path. The mount hangs nowhere yet. */
static long image_open(struct floor *floor)
{
	const struct option options[] = { { "source", floor->image }, { NULL, NULL } };

	return mount_make(floor, "erofs", options, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOATIME);
}

/* ---- namespaces of one mount ---- */

static long root_replace(struct floor *floor, const char *mode)
{
	const struct option options[] = { { "mode", mode }, { NULL, NULL } };
	long mount_fd, r;

	r = TRY(floor, "unshare", CALL(SYS_unshare, CLONE_NEWNS));
	if (r >= 0)
		r = TRY(floor, "make private",
			CALL(SYS_mount, 0, (long)"/", 0, MS_REC | MS_PRIVATE, 0));
	if (r < 0)
		return r;
	mount_fd = mount_make(floor, "tmpfs", options, MOUNT_ATTR_NOSUID);
	if (mount_fd < 0)
		return mount_fd;
	r = mount_move(mount_fd, AT_FDCWD, "/");
	if (r >= 0)
		r = CALL(SYS_fchdir, mount_fd);
	if (r >= 0)
		r = TRY(floor, "pivot_root", CALL(SYS_pivot_root, (long)".", (long)"."));
	if (r >= 0)
		r = CALL(SYS_umount2, (long)".", MNT_DETACH);
	(void)CALL(SYS_close, mount_fd); /* it is the root */
	return r < 0 ? r : CALL(SYS_chdir, (long)"/");
}

/* Keeps fd under a number of our choice. */
static long place(long fd, int number)
{
	long r = fd < 0 ? fd : CALL(SYS_dup3, fd, number, O_CLOEXEC);

	if (fd >= 0)
		(void)CALL(SYS_close, fd); /* there is another now */
	return r;
}

static long namespace_place(struct floor *floor, const char *path, int number)
{
	return place(TRY(floor, path,
			 CALL(SYS_openat, FLOOR_FD_PROC, (long)path, O_RDONLY | O_CLOEXEC)),
		     number);
}

/* ---- the slot's root; in the vault, in the slot's folder ---- */

static long upper_make(struct floor *floor)
{
	char size[24], inodes[24];
	const struct option options[] = {
		{ "size", size }, { "nr_inodes", inodes }, { "mode", "0755" }, { NULL, NULL }
	};
	long r;

	snprintf(size, sizeof(size), "%d", DISK_BYTES);
	snprintf(inodes, sizeof(inodes), "%d", INODES);
	r = mount_make(floor, "tmpfs", options,
		       MOUNT_ATTR_NOATIME | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (r >= 0)
		r = mount_hang(r, "up");
	if (r >= 0)
		r = CALL(SYS_mkdirat, AT_FDCWD, (long)"up/u", 0755);
	if (r >= 0)
		r = CALL(SYS_fchownat, AT_FDCWD, (long)"up/u", floor->uid_base, floor->uid_base, 0);
	return r < 0 ? r : CALL(SYS_mkdirat, AT_FDCWD, (long)"up/w", 0700);
}

static long devpts_make(struct floor *floor, long root_fd)
{
	const struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				      .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	char gid[16];
	const struct option options[] = { { "gid", gid },
					  { "mode", "0620" },
					  { "ptmxmode", "0666" },
					  { "max", "256" },
					  { NULL, NULL } };
	long r, mount_fd, folder;

	snprintf(gid, sizeof(gid), "%u", floor->uid_base + TTY_GROUP);
	folder = TRY(floor, "dev/pts",
		     CALL(SYS_openat2, root_fd, (long)"dev/pts", (long)&how, sizeof(how)));
	if (folder < 0)
		return folder;
	mount_fd = r = mount_make(floor, "devpts", options,
				  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOATIME);
	if (mount_fd >= 0) {
		r = mount_move(mount_fd, folder, "");
		(void)CALL(SYS_close, mount_fd); /* it hangs, or goes */
	}
	(void)CALL(SYS_close, folder); /* only the way there */
	return r;
}

static long overlay_make(struct floor *floor)
{
	static const struct option options[] = { { "source", "overlay" }, { "lowerdir+", "lower" },
						 { "upperdir", "up/u" },  { "workdir", "up/w" },
						 { "xino", "on" },	  { NULL, NULL } };
	long r, mount_fd;

	mount_fd = mount_make(floor, "overlay", options, MOUNT_ATTR_NOATIME | MOUNT_ATTR_NOSUID);
	if (mount_fd < 0)
		return mount_fd;
	r = CALL(SYS_mkdirat, AT_FDCWD, (long)"up/root", 0700);
	if (r >= 0)
		r = mount_move(mount_fd, AT_FDCWD, "up/root");
	if (r >= 0) /* the image has one: EEXIST */
		(void)CALL(SYS_mkdirat, mount_fd, (long)"proc", 0555);
	if (r >= 0)
		r = devpts_make(floor, mount_fd);
	(void)CALL(SYS_close, mount_fd); /* it hangs, or goes */
	return r;
}

static long baseline_take(struct floor *floor)
{
	struct statfs usage;
	struct stat upper;
	long r = TRY(floor, "baseline",
		     CALL(SYS_newfstatat, AT_FDCWD, (long)"up/u", (long)&upper,
			  AT_SYMLINK_NOFOLLOW));
	if (r >= 0)
		r = CALL(SYS_statfs, (long)"up", (long)&usage);
	if (r < 0)
		return r;
	floor->upper_ctime = upper.st_ctim;
	floor->free_inodes = usage.f_ffree;
	floor->free_blocks = usage.f_bfree;
	return 0;
}

static long root_make(struct floor *floor)
{
	long r = upper_make(floor);

	if (r >= 0)
		r = overlay_make(floor);
	return r < 0 ? r : baseline_take(floor);
}

static long path_close(long fd)
{
	return fd < 0 ? fd : CALL(SYS_close, fd); /* only the place counted */
}

long floor_group_renew(struct floor *floor)
{
	struct stat group;
	long r = TRY(floor, "cgroup", CALL(SYS_mkdirat, FLOOR_FD_CGROUP, (long)floor->group, 0755));

	if (r >= 0 || r == -EEXIST)
		r = CALL(SYS_mkdirat, FLOOR_FD_CGROUP, (long)floor->leaf, 0755);
	return r < 0 && r != -EEXIST ?
		       r :
		       CALL(SYS_newfstatat, FLOOR_FD_CGROUP, (long)floor->group, (long)&group, 0);
}

/* Whether the user namespace and the lower are there and are the right ones: they are. */
static long slot_look(struct floor *floor)
{
	struct stat lower, image;
	struct statfs type;
	long r, user,
		slot = CALL(SYS_openat, AT_FDCWD, (long)floor->slot_path,
			    O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (slot < 0)
		return slot;
	user = CALL(SYS_openat, slot, (long)"user", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	r = user < 0 ? user : CALL(SYS_fstatfs, user, (long)&type);
	(void)path_close(user);
	(void)path_close(slot);
	if (r >= 0)
		r = CALL(SYS_newfstatat, AT_FDCWD, (long)"lower", (long)&lower,
			 AT_SYMLINK_NOFOLLOW);
	if (r >= 0)
		r = CALL(SYS_newfstatat, AT_FDCWD, (long)"/img/0", (long)&image,
			 AT_SYMLINK_NOFOLLOW);
	return r < 0 ? r : lower.st_dev == image.st_dev ? 0 : -EXDEV;
}

long floor_slot_renew(struct floor *floor)
{
	long r = TRY(floor, "slot", CALL(SYS_mkdirat, AT_FDCWD, (long)floor->slot_path, 0700));

	if (r >= 0 || r == -EEXIST)
		r = CALL(SYS_chdir, (long)floor->slot_path);
	if (r >= 0)
		r = slot_look(floor);
	if (r >= 0)
		r = TRY(floor, "umount",
			CALL(SYS_umount2, (long)"up", MNT_DETACH | UMOUNT_NOFOLLOW));
	return r < 0 ? r : root_make(floor);
}

/* ---- once ---- */

static long lower_make(struct floor *floor, int image_fd, int user_fd)
{
	struct mount_attr map = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)user_fd };
	long tree, r = TRY(floor, "image", mount_hang(image_fd, "/img/0"));

	tree = r < 0 ? r :
		       CALL(SYS_open_tree, AT_FDCWD, (long)"/img/0",
			    OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (tree < 0)
		return tree;
	r = TRY(floor, "idmap",
		CALL(SYS_mount_setattr, tree, (long)"", AT_EMPTY_PATH, (long)&map, sizeof(map)));
	return r < 0 ? r : mount_hang(tree, "lower");
}

static long user_hang(struct floor *floor, long user_fd)
{
	long r, tree = TRY(floor, "user namespace's mount",
			   CALL(SYS_open_tree, user_fd, (long)"",
				AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
	if (tree < 0)
		return tree;
	r = CALL(SYS_openat, AT_FDCWD, (long)"user", O_CREAT | O_RDONLY | O_CLOEXEC, 0600);
	if (r >= 0) {
		(void)CALL(SYS_close, r); /* only the place counts */
		r = mount_move(tree, AT_FDCWD, "user");
	}
	(void)CALL(SYS_close, tree); /* it hangs, or goes */
	return r;
}

static long vault_make(struct floor *floor, long user_fd)
{
	long image_fd = image_open(floor);
	long r = image_fd < 0 ? image_fd : root_replace(floor, "0700");

	if (r >= 0)
		r = CALL(SYS_mkdirat, AT_FDCWD, (long)"/img", 0700);
	if (r >= 0)
		r = CALL(SYS_mkdirat, AT_FDCWD, (long)"/slots", 0700);
	if (r >= 0)
		r = CALL(SYS_mkdirat, AT_FDCWD, (long)floor->slot_path, 0700);
	if (r >= 0)
		r = CALL(SYS_chdir, (long)floor->slot_path);
	if (r >= 0)
		r = lower_make(floor, (int)image_fd, (int)user_fd);
	if (r >= 0)
		r = user_hang(floor, user_fd);
	if (r >= 0)
		r = root_make(floor);
	if (r >= 0)
		r = place(CALL(SYS_openat, AT_FDCWD, (long)"/", O_PATH | O_DIRECTORY | O_CLOEXEC),
			  FLOOR_FD_VAULT_ROOT);
	return r < 0 ? r : namespace_place(floor, "self/ns/mnt", FLOOR_FD_VAULT);
}

/* What of proc is covered: the launcher's list. */
static long masks_find(struct floor *floor)
{
	static const char *const names[] = {
		"acpi", "asound",      "kcore",		"keys",	      "key-users",
		"scsi", "sched_debug", "latency_stats", "timer_list", "timer_stats",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct floor_mask *mask = &floor->masks[floor->mask_count];
		struct stat found;
		long r = CALL(SYS_newfstatat, FLOOR_FD_PROC, (long)names[i], (long)&found,
			      AT_SYMLINK_NOFOLLOW);
		if (r == -ENOENT)
			continue;
		if (r < 0)
			return r;
		mask->name = names[i];
		mask->cover = S_ISDIR(found.st_mode) ? "/folder" : "/file";
		r = TRY(floor, "cover",
			CALL(SYS_newfstatat, AT_FDCWD, (long)mask->cover, (long)&found, 0));
		if (r < 0)
			return r;
		mask->device = found.st_dev;
		mask->inode = found.st_ino;
		floor->mask_count++;
	}
	return 0;
}

static long own_make(struct floor *floor)
{
	long r = root_replace(floor, "0555");

	if (r >= 0)
		r = CALL(SYS_mkdirat, AT_FDCWD, (long)"folder", 0555);
	if (r >= 0)
		r = CALL(SYS_openat, AT_FDCWD, (long)"file", O_CREAT | O_RDONLY | O_CLOEXEC, 0444);
	if (r >= 0)
		r = CALL(SYS_close, r);
	if (r >= 0)
		r = namespace_place(floor, "self/ns/mnt", FLOOR_FD_OWN_MOUNT);
	if (r >= 0)
		r = namespace_place(floor, "self/ns/pid", FLOOR_FD_OWN_PID);
	return r < 0 ? r : masks_find(floor);
}

static long group_make(struct floor *floor, int cgroup_fd)
{
	long r = place(CALL(SYS_fcntl, cgroup_fd, F_DUPFD_CLOEXEC, 64), FLOOR_FD_CGROUP);

	floor->failed = "cgroup";
	snprintf(floor->group, sizeof(floor->group), "b%u", floor->worker);
	snprintf(floor->leaf, sizeof(floor->leaf), "b%u/e0", floor->worker);
	if (r >= 0)
		r = CALL(SYS_mkdirat, FLOOR_FD_CGROUP, (long)floor->group, 0755);
	return r < 0 ? r : CALL(SYS_mkdirat, FLOOR_FD_CGROUP, (long)floor->leaf, 0755);
}

/* PID 1's file as the engine has it: sealed, to be run and not to be read. */
static long init_make(struct floor *floor)
{
	char bytes[16384];
	long count, r, file, fd;

	file = TRY(floor, floor->init,
		   CALL(SYS_openat, AT_FDCWD, (long)floor->init, O_RDONLY | O_CLOEXEC));
	if (file < 0)
		return file;
	count = CALL(SYS_read, file, (long)bytes, sizeof(bytes));
	(void)CALL(SYS_close, file); /* only read */
	if (count <= 0 || count == sizeof(bytes))
		return -EFBIG;
	fd = CALL(SYS_memfd_create, (long)"init", MFD_CLOEXEC | MFD_ALLOW_SEALING | 0x10);
	if (fd < 0)
		return fd;
	r = CALL(SYS_write, fd, (long)bytes, count);
	if (r == count)
		r = CALL(SYS_fchmod, fd, 0111);
	if (r >= 0)
		r = CALL(SYS_fcntl, fd, F_ADD_SEALS,
			 F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	return r < 0 ? r : place(fd, FLOOR_FD_INIT);
}

int floor_slot_make(struct floor *floor, int cgroup_fd)
{
	long r, user_fd;
	void *stack = mmap(NULL, FLOOR_STACK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_POPULATE, -1, 0);

	if (stack == MAP_FAILED)
		return -errno;
	floor->stack = stack;
	snprintf(floor->slot_path, sizeof(floor->slot_path), "/slots/%u", floor->worker);
	r = place(CALL(SYS_openat, AT_FDCWD, (long)"/proc", O_PATH | O_DIRECTORY | O_CLOEXEC),
		  FLOOR_FD_PROC);
	if (r >= 0)
		r = init_make(floor);
	if (r >= 0)
		r = group_make(floor, cgroup_fd);
	user_fd = r < 0 ? r : floor_userns_make(floor);
	r = user_fd < 0 ? user_fd : vault_make(floor, user_fd);
	if (r >= 0)
		r = own_make(floor);
	if (r >= 0)
		r = CALL(SYS_prctl, PR_SET_DUMPABLE, 0);
	if (r >= 0)
		r = CALL(SYS_close_range, FLOOR_FD_COUNT, ~0u, 0);
	return r < 0 ? (int)r : 0;
}
