/*
 * System calls as the kernel takes them: -errno back, no errno, no libc, nothing cached. A child
 * that shares the worker's memory may use these and nothing else; the worker uses them too, so that
 * every failure looks alike. Calls that take a `secret` carry it in the unused sixth argument,
 * which is what the filter of seccomp.c asks for.
 */
#pragma once

#include <fcntl.h>
#include <linux/sched.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>

#ifndef __x86_64__
#error "the launcher's way into a child is written for x86-64"
#endif

/* The worker's clock: no system call. */
static inline uint64_t kernel_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct kernel_call {
	long number;
	long argument[6];
};

static inline __attribute__((always_inline)) long kernel_call(struct kernel_call call)
{
	register long d __asm__("r10") = call.argument[3];
	register long e __asm__("r8") = call.argument[4];
	register long f __asm__("r9") = call.argument[5];
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(call.number), "D"(call.argument[0]), "S"(call.argument[1]),
			   "d"(call.argument[2]), "r"(d), "r"(e), "r"(f)
			 : "rcx", "r11", "memory");
	return r;
}

#define KERNEL_CALL(number, ...) kernel_call((struct kernel_call){ (number), { __VA_ARGS__ } })

static inline long kernel_openat(int dir_fd, const char *path, int flags, mode_t mode)
{
	return KERNEL_CALL(SYS_openat, dir_fd, (long)path, flags, mode);
}

static inline long kernel_ioctl(int fd, unsigned long command, long value, uint64_t secret)
{
	return KERNEL_CALL(SYS_ioctl, fd, (long)command, value, 0, 0, (long)secret);
}

static inline long kernel_close(int fd)
{
	return KERNEL_CALL(SYS_close, fd);
}

static inline long kernel_read(int fd, void *bytes, size_t size)
{
	return KERNEL_CALL(SYS_read, fd, (long)bytes, (long)size);
}

static inline long kernel_write(int fd, const void *bytes, size_t size)
{
	return KERNEL_CALL(SYS_write, fd, (long)bytes, (long)size);
}

static inline long kernel_fstat(int fd, struct stat *ret)
{
	return KERNEL_CALL(SYS_fstat, fd, (long)ret);
}

static inline long kernel_fstatat(int dir_fd, const char *path, struct stat *ret, int flags)
{
	return KERNEL_CALL(SYS_newfstatat, dir_fd, (long)path, (long)ret, flags);
}

static inline long kernel_mkdirat(int dir_fd, const char *path, mode_t mode)
{
	return KERNEL_CALL(SYS_mkdirat, dir_fd, (long)path, mode);
}

static inline long kernel_unlinkat(int dir_fd, const char *path, int flags)
{
	return KERNEL_CALL(SYS_unlinkat, dir_fd, (long)path, flags);
}

static inline long kernel_chdir(const char *path)
{
	return KERNEL_CALL(SYS_chdir, (long)path);
}

static inline long kernel_fchdir(int fd)
{
	return KERNEL_CALL(SYS_fchdir, fd);
}

static inline long kernel_chroot(const char *path)
{
	return KERNEL_CALL(SYS_chroot, (long)path);
}

static inline long kernel_dup3(int fd, int target, int flags)
{
	return KERNEL_CALL(SYS_dup3, fd, target, flags);
}

static inline long kernel_close_range(unsigned first, unsigned last, unsigned flags)
{
	return KERNEL_CALL(SYS_close_range, first, last, flags);
}

static inline long kernel_prctl(int option, unsigned long value)
{
	return KERNEL_CALL(SYS_prctl, option, (long)value);
}

static inline long kernel_pidfd_open(pid_t pid)
{
	return KERNEL_CALL(SYS_pidfd_open, pid, 0);
}

static inline long kernel_pidfd_kill(int pidfd, int signal)
{
	return KERNEL_CALL(SYS_pidfd_send_signal, pidfd, signal);
}

static inline long kernel_futex_wait(const uint32_t *word, uint32_t value,
				     const struct timespec *limit)
{
	return KERNEL_CALL(SYS_futex, (long)word, 0 /* FUTEX_WAIT, shared */, value, (long)limit);
}

static inline long kernel_setns(int fd, int types, uint64_t secret)
{
	return KERNEL_CALL(SYS_setns, fd, types, 0, 0, 0, secret);
}

static inline long kernel_unshare(int types, uint64_t secret)
{
	return KERNEL_CALL(SYS_unshare, types, 0, 0, 0, 0, secret);
}

static inline long kernel_umount(const char *path, int flags, uint64_t secret)
{
	return KERNEL_CALL(SYS_umount2, (long)path, flags, 0, 0, 0, secret);
}

static inline long kernel_pivot_root(const char *root, const char *old, uint64_t secret)
{
	return KERNEL_CALL(SYS_pivot_root, (long)root, (long)old, 0, 0, 0, secret);
}

static inline long kernel_fsopen(const char *type, uint64_t secret)
{
	return KERNEL_CALL(SYS_fsopen, (long)type, FSOPEN_CLOEXEC, 0, 0, 0, secret);
}

static inline long kernel_fsconfig_string(int fd, const char *key, const char *value,
					  uint64_t secret)
{
	return KERNEL_CALL(SYS_fsconfig, fd, FSCONFIG_SET_STRING, (long)key, (long)value, 0,
			   secret);
}

static inline long kernel_fsconfig_flag(int fd, const char *key, uint64_t secret)
{
	return KERNEL_CALL(SYS_fsconfig, fd, FSCONFIG_SET_FLAG, (long)key, 0, 0, secret);
}

static inline long kernel_fsconfig_fd(int fd, const char *key, int value, uint64_t secret)
{
	return KERNEL_CALL(SYS_fsconfig, fd, FSCONFIG_SET_FD, (long)key, 0, value, secret);
}

static inline long kernel_fsconfig_create(int fd, uint64_t secret)
{
	return KERNEL_CALL(SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, 0, 0, 0, secret);
}

static inline long kernel_fsmount(int fd, unsigned attributes, uint64_t secret)
{
	return KERNEL_CALL(SYS_fsmount, fd, FSMOUNT_CLOEXEC, attributes, 0, 0, secret);
}

static inline long kernel_open_tree(int dir_fd, const char *path, unsigned flags, uint64_t secret)
{
	return KERNEL_CALL(SYS_open_tree, dir_fd, (long)path, flags, 0, 0, secret);
}

/* A mount or detached tree, by descriptor, to where path leads from dir_fd ("": dir_fd itself). */
static inline long kernel_move_mount(int mount_fd, int dir_fd, const char *path, uint64_t secret)
{
	return KERNEL_CALL(SYS_move_mount, mount_fd, (long)"", dir_fd, (long)path,
			   MOVE_MOUNT_F_EMPTY_PATH | (*path ? 0 : MOVE_MOUNT_T_EMPTY_PATH), secret);
}

static inline long kernel_mount_setattr(int fd, struct mount_attr *attributes, uint64_t secret)
{
	return KERNEL_CALL(SYS_mount_setattr, fd, (long)"", AT_EMPTY_PATH, (long)attributes,
			   sizeof *attributes, secret);
}
