/*
 * The root file system of a slot: the image's one layer, idmapped to the slot's range and kept as
 * long as the image is the same; over it a tmpfs of the slot's own, in which the overlay itself and
 * a devpts hang, so that one unmount takes all three. Called while the worker is in the vault and
 * in the slot's folder: layers are named from there, since Linux 6.12 takes names only. Must hold:
 * no path goes through what a sandbox could have written.
 */
#include "backends/container/worker.h"

#include <errno.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "backends/container/kernel.h"

#define TRY(step, call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)

struct option {
	const char *key, *value;
};

struct filesystem {
	const char *type;
	const struct option *options; /* ends with a NULL key */
	unsigned attributes;
	uint32_t step;
};

/* A mount that hangs nowhere yet. */
static long filesystem_mount(struct worker *w, const struct filesystem *f)
{
	struct attempt *a = &w->attempt;
	long r, mount_fd, fs = LAUNCH_TRY(a, f->step, kernel_fsopen(f->type, w->secret));

	if (fs < 0)
		return fs;
	r = 0;
	for (const struct option *o = f->options; r >= 0 && o->key; o++)
		r = LAUNCH_TRY(a, f->step,
			       kernel_fsconfig_string((int)fs, o->key, o->value, w->secret));
	if (r >= 0)
		r = LAUNCH_TRY(a, f->step, kernel_fsconfig_create((int)fs, w->secret));
	mount_fd =
		r < 0 ? r :
			LAUNCH_TRY(a, f->step, kernel_fsmount((int)fs, f->attributes, w->secret));
	(void)kernel_close((int)fs); /* the mount, if any, stands alone */
	return mount_fd;
}

/* Hang a mount in a folder of the slot, made if absent. The descriptor is closed either way. */
static long mount_hang(struct worker *w, long mount_fd, const char *name, uint32_t step)
{
	long r = LAUNCH_TRY(&w->attempt, step, kernel_mkdirat(AT_FDCWD, name, 0700));

	if (r >= 0 || r == -EEXIST)
		r = LAUNCH_TRY(&w->attempt, step,
			       kernel_move_mount((int)mount_fd, AT_FDCWD, name, w->secret));
	(void)kernel_close((int)mount_fd); /* it hangs, or goes */
	return r;
}

static long upper_make(struct worker *w)
{
	const struct launch_request *q = &w->order.request;
	char size[24], inodes[24];
	const struct option options[] = {
		{ "size", size }, { "nr_inodes", inodes }, { "mode", "0755" }, { NULL, NULL }
	};
	const struct filesystem tmpfs = { "tmpfs", options,
					  MOUNT_ATTR_NOATIME | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
					  LAUNCH_STEP_UPPER };
	long r, mount_fd;

	(void)snprintf(size, sizeof size, "%llu", (unsigned long long)q->disk_bytes);
	(void)snprintf(inodes, sizeof inodes, "%llu", (unsigned long long)q->inodes);
	mount_fd = filesystem_mount(w, &tmpfs);
	if (mount_fd < 0)
		return mount_fd;
	r = mount_hang(w, mount_fd, "up", LAUNCH_STEP_UPPER);
	if (r >= 0)
		r = TRY(UPPER, kernel_mkdirat(AT_FDCWD, "up/u", 0755));
	/* Not idmapped, since the overlay makes folders of its own there. */
	if (r >= 0)
		r = TRY(UPPER, KERNEL_CALL(SYS_fchownat, AT_FDCWD, (long)"up/u", q->uid_base,
					   q->uid_base));
	if (r >= 0)
		r = TRY(UPPER, kernel_mkdirat(AT_FDCWD, "up/w", 0700));
	return r;
}

/* Whether the lower that hangs here is of the image: an image is one superblock. */
static bool lower_is(const char *image)
{
	struct stat here, wanted;

	return kernel_fstatat(AT_FDCWD, "lower", &here, AT_SYMLINK_NOFOLLOW) == 0 &&
	       kernel_fstatat(AT_FDCWD, image, &wanted, AT_SYMLINK_NOFOLLOW) == 0 &&
	       here.st_dev == wanted.st_dev;
}

