/*
 * What the program's processes may do. Called once each, before hostile bytes are touched.
 *
 * All of it: a root of its own (system programs read-only, the import's scratch), no network, no
 * privileges by exec, limits. The unpacker: only its folder, the capabilities to set owners, modes
 * and file capabilities, and the system calls to make a tree. mkfs.erofs: reading the tree.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
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
#include "engine/base/cleanup.h"

#define CAPABILITY(name) (1ull << CAP_##name)

enum {
	CPU_S_MAX = 6 * 3600,
	FILES_MAX = 512,
	MEMORY_BYTES_MAX = 2000 << 20,
};

/* ---- a root of its own ---- */

static const char *const system_folders[] = { "usr", "lib", "lib64", "bin", "sbin" };

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

/* In the new root, which is the working directory. A link stays a link: /lib is one to usr/lib. */
static int system_hang(const char *name)
{
	char path[16], target[64];
	struct stat st;
	ssize_t bytes;

	(void)snprintf(path, sizeof path, "/%s", name);
	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISLNK(st.st_mode)) {
		bytes = readlink(path, target, sizeof target - 1);
		if (bytes < 0)
			return -errno;
		target[bytes] = 0;
		return symlink(target, name) < 0 ? -errno : 0;
	}
	auto_close int tree = tree_clone(AT_FDCWD, path,
					 MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	return tree < 0 ? tree : tree_hang(tree, name);
}

static int root_change(int scratch)
{
	int r = 0;

	/* Over /proc, which every machine has and nothing here needs. */
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", "/proc", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=0755") < 0 ||
	    chdir("/proc") < 0)
		return -errno;
	for (size_t i = 0; r >= 0 && i < sizeof system_folders / sizeof *system_folders; i++)
		r = system_hang(system_folders[i]);
	if (r >= 0)
		r = tree_hang(scratch, "scratch");
	if (r < 0)
		return r;
	if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
	    chdir("/") < 0 ||
	    mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) <
		    0)
		return -errno;
	return 0;
}

/* ---- capabilities, limits ---- */

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

