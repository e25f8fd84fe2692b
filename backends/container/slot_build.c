/*
 * Slots and images in the vault. Called by the worker's loop. Must hold: a build that fails leaves
 * nothing of its slot behind; whatever happens, the worker is out of the vault when a request is
 * answered.
 */
#include "backends/container/worker.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/vfs.h>

#include "backends/container/kernel.h"
#include "backends/container/netns.h"
#include "backends/container/spawn.h"

enum { NSFS_TYPE = 0x6e736673 };

#define TRY(step, call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)

long vault_enter(struct worker *w)
{
	return TRY(ROOT, kernel_setns(LAUNCH_FD_VAULT, CLONE_NEWNS, w->secret));
}

void vault_leave(struct worker *w)
{
	long r = kernel_setns(w->own_mount_fd, CLONE_NEWNS, w->secret);

	if (r < 0)
		worker_die("cannot leave the vault", r);
}

static void slot_path(const struct worker *w, char path[static WORKER_PATH_BYTES])
{
	(void)snprintf(path, WORKER_PATH_BYTES, "/slots/%u", w->order.request.slot);
}

long slot_open(struct worker *w)
{
	char path[WORKER_PATH_BYTES];

	slot_path(w, path);
	return kernel_openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
}

long nsfs_attach(struct worker *w, int ns_fd, int slot_fd, const char *name)
{
	long r, tree = kernel_open_tree(
			ns_fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC, w->secret);

	if (tree < 0)
		return tree;
	r = kernel_openat(slot_fd, name, O_CREAT | O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (r >= 0) {
		(void)kernel_close((int)r); /* only the place counts */
		r = kernel_move_mount((int)tree, slot_fd, name, w->secret);
	}
	(void)kernel_close((int)tree); /* it hangs, or goes */
	return r;
}

/* 1; 0 where there is none, or only its place. */
static long nsfs_is_at(int slot_fd, const char *name)
{
	long r, fd = kernel_openat(slot_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
	struct statfs type;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	r = KERNEL_CALL(SYS_fstatfs, fd, (long)&type);
	(void)kernel_close((int)fd); /* only read */
	return r < 0 ? r : type.f_type == NSFS_TYPE;
}

static long slot_userns(struct worker *w, int slot_fd)
{
	long fd, r = TRY(USERNS, nsfs_is_at(slot_fd, "user"));

	if (r != 0)
		return r < 0 ? r : 0;
	fd = userns_make(w);
	if (fd < 0)
		return fd;
	r = TRY(USERNS, nsfs_attach(w, (int)fd, slot_fd, "user"));
	(void)kernel_close((int)fd); /* it hangs in the vault, or goes */
	return r;
}

/* Unmount and remove name in the slot's folder, where it is. */
static long place_clear(struct worker *w, const char *name, int flags)
{
	long r = kernel_umount(name, MNT_DETACH | UMOUNT_NOFOLLOW, w->secret);

	if (r == -ENOENT)
		return 0;
	if (r < 0 && r != -EINVAL) /* nothing is mounted there */
		return r;
	return kernel_unlinkat(AT_FDCWD, name, flags);
}

/* Everything in the slot's folder, where the worker is. */
static long slot_empty(struct worker *w)
{
	long r = place_clear(w, "up", AT_REMOVEDIR);

	if (r >= 0)
		r = place_clear(w, "lower", AT_REMOVEDIR);
	return r < 0 ? r : place_clear(w, "user", 0);
}

/* The worker is in the vault. */
static long slot_furnish(struct worker *w)
{
	char path[WORKER_PATH_BYTES];
	long r, slot_fd;

	slot_path(w, path);
	r = TRY(ROOT, kernel_mkdirat(AT_FDCWD, path, 0700));
	if (r < 0 && r != -EEXIST)
		return r;
	r = TRY(ROOT, kernel_chdir(path));
	if (r < 0)
		return r;
	slot_fd = TRY(ROOT, slot_open(w));
	if (slot_fd < 0)
		return slot_fd;
	if (w->order.request.flags & LAUNCH_ANEW)
		r = slot_empty(w);
	if (r >= 0)
		r = slot_userns(w, (int)slot_fd);
	(void)kernel_close((int)slot_fd); /* only the way there */
	if (r >= 0)
		r = overlay_drop(w);
	if (r >= 0)
		r = overlay_make(w);
	return r < 0 ? r : overlay_baseline(w);
}

/* The worker is in the vault; fine where there is nothing or only a part. */
static long slot_clear(struct worker *w)
{
	char path[WORKER_PATH_BYTES];
	long r;

	slot_path(w, path);
	r = kernel_chdir(path);
	if (r == -ENOENT)
		return 0;
	if (r >= 0)
		r = slot_empty(w);
	if (r >= 0)
		r = kernel_chdir("/");
	return r < 0 ? r : kernel_unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* Keeps the failed step: what cannot be undone either shows in the next build. */
static void slot_undo(struct worker *w)
{
	const uint32_t step = w->attempt.step;

	if (vault_enter(w) >= 0) {
		(void)slot_clear(w);
		vault_leave(w);
	}
	(void)cgroup_drop(w);
	w->attempt.step = step;
}

long slot_build(struct worker *w)
{
	long r = cgroup_make(w);

	if (r >= 0)
		r = vault_enter(w);
	if (r >= 0) {
		r = slot_furnish(w);
		vault_leave(w);
	}
	if (r < 0)
		slot_undo(w);
	return r;
}

long slot_drop(struct worker *w)
{
	long r = cgroup_drop(w);

	if (r < 0)
		return r;
	r = vault_enter(w);
	if (r < 0)
		return r;
	r = TRY(ROOT, slot_clear(w));
	vault_leave(w);
	return r;
}

long slot_sweep(struct worker *w)
{
	long r = cgroup_kill(w);

	return r < 0 ? r : slot_drop(w);
}

static long slot_usage(struct worker *w)
{
	struct launch_reply *reply = &w->order.reply;
	char path[WORKER_PATH_BYTES];
	struct statfs usage;
	long r;

	(void)snprintf(path, sizeof path, "/slots/%u/up", w->order.request.slot);
	r = TRY(ROOT, KERNEL_CALL(SYS_statfs, (long)path, (long)&usage));
	if (r < 0)
		return r;
	reply->disk_bytes = (usage.f_blocks - usage.f_bfree) * (uint64_t)usage.f_bsize;
	reply->inodes = usage.f_files - usage.f_ffree;
	return 0;
}

long slot_stat(struct worker *w)
{
	long r = cgroup_stat(w);

	if (r >= 0)
		r = vault_enter(w);
	if (r < 0)
		return r;
	r = slot_usage(w);
	vault_leave(w);
	if (r >= 0 && w->order.request.flags & LAUNCH_EGRESS)
		r = egress_count(w);
	return r;
}

/* 1: the image is there already; 0: the folder is empty; else another image is. */
static long image_look(struct worker *w, const char *path)
{
	struct stat wanted, found, images;
	long r = TRY(LOWER, kernel_fstat(w->order.descriptors[0], &wanted));

	if (r >= 0)
		r = TRY(LOWER, kernel_fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW));
	if (r >= 0)
		r = TRY(LOWER, kernel_fstatat(AT_FDCWD, "/img", &images, AT_SYMLINK_NOFOLLOW));
	if (r < 0)
		return r;
	if (found.st_dev == wanted.st_dev)
		return 1;
	return found.st_dev == images.st_dev ? 0 : -EEXIST;
}

/* Asked again when a worker was lost with it, which may have got to any point. */
static long image_attach_at(struct worker *w, const char *path)
{
	long r = TRY(LOWER, kernel_mkdirat(AT_FDCWD, path, 0700));

	if (r == -EEXIST) {
		r = image_look(w, path);
		if (r == 1)
			return 0;
	}
	if (r < 0)
		return r;
	r = TRY(LOWER, kernel_move_mount(w->order.descriptors[0], AT_FDCWD, path, w->secret));
	if (r < 0)
		(void)kernel_unlinkat(AT_FDCWD, path, AT_REMOVEDIR); /* as it was */
	return r;
}

static long image_detach_at(struct worker *w, const char *path)
{
	return TRY(LOWER, place_clear(w, path, AT_REMOVEDIR));
}

static long image_move(struct worker *w, long (*move)(struct worker *w, const char *path))
{
	char path[WORKER_PATH_BYTES];
	long r = vault_enter(w);

	if (r < 0)
		return r;
	(void)snprintf(path, sizeof path, "/img/%u", w->order.request.image);
	r = move(w, path);
	vault_leave(w);
	return r;
}

long image_attach(struct worker *w)
{
	return image_move(w, image_attach_at);
}

long image_detach(struct worker *w)
{
	return image_move(w, image_detach_at);
}