static long lower_idmap(struct worker *w, int tree_fd)
{
	struct mount_attr map = { .attr_set = MOUNT_ATTR_IDMAP };
	long r, user = TRY(LOWER, kernel_openat(AT_FDCWD, "user", O_RDONLY | O_CLOEXEC, 0));

	if (user < 0)
		return user;
	map.userns_fd = (uint64_t)user;
	r = TRY(LOWER, kernel_mount_setattr(tree_fd, &map, w->secret));
	(void)kernel_close((int)user); /* the mount keeps the map */
	return r;
}

static long lower_make(struct worker *w)
{
	char image[WORKER_PATH_BYTES];
	long r, tree;

	(void)snprintf(image, sizeof image, "/img/%u", w->order.request.image);
	if (lower_is(image))
		return 0;
	r = kernel_umount("lower", MNT_DETACH | UMOUNT_NOFOLLOW, w->secret);
	if (r < 0 && r != -ENOENT && r != -EINVAL) /* there is none, or only its place */
		return r;
	tree = TRY(LOWER, kernel_open_tree(AT_FDCWD, image, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC,
					   w->secret));
	if (tree < 0)
		return tree;
	r = lower_idmap(w, (int)tree);
	if (r >= 0)
		return mount_hang(w, tree, "lower", LAUNCH_STEP_LOWER);
	(void)kernel_close((int)tree); /* and with it the mount */
	return r;
}

/* A folder that the image lacks, the sandbox's root's. It is part of the untouched root. */
static long place_make(struct worker *w, int dir_fd, const char *name, mode_t mode)
{
	const uint32_t owner = w->order.request.uid_base;
	long r = TRY(OVERLAY, kernel_mkdirat(dir_fd, name, mode & 0777));

	if (r == -EEXIST)
		return 0;
	if (r >= 0)
		r = TRY(OVERLAY, KERNEL_CALL(SYS_fchownat, dir_fd, (long)name, owner, owner,
					     AT_SYMLINK_NOFOLLOW));
	/* After the owner, which takes the sticky bit away. */
	return r < 0 ? r : TRY(OVERLAY, KERNEL_CALL(SYS_fchmodat, dir_fd, (long)name, mode));
}

static long place_open(struct worker *w, int root_fd, const char *path)
{
	const struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				      .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };

	return TRY(DEVPTS, KERNEL_CALL(SYS_openat2, root_fd, (long)path, (long)&how, sizeof how));
}

/* The fixed list; nobody inside owns them, and no other can be made. */
static long nodes_make(struct worker *w, int dev_fd)
{
	static const struct {
		const char *name;
		unsigned major, minor;
	} nodes[] = { { "null", 1, 3 },	  { "zero", 1, 5 },    { "full", 1, 7 },
		      { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 } };
	static const char *const links[][2] = { { "fd", "/proc/self/fd" },
						{ "stdin", "/proc/self/fd/0" },
						{ "stdout", "/proc/self/fd/1" },
						{ "stderr", "/proc/self/fd/2" },
						{ "ptmx", "pts/ptmx" } };
	long r = 0;

	for (unsigned i = 0; r >= 0 && i < sizeof nodes / sizeof *nodes; i++) {
		r = TRY(DEVPTS,
			KERNEL_CALL(SYS_mknodat, dev_fd, (long)nodes[i].name, S_IFCHR | 0666,
				    (long)makedev(nodes[i].major, nodes[i].minor)));
		if (r >= 0) /* the mask took some of the mode */
			r = TRY(DEVPTS,
				KERNEL_CALL(SYS_fchmodat, dev_fd, (long)nodes[i].name, 0666));
		r = r == -EEXIST ? 0 : r;
	}
	for (unsigned i = 0; r >= 0 && i < sizeof links / sizeof *links; i++) {
		r = TRY(DEVPTS,
			KERNEL_CALL(SYS_symlinkat, (long)links[i][1], dev_fd, (long)links[i][0]));
		r = r == -EEXIST ? 0 : r;
	}
	return r;
}

/* An image without /dev/pts was made of a bare directory: it gets what every program expects. */
static long devices_furnish(struct worker *w, int root_fd)
{
	long dev_fd, r = place_make(w, root_fd, "dev", 0755);

	if (r >= 0)
		r = place_make(w, root_fd, "tmp", 01777);
	if (r < 0)
		return r;
	dev_fd = place_open(w, root_fd, "dev");
	if (dev_fd < 0)
		return dev_fd;
	r = place_make(w, (int)dev_fd, "pts", 0755);
	if (r >= 0)
		r = place_make(w, (int)dev_fd, "shm", 01777);
	if (r >= 0)
		r = nodes_make(w, (int)dev_fd);
	(void)kernel_close((int)dev_fd); /* only the way there */
	return r;
}