int confine_process(int scratch_fd)
{
	int r = limit(RLIMIT_CPU, CPU_S_MAX);

	if (r >= 0)
		r = limit(RLIMIT_NOFILE, FILES_MAX);
	if (r >= 0)
		r = limit(RLIMIT_CORE, 0);
#ifndef __SANITIZE_ADDRESS__
	if (r >= 0)
		r = limit(RLIMIT_AS, MEMORY_BYTES_MAX);
#endif
	if (r < 0)
		return r;
	/* While its descriptor is of the mount namespace that we are in. */
	auto_close int scratch = tree_clone(
		scratch_fd, "", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (scratch < 0)
		return scratch;
	(void)signal(SIGXFSZ, SIG_IGN); /* EFBIG is told */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)setpriority(PRIO_PROCESS, 0, 10); /* sandboxes first */
	umask(0);
	if (setgroups(0, NULL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
		return -errno;
	return root_change(scratch);
}

/* ---- system calls ---- */

enum { UNPACK = 1, MKFS = 2, BOTH = 3 };

static const struct {
	int call;
	uint32_t who;
} allowed[] = {
	/* memory, time, the end */
	{ SCMP_SYS(brk), BOTH },
	{ SCMP_SYS(mmap), BOTH },
	{ SCMP_SYS(munmap), BOTH },
	{ SCMP_SYS(mremap), BOTH },
	{ SCMP_SYS(mprotect), BOTH },
	{ SCMP_SYS(madvise), BOTH },
	{ SCMP_SYS(futex), BOTH },
	{ SCMP_SYS(clock_gettime), BOTH },
	{ SCMP_SYS(gettimeofday), BOTH },
	{ SCMP_SYS(time), BOTH },
	{ SCMP_SYS(getrandom), BOTH },
	{ SCMP_SYS(rt_sigaction), BOTH },
	{ SCMP_SYS(rt_sigprocmask), BOTH },
	{ SCMP_SYS(rt_sigreturn), BOTH },
	{ SCMP_SYS(sigaltstack), BOTH },
	{ SCMP_SYS(restart_syscall), BOTH },
	{ SCMP_SYS(sched_yield), BOTH },
	{ SCMP_SYS(exit), BOTH },
	{ SCMP_SYS(exit_group), BOTH },
	/* descriptors */
	{ SCMP_SYS(read), BOTH },
	{ SCMP_SYS(pread64), BOTH },
	{ SCMP_SYS(readv), BOTH },
	{ SCMP_SYS(write), BOTH },
	{ SCMP_SYS(pwrite64), BOTH },
	{ SCMP_SYS(writev), BOTH },
	{ SCMP_SYS(close), BOTH },
	{ SCMP_SYS(lseek), BOTH },
	{ SCMP_SYS(fcntl), BOTH },
	{ SCMP_SYS(fstat), BOTH },
	{ SCMP_SYS(fstatfs), BOTH },
	{ SCMP_SYS(ftruncate), BOTH },
	{ SCMP_SYS(newfstatat), BOTH },
	{ SCMP_SYS(openat), BOTH },
	{ SCMP_SYS(readlinkat), BOTH },
	{ SCMP_SYS(getdents64), BOTH },
	{ SCMP_SYS(fsync), BOTH },
	/* making a tree */
	{ SCMP_SYS(openat2), UNPACK },
	{ SCMP_SYS(mkdirat), UNPACK },
	{ SCMP_SYS(mknodat), UNPACK },
	{ SCMP_SYS(linkat), UNPACK },
	{ SCMP_SYS(symlinkat), UNPACK },
	{ SCMP_SYS(unlinkat), UNPACK },
	{ SCMP_SYS(fchmod), UNPACK },
	{ SCMP_SYS(fchmodat), UNPACK },
	{ SCMP_SYS(fchown), UNPACK },
	{ SCMP_SYS(fchownat), UNPACK },
	{ SCMP_SYS(utimensat), UNPACK },
	{ SCMP_SYS(fsetxattr), UNPACK },
	/* mkfs.erofs: a program that starts, reads a tree and writes a file */
	{ SCMP_SYS(execve), MKFS },
	{ SCMP_SYS(access), MKFS },
	{ SCMP_SYS(faccessat), MKFS },
	{ SCMP_SYS(faccessat2), MKFS },
	{ SCMP_SYS(arch_prctl), MKFS },
	{ SCMP_SYS(set_tid_address), MKFS },
	{ SCMP_SYS(set_robust_list), MKFS },
	{ SCMP_SYS(rseq), MKFS },
	{ SCMP_SYS(prlimit64), MKFS },
	{ SCMP_SYS(stat), MKFS },
	{ SCMP_SYS(lstat), MKFS },
	{ SCMP_SYS(statx), MKFS },
	{ SCMP_SYS(open), MKFS },
	{ SCMP_SYS(readlink), MKFS },
	{ SCMP_SYS(llistxattr), MKFS },
	{ SCMP_SYS(lgetxattr), MKFS },
	{ SCMP_SYS(listxattr), MKFS },
	{ SCMP_SYS(getxattr), MKFS },
	{ SCMP_SYS(getcwd), MKFS },
	{ SCMP_SYS(fallocate), MKFS },
	{ SCMP_SYS(copy_file_range), MKFS },
	{ SCMP_SYS(sendfile), MKFS },
	{ SCMP_SYS(unlink), MKFS },
	{ SCMP_SYS(rename), MKFS },
	{ SCMP_SYS(umask), MKFS },
	{ SCMP_SYS(getuid), MKFS },
	{ SCMP_SYS(geteuid), MKFS },
	{ SCMP_SYS(getgid), MKFS },
	{ SCMP_SYS(getegid), MKFS },
	{ SCMP_SYS(getpid), MKFS },
	{ SCMP_SYS(getppid), MKFS },
	{ SCMP_SYS(gettid), MKFS },
	{ SCMP_SYS(statfs), MKFS },
	{ SCMP_SYS(uname), MKFS },
	{ SCMP_SYS(sysinfo), MKFS },
	{ SCMP_SYS(sched_getaffinity), MKFS },
	{ SCMP_SYS(ioctl), MKFS },
};

static int calls_keep(uint32_t who)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int r = filter ? 0 : -ENOMEM;

	for (size_t i = 0; r >= 0 && i < sizeof allowed / sizeof *allowed; i++)
		if (allowed[i].who & who)
			r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i].call, 0);
	if (r >= 0)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r;
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
	r = capabilities_keep(CAPABILITY(CHOWN) | CAPABILITY(DAC_OVERRIDE) | CAPABILITY(FOWNER) |
			      CAPABILITY(FSETID) | CAPABILITY(SETFCAP));
	return r < 0 ? r : calls_keep(UNPACK);
}

int confine_mkfs(pid_t parent)
{
	int r = follow_parent(parent);

	if (r >= 0)
		r = capabilities_keep(CAPABILITY(DAC_OVERRIDE));
	return r < 0 ? r : calls_keep(MKFS);
}
