/*
 * Owns the loop's calls: a sandbox made, a program run in it, the sandbox destroyed, in the
 * launcher's order, and what the engine does around that: the pipes, the kill, the wait and the
 * proof that the root is untouched. Called by main.c for as long as it measures. Must hold: no call
 * is made here that the launcher or the engine does not make; test_floor_calls compares them.
 */
#include "loadgen/floor/floor.h"

#include "loadgen/floor/call.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <stdio.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define TRY(floor, what, call) ((floor)->failed = (what), (long)(call))

/* Of the sandbox's root: the launcher's set. */
#define CAPABILITIES                                                                               \
	(1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER | 1u << CAP_FSETID |          \
	 1u << CAP_KILL | 1u << CAP_SETGID | 1u << CAP_SETUID | 1u << CAP_SETPCAP |                \
	 1u << CAP_NET_BIND_SERVICE | 1u << CAP_SYS_CHROOT | 1u << CAP_SETFCAP)

struct child {
	struct floor *floor;
	int fds[3];
	long (*run)(struct child *child);
};

/* ---- a child that shares our memory until its program runs ---- */

__attribute__((noreturn, used)) static void child_main(struct child *child)
{
	child->floor->child_error = child->run(child);
	for (;;)
		CALL(SYS_exit_group, 1);
}

static __attribute__((noinline)) long child_clone(struct clone_args *args, struct child *child)
{
	register struct child *kept __asm__("r12") = child;
	long r;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r12, %%rdi\n\t"
			 "call %P[main]\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(r)
			 : "a"((long)SYS_clone3), "D"(args), "S"(sizeof(*args)),
			   "r"(kept), [main] "i"(child_main)
			 : "rcx", "r11", "memory");
	return r;
}

/* The pid, once its program runs; it is still to be reaped after an error. */
static long child_spawn(struct child *child, uint64_t flags, int group_fd, int *ret_pid)
{
	struct floor *floor = child->floor;
	int pidfd = -1;
	struct clone_args args = {
		.flags = flags | CLONE_VM | CLONE_PIDFD | CLONE_INTO_CGROUP | CLONE_CHILD_SETTID |
			 CLONE_CHILD_CLEARTID,
		.pidfd = (uint64_t)&pidfd,
		.exit_signal = 0,
		.child_tid = (uint64_t)&floor->child_tid,
		.stack = (uint64_t)floor->stack,
		.stack_size = FLOOR_STACK_BYTES,
		.cgroup = (uint64_t)group_fd,
	};
	uint32_t tid;
	long r;

	floor->child_tid = 1;
	floor->child_error = 0;
	r = TRY(floor, "clone3", child_clone(&args, child));
	if (r < 0)
		return r;
	*ret_pid = (int)r;
	while ((tid = __atomic_load_n(&floor->child_tid, __ATOMIC_ACQUIRE)))
		(void)CALL(SYS_futex, (long)&floor->child_tid, FUTEX_WAIT, tid,
			   0);	      /* the word counts */
	(void)CALL(SYS_close, pidfd); /* a descriptor only */
	return floor->child_error;
}

/* ---- PID 1 ---- */

enum { FD_ROOT, FD_USER }; /* of child.fds */

static long masks_put(struct floor *floor, long proc_fd)
{
	for (uint32_t i = 0; i < floor->mask_count; i++) {
		const struct floor_mask *mask = &floor->masks[i];
		struct stat found;
		long r = CALL(SYS_mount, (long)mask->cover, (long)mask->name, 0, MS_BIND, 0);

		if (r >= 0)
			r = CALL(SYS_newfstatat, proc_fd, (long)mask->name, (long)&found,
				 AT_SYMLINK_NOFOLLOW);
		if (r < 0)
			return r;
		if (found.st_dev != mask->device || found.st_ino != mask->inode)
			return -EXDEV;
	}
	return 0;
}

