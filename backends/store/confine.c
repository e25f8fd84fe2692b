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
#include <seccomp.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/image.h"
#include "engine/base/cleanup.h"

#define CAPABILITY(name) (1ull << CAP_##name)

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

enum {
	CPU_S_MAX = 6 * 3600,
	MEMORY_BYTES_MAX = 2000 << 20, /* of its control group, too: group.c */
};

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

static int capabilities_keep(uint64_t kept)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = {
		{ (uint32_t)kept, (uint32_t)kept, 0 },
		{ (uint32_t)(kept >> 32), (uint32_t)(kept >> 32), 0 },
	};

	for (unsigned long c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
		if (!(kept >> c & 1) && prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0)
			return -errno;
	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static int limit(int what, uint64_t most)
{
	const struct rlimit limit = { most, most };

	return setrlimit((__rlimit_resource_t)what, &limit) < 0 ? -errno : 0;
}

/* ---- system calls ---- */

static const int allowed[] = {
	/* memory, time, the end */
	SCMP_SYS(brk),
	SCMP_SYS(mmap),
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(mprotect),
	SCMP_SYS(madvise),
	SCMP_SYS(futex),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(getrandom),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(sigaltstack),
	SCMP_SYS(restart_syscall),
	SCMP_SYS(sched_yield),
	SCMP_SYS(sysinfo), /* glibc's qsort() */
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
	/* descriptors, directories */
	SCMP_SYS(read),
	SCMP_SYS(pread64),
	SCMP_SYS(readv),
	SCMP_SYS(write),
	SCMP_SYS(pwrite64),
	SCMP_SYS(writev),
	SCMP_SYS(close),
	SCMP_SYS(lseek),
	SCMP_SYS(fcntl),
	SCMP_SYS(fstat),
	SCMP_SYS(fstatfs),
	SCMP_SYS(newfstatat),
	SCMP_SYS(statx),
	SCMP_SYS(openat),
	SCMP_SYS(openat2),
	SCMP_SYS(faccessat),
	SCMP_SYS(faccessat2),
	SCMP_SYS(readlinkat),
	SCMP_SYS(getdents64),
	SCMP_SYS(flistxattr),
	SCMP_SYS(fgetxattr),
	SCMP_SYS(flock),
	/* making and removing what is beneath them */
	SCMP_SYS(ftruncate),
	SCMP_SYS(fallocate),
	SCMP_SYS(fsync),
	SCMP_SYS(fdatasync),
	SCMP_SYS(sync_file_range),
	SCMP_SYS(copy_file_range),
	SCMP_SYS(fchmod),
	SCMP_SYS(mkdirat),
	SCMP_SYS(linkat),
	SCMP_SYS(renameat),
	SCMP_SYS(renameat2),
	SCMP_SYS(unlinkat),
};

static int calls_keep(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = filter ? 0 : -ENOMEM;

	for (size_t i = 0; r >= 0 && i < sizeof allowed / sizeof *allowed; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
	if (r >= 0)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r;
}

/* ---- all of it ---- */

static int limits_set(void)
{
	int r = limit(RLIMIT_CPU, CPU_S_MAX);

	if (r >= 0)
		r = limit(RLIMIT_CORE, 0);
#ifndef SANITIZED /* its shadow is larger */
	if (r >= 0)
		r = limit(RLIMIT_AS, MEMORY_BYTES_MAX);
#endif
	return r;
}

int store_confine(const struct store_confine *wish)
{
	const uint64_t files = CAPABILITY(DAC_OVERRIDE) | CAPABILITY(DAC_READ_SEARCH) |
			       CAPABILITY(FOWNER) | CAPABILITY(LEASE);
	int r = limits_set();

	if (r < 0)
		return r;
	(void)signal(SIGXFSZ, SIG_IGN); /* EFBIG is told */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)setpriority(PRIO_PROCESS, 0, 10); /* sandboxes first */
	umask(0);
	if (setgroups(0, NULL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	r = places_cut(wish->uncut);
	if (r >= 0 && unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS |
			      (wish->network ? 0 : CLONE_NEWNET)) < 0)
		r = -errno;
	if (r >= 0)
		r = capabilities_keep(files | wish->capabilities);
	return r < 0 || wish->network ? r : calls_keep();
}