static long devpts_place(struct worker *w, int root_fd)
{
	long r, place = place_open(w, root_fd, "dev/pts");

	if (place != -ENOENT)
		return place;
	r = devices_furnish(w, root_fd);
	return r < 0 ? r : place_open(w, root_fd, "dev/pts");
}

/* In the new root; the image says where, but may not lead elsewhere. */
static long devpts_make(struct worker *w, int root_fd)
{
	char gid[16], most[16];
	const struct option options[] = { { "gid", gid },
					  { "mode", "0620" },
					  { "ptmxmode", "0666" },
					  { "max", most },
					  { NULL, NULL } };
	const struct filesystem devpts = { "devpts", options,
					   MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC |
						   MOUNT_ATTR_NOATIME,
					   LAUNCH_STEP_DEVPTS };
	long r, mount_fd, place;

	(void)snprintf(gid, sizeof gid, "%u", w->order.request.uid_base + 5); /* group tty */
	(void)snprintf(most, sizeof most, "%d", LAUNCH_PTYS_MAX);
	place = devpts_place(w, root_fd);
	if (place < 0)
		return place;
	mount_fd = filesystem_mount(w, &devpts);
	r = mount_fd;
	if (mount_fd >= 0) {
		r = TRY(DEVPTS, kernel_move_mount((int)mount_fd, (int)place, "", w->secret));
		(void)kernel_close((int)mount_fd); /* it hangs, or goes */
	}
	(void)kernel_close((int)place); /* only the way there */
	return r;
}

static long root_make(struct worker *w)
{
	static const struct option options[] = { { "source", "overlay" },
						 { "lowerdir+", "lower" },
						 { "upperdir", "up/u" },
						 { "workdir", "up/w" },
						 /* readdir and stat must agree on inode numbers */
						 { "xino", "on" },
						 { NULL, NULL } };
	static const struct filesystem overlay = { "overlay", options,
						   MOUNT_ATTR_NOATIME | MOUNT_ATTR_NOSUID,
						   LAUNCH_STEP_OVERLAY };
	long r, mount_fd = filesystem_mount(w, &overlay);

	if (mount_fd < 0)
		return mount_fd;
	r = TRY(OVERLAY, kernel_mkdirat(AT_FDCWD, "up/root", 0700));
	if (r >= 0)
		r = TRY(OVERLAY, kernel_move_mount((int)mount_fd, AT_FDCWD, "up/root", w->secret));
	if (r >= 0)
		r = place_make(w, (int)mount_fd, "proc", 0555);
	if (r >= 0)
		r = devpts_make(w, (int)mount_fd);
	(void)kernel_close((int)mount_fd); /* it hangs, or goes */
	return r;
}

long overlay_make(struct worker *w)
{
	long r = lower_make(w);

	if (r >= 0)
		r = upper_make(w);
	return r < 0 ? r : root_make(w);
}

long overlay_drop(struct worker *w)
{
	long r = TRY(ROOT, kernel_umount("up", MNT_DETACH | UMOUNT_NOFOLLOW, w->secret));

	return r == -ENOENT || r == -EINVAL ? 0 : r; /* there is none, or only its place */
}

long overlay_baseline(struct worker *w)
{
	struct launch_baseline *baseline = &w->order.reply.baseline;
	struct statfs usage;
	struct stat upper;
	long r = TRY(ROOT, kernel_fstatat(AT_FDCWD, "up/u", &upper, AT_SYMLINK_NOFOLLOW));

	if (r >= 0)
		r = TRY(ROOT, KERNEL_CALL(SYS_statfs, (long)"up", (long)&usage));
	if (r < 0)
		return r;
	baseline->ctime_ns =
		(uint64_t)upper.st_ctim.tv_sec * 1000000000u + (uint64_t)upper.st_ctim.tv_nsec;
	baseline->mode = upper.st_mode;
	baseline->uid = upper.st_uid;
	baseline->free_inodes = usage.f_ffree;
	baseline->free_blocks = usage.f_bfree;
	return 0;
}
