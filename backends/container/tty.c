/*
 * Terminals of execs: ptys of the slot's own devpts, opened from outside. Called by program.c and
 * the worker's loop. Must hold: a sandbox cannot mount, but it can rename what its devpts hangs in
 * and put something else there, so what is found is opened only if it is a devpts; in the vault
 * there are no others than the slots' own. The master never gets into the sandbox: the child's copy
 * of the worker's table is closed before its program runs.
 */
#include "backends/container/tty.h"

#include <errno.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#include "backends/container/kernel.h"
#include "backends/container/spawn.h"
#include "backends/container/worker.h"

enum { DEVPTS_TYPE = 0x1cd1, ENTRIES_BYTES = 4096 };

#define TRY(step, call)	      LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)
#define CHILD_TRY(step, call) LAUNCH_TRY(&child->attempt, LAUNCH_STEP_##step, call)

/* No link is followed, and nothing leads out of the folder. */
static long open_beneath(int dir_fd, const char *path, int flags)
{
	const struct open_how how = { .flags = (uint64_t)flags | O_CLOEXEC,
				      .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };

	return KERNEL_CALL(SYS_openat2, dir_fd, (long)path, (long)&how, sizeof how);
}

static bool is_devpts(int fd)
{
	struct statfs type;

	return KERNEL_CALL(SYS_fstatfs, fd, (long)&type) == 0 && type.f_type == DEVPTS_TYPE;
}

/* Where it hangs as seen in the vault, whatever mounts the sandbox's own namespace has. */
static long devpts_find(struct worker *w, int slot_fd)
{
	long fd = TRY(TTY, open_beneath(slot_fd, "up/root/dev/pts", O_PATH | O_DIRECTORY));

	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return -ENODEV;
	if (fd < 0 || is_devpts((int)fd))
		return fd;
	(void)kernel_close((int)fd); /* the sandbox's */
	return -ENODEV;
}

static long devpts_open(struct worker *w)
{
	long slot_fd, r = vault_enter(w);

	if (r < 0)
		return r;
	slot_fd = TRY(ROOT, slot_open(w));
	r = slot_fd;
	if (slot_fd >= 0) {
		r = devpts_find(w, (int)slot_fd);
		(void)kernel_close((int)slot_fd); /* only the way there */
	}
	vault_leave(w);
	return r;
}

/* Does the sandbox hold all it may have? Else the host has no more. */
static bool devpts_is_full(int pts_fd)
{
	char entries[ENTRIES_BYTES] __attribute__((aligned(8)));
	long bytes, count = 0, fd = open_beneath(pts_fd, ".", O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		return false;
	while ((bytes = KERNEL_CALL(SYS_getdents64, fd, (long)entries, sizeof entries)) > 0) {
		/* struct linux_dirent64: its length stands after two numbers of 8 bytes */
		for (long at = 0; at < bytes; at += *(const uint16_t *)(entries + at + 16))
			count++;
	}
	(void)kernel_close((int)fd);	     /* only read */
	return count >= LAUNCH_PTYS_MAX + 3; /* ".", ".." and "ptmx" */
}

/*
 * O_NONBLOCK is the engine's: no shard may wait for what a sandbox does to its end. Both ends are
 * of this one mount, whatever hangs where.
 */
static long master_open(struct worker *w, int pts_fd)
{
	long fd = TRY(TTY, open_beneath(pts_fd, "ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK));

	return fd == -ENOSPC && devpts_is_full(pts_fd) ? -EDQUOT : fd;
}

static long size_set(struct worker *w, int fd)
{
	const struct launch_request *q = &w->order.request;
	const struct winsize size = { .ws_row = q->rows, .ws_col = q->columns };

	return TRY(TTY, kernel_ioctl(fd, TIOCSWINSZ, (long)&size, w->secret));
}

/* Of the sandbox's root; a child that becomes somebody else passes it on. */
static long slave_open(struct worker *w, int master_fd)
{
	const int locked = 0;
	long fd, r = TRY(TTY, kernel_ioctl(master_fd, TIOCSPTLCK, (long)&locked, w->secret));

	if (r < 0)
		return r;
	fd = TRY(TTY,
		 kernel_ioctl(master_fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC, w->secret));
	if (fd < 0)
		return fd;
	r = TRY(TTY, KERNEL_CALL(SYS_fchown, fd, w->order.request.uid_base, -1));
	if (r >= 0 && w->order.request.rows && w->order.request.columns)
		r = size_set(w, (int)fd);
	if (r < 0)
		(void)kernel_close((int)fd); /* and with it the terminal */
	return r < 0 ? r : fd;
}

long tty_open(struct worker *w)
{
	long pts_fd = devpts_open(w), master_fd, slave_fd;

	if (pts_fd < 0)
		return pts_fd;
	master_fd = master_open(w, (int)pts_fd);
	(void)kernel_close((int)pts_fd); /* only the way there */
	if (master_fd < 0)
		return master_fd;
	slave_fd = slave_open(w, (int)master_fd);
	if (slave_fd < 0)
		(void)kernel_close((int)master_fd); /* and with it the terminal */
	else
		w->order.reply_fd = (int)master_fd;
	return slave_fd;
}

void tty_close(struct worker *w, int slave_fd, bool keep_master)
{
	(void)kernel_close(slave_fd); /* the child has its own */
	if (keep_master)
		return;
	(void)kernel_close(w->order.reply_fd); /* and with it the terminal */
	w->order.reply_fd = -1;
}

long tty_take(struct child *child)
{
	return CHILD_TRY(TTY, kernel_ioctl(0, TIOCSCTTY, 0, child->worker->secret));
}

long tty_pass(struct child *child, uint32_t uid)
{
	return CHILD_TRY(TTY, KERNEL_CALL(SYS_fchown, 0, uid, -1));
}

/* From the slave's side, as the last of its programs would do it; the master stays readable. */
static long tty_hang_up(struct worker *w, int master_fd)
{
	long r, fd = TRY(TTY, KERNEL_CALL(SYS_ioctl, master_fd, TIOCGPTPEER,
					  O_RDWR | O_NOCTTY | O_CLOEXEC));

	if (fd < 0)
		return fd;
	r = TRY(TTY, KERNEL_CALL(SYS_ioctl, fd, TIOCVHANGUP, 0));
	(void)kernel_close((int)fd); /* hung up like all others */
	return r;
}

long tty_resize(struct worker *w)
{
	if (w->order.request.signal == SIGHUP)
		return tty_hang_up(w, w->order.descriptors[0]);
	return size_set(w, w->order.descriptors[0]);
}