/* In proc's own root, which is where the masks are named from. */
static long proc_hang(const struct child *child, long proc_fd)
{
	long r, place = CALL(SYS_openat, child->fds[FD_ROOT], (long)"proc",
			     O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (place < 0)
		return place;
	r = CALL(SYS_move_mount, proc_fd, (long)"", place, (long)"",
		 MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	return r < 0 ? r : CALL(SYS_fchdir, proc_fd);
}

static long proc_make(const struct child *child)
{
	long r, proc_fd, fs;

	fs = TRY(child->floor, "proc", CALL(SYS_fsopen, (long)"proc", FSOPEN_CLOEXEC));
	if (fs < 0)
		return fs;
	r = CALL(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, 0, 0, 0);
	if (r < 0)
		return r;
	proc_fd = CALL(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
		       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (proc_fd < 0)
		return proc_fd;
	r = proc_hang(child, proc_fd);
	return r < 0 ? r : TRY(child->floor, "masks", masks_put(child->floor, proc_fd));
}

static long root_take(const struct child *child)
{
	long r = CALL(SYS_move_mount, child->fds[FD_ROOT], (long)"", AT_FDCWD, (long)"/",
		      MOVE_MOUNT_F_EMPTY_PATH);

	if (r >= 0)
		r = proc_make(child);
	if (r >= 0)
		r = CALL(SYS_fchdir, child->fds[FD_ROOT]);
	return r < 0 ? r : CALL(SYS_chroot, (long)".");
}

static long credentials_set(struct floor *floor)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	const struct __user_cap_data_struct data[2] = { { CAPABILITIES, CAPABILITIES, 0 } };
	long r = TRY(floor, "credentials", CALL(SYS_setresgid, 0, 0, 0));

	if (r >= 0)
		r = CALL(SYS_setresuid, 0, 0, 0);
	if (r >= 0)
		r = CALL(SYS_capset, (long)&header, (long)data);
	return r < 0 ? r : CALL(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1);
}

static long init_become(struct floor *floor)
{
	static const char *const argv[] = { "init", NULL }, *const envp[] = { NULL };
	long r = TRY(floor, "descriptors", CALL(SYS_dup3, 1, 2, 0));

	if (r >= 0)
		r = CALL(SYS_close_range, 3, FLOOR_FD_INIT - 1, 0);
	if (r >= 0)
		r = CALL(SYS_close_range, FLOOR_FD_INIT + 1, ~0u, 0);
	if (r < 0)
		return r;
	return TRY(floor, "PID 1",
		   CALL(SYS_execveat, FLOOR_FD_INIT, (long)"", (long)argv, (long)envp,
			AT_EMPTY_PATH));
}

static long sandbox_run(struct child *child)
{
	struct floor *floor = child->floor;
	long r = TRY(floor, "root", root_take(child));

	if (r >= 0)
		r = TRY(floor, "hostname", CALL(SYS_sethostname, (long)"sandbox", 7));
	if (r >= 0)
		r = CALL(SYS_setsid);
	if (r >= 0)
		r = TRY(floor, "setns", CALL(SYS_setns, child->fds[FD_USER], CLONE_NEWUSER));
	if (r >= 0)
		r = credentials_set(floor);
	return r < 0 ? r : init_become(floor);
}

/* In the vault. */
static long slot_take_from(struct floor *floor, struct child *child)
{
	struct stat root;
	long r, slot = TRY(floor, "slot",
			   CALL(SYS_openat, AT_FDCWD, (long)floor->slot_path,
				O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (slot < 0)
		return slot;
	r = CALL(SYS_open_tree, slot, (long)"up/root",
		 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
	if (r >= 0) {
		child->fds[FD_ROOT] = (int)r;
		r = CALL(SYS_fstat, r, (long)&root); /* its device is the policies' */
	}
	if (r >= 0) {
		r = CALL(SYS_openat, slot, (long)"user", O_RDONLY | O_CLOEXEC);
		child->fds[FD_USER] = (int)r;
	}
	(void)CALL(SYS_close, slot); /* only the way there */
	return r;
}

/* Into the vault and back; what is done there: the root anew, or what the child needs of it. */
static long vault_visit(struct floor *floor, bool is_fresh, struct child *child)
{
	long back, r = TRY(floor, "vault", CALL(SYS_setns, FLOOR_FD_VAULT, CLONE_NEWNS));

	if (r < 0)
		return r;
	r = is_fresh ? floor_slot_renew(floor) : slot_take_from(floor, child);
	back = CALL(SYS_setns, FLOOR_FD_OWN_MOUNT, CLONE_NEWNS);
	return r < 0 ? r : back;
}

/* What the cgroup used before, so that a sandbox's figures are its own. */
static long group_cpu(struct floor *floor)
{
	char path[96], text[4096];
	long r, fd;

	snprintf(path, sizeof(path), "%s/cpu.stat", floor->group);
	fd = TRY(floor, "cpu.stat",
		 CALL(SYS_openat, FLOOR_FD_CGROUP, (long)path, O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return fd;
	r = CALL(SYS_read, fd, (long)text, sizeof(text) - 1);
	(void)CALL(SYS_close, fd); /* only read */
	return r < 0 ? r : 0;
}

/* The slot's, with the sandbox's id on it: a new one each time, as the launcher's. */
static long group_sign(struct floor *floor)
{
	char id[32];
	struct stat group;
	long r, fd = TRY(floor, "cgroup",
			 CALL(SYS_openat, FLOOR_FD_CGROUP, (long)floor->group,
			      O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	if (fd < 0)
		return fd;
	floor->sandboxes++;
	for (unsigned at = 0; at < sizeof(id); at++)
		id[at] = "0123456789abcdef"[floor->sandboxes >> (4 * (at & 15)) & 15];
	r = CALL(SYS_newfstatat, FLOOR_FD_CGROUP, (long)floor->group, (long)&group, 0);
	if (r >= 0)
		r = CALL(SYS_fsetxattr, fd, (long)"trusted.dsec.sandbox", (long)id, sizeof(id), 0);
	if (r >= 0)
		r = group_cpu(floor);
	if (r < 0)
		(void)CALL(SYS_close, fd); /* of no use */
	return r < 0 ? r : fd;
}

long floor_spawn(struct floor *floor, bool is_fresh, struct floor_sandbox *ret)
{
	struct child child = { .floor = floor, .fds = { -1, -1, -1 }, .run = sandbox_run };
	long group_fd, r = is_fresh ? floor_group_renew(floor) : 0;

	if (r >= 0 && is_fresh)
		r = vault_visit(floor, true, &child);
	if (r >= 0)
		r = vault_visit(floor, false, &child);
	if (r < 0)
		return r;
	group_fd = group_sign(floor);
	if (group_fd < 0)
		return group_fd;
	r = child_spawn(&child,
			CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
			(int)group_fd, &ret->pid);
	(void)CALL(SYS_close, group_fd);	   /* the child is in it */
	(void)CALL(SYS_close, child.fds[FD_ROOT]); /* the child has its own */
	(void)CALL(SYS_close, child.fds[FD_USER]);
	return r;
}

/* ---- a program ---- */

enum { FD_SANDBOX, FD_OUTPUT, FD_ERROR };

static long program_run(struct child *child)
{
	struct floor *floor = child->floor;
	const int types = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET |
			  CLONE_NEWCGROUP;
	const char *const argv[] = { floor->program, NULL }, *const envp[] = { NULL };
	long r = TRY(floor, "join", CALL(SYS_setns, child->fds[FD_SANDBOX], types));

	if (r >= 0)
		r = CALL(SYS_dup3, child->fds[FD_OUTPUT], 1, 0);
	if (r >= 0)
		r = CALL(SYS_dup3, child->fds[FD_ERROR], 2, 0);
	if (r >= 0)
		r = CALL(SYS_setsid);
	if (r >= 0)
		r = CALL(SYS_setns, child->fds[FD_SANDBOX], CLONE_NEWUSER);
	if (r >= 0)
		r = credentials_set(floor);
	if (r >= 0)
		r = TRY(floor, "/root", CALL(SYS_chdir, (long)"/root"));
	if (r >= 0)
		r = CALL(SYS_close_range, 3, ~0u, 0);
	if (r < 0)
		return r;
	return TRY(floor, floor->program,
		   CALL(SYS_execve, (long)floor->program, (long)argv, (long)envp));
}

/* Whether anybody is left in the leaf of the exec before: the launcher's look. */
static long leaf_open(struct floor *floor)
{
	char path[FLOOR_PATH_BYTES * 2], text[256];
	size_t bytes = strlen(floor->leaf);
	long r, fd;

	memcpy(path, floor->leaf, bytes);
	memcpy(path + bytes, "/cgroup.events", sizeof("/cgroup.events"));
	fd = TRY(floor, "leaf",
		 CALL(SYS_openat, FLOOR_FD_CGROUP, (long)path, O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return fd;
	r = CALL(SYS_read, fd, (long)text, sizeof(text) - 1);
	(void)CALL(SYS_close, fd); /* only read */
	if (r < 0)
		return r;
	text[r] = '\0';
	if (!strstr(text, "populated 0"))
		return -EBUSY;
	return CALL(SYS_openat, FLOOR_FD_CGROUP, (long)floor->leaf,
		    O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static long program_start(struct floor *floor, int init, const int *writers, int *ret_pid)
{
	struct child child = { .floor = floor, .run = program_run };
	long back, leaf, r, sandbox;

	sandbox = TRY(floor, "pidfd_open", CALL(SYS_pidfd_open, init, 0));
	if (sandbox < 0)
		return sandbox;
	child.fds[FD_SANDBOX] = (int)sandbox;
	child.fds[FD_OUTPUT] = writers[0];
	child.fds[FD_ERROR] = writers[1];
	leaf = r = leaf_open(floor);
	if (leaf >= 0) {
		r = TRY(floor, "pid namespace", CALL(SYS_setns, sandbox, CLONE_NEWPID));
		if (r >= 0) {
			r = child_spawn(&child, 0, (int)leaf, ret_pid);
			back = CALL(SYS_setns, FLOOR_FD_OWN_PID, CLONE_NEWPID);
			r = back < 0 ? back : r;
		}
		(void)CALL(SYS_close, leaf); /* the child is in it */
	}
	(void)CALL(SYS_close, sandbox); /* nothing of a sandbox is kept */
	(void)CALL(SYS_close, writers[0]);
	(void)CALL(SYS_close, writers[1]);
	return r;
}

static long reap(struct floor *floor, int pid, int *ret_status)
{
	siginfo_t info = { 0 };
	long r = TRY(floor, "wait", CALL(SYS_waitid, P_PID, pid, (long)&info, WEXITED | __WALL, 0));

	*ret_status = info.si_code == CLD_EXITED ? info.si_status : 256 + info.si_status;
	return r;
}

long floor_exec(struct floor *floor, const struct floor_sandbox *sandbox)
{
	int out[2], err[2], pid = 0, status = -1;
	char byte;
	long r;

	r = TRY(floor, "pipe2", CALL(SYS_pipe2, (long)out, O_CLOEXEC));
	if (r >= 0)
		r = CALL(SYS_pipe2, (long)err, O_CLOEXEC);
	if (r < 0)
		return r;
	r = program_start(floor, sandbox->pid, (const int[2]){ out[1], err[1] }, &pid);
	if (r < 0)
		return r;
	(void)CALL(SYS_read, out[0], (long)&byte, 1); /* until the program and all it left end */
	(void)CALL(SYS_read, err[0], (long)&byte, 1);
	(void)CALL(SYS_close, out[0]);
	(void)CALL(SYS_close, err[0]);
	r = reap(floor, pid, &status);
	if (r >= 0 && status)
		r = TRY(floor, "exit status", -ECHILD);
	return r;
}

/* ---- the end ---- */

static long untouched_prove(struct floor *floor)
{
	struct statfs usage;
	struct statx upper;
	char path[FLOOR_PATH_BYTES + 8];
	size_t bytes = strlen(floor->slot_path);
	long r, up;

	memcpy(path, floor->slot_path, bytes);
	memcpy(path + bytes, "/up", sizeof("/up"));
	up = TRY(floor, "untouched",
		 CALL(SYS_openat, FLOOR_FD_VAULT_ROOT, (long)path + 1,
		      O_PATH | O_CLOEXEC | O_NOFOLLOW));
	if (up < 0)
		return up;
	r = CALL(SYS_statx, up, (long)"u", AT_SYMLINK_NOFOLLOW, STATX_CTIME, (long)&upper);
	if (r >= 0)
		r = CALL(SYS_fstatfs, up, (long)&usage);
	(void)CALL(SYS_close, up); /* only looked at */
	if (r < 0)
		return r;
	return upper.stx_ctime.tv_sec == floor->upper_ctime.tv_sec &&
			       upper.stx_ctime.tv_nsec == floor->upper_ctime.tv_nsec &&
			       (uint64_t)usage.f_ffree == floor->free_inodes &&
			       (uint64_t)usage.f_bfree == floor->free_blocks ?
		       0 :
		       -EUCLEAN;
}

long floor_destroy(struct floor *floor, const struct floor_sandbox *sandbox)
{
	int status;
	long r = TRY(floor, "kill", CALL(SYS_kill, sandbox->pid, SIGKILL));

	if (r >= 0)
		r = reap(floor, sandbox->pid, &status);
	return r < 0 ? r : untouched_prove(floor);
}
