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

int confine_process(int scratch_fd, int images_fd)
{
	const uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
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
	/* While their descriptors are of the mount namespace that we are in. */
	auto_close int scratch = tree_clone(scratch_fd, "", attributes);
	auto_close int images = tree_clone(images_fd, "", attributes);
	if (scratch < 0 || images < 0)
		return scratch < 0 ? scratch : images;
	(void)signal(SIGXFSZ, SIG_IGN); /* EFBIG is told */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)setpriority(PRIO_PROCESS, 0, 10); /* sandboxes first */
	umask(0);
	if (setgroups(0, NULL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
		return -errno;
	return root_change(scratch, images);
}

/* ---- system calls ---- */

enum { UNPACK = 1, SEAL = 2, BOTH = 3 };

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
	/* files */
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
	{ SCMP_SYS(unlinkat), BOTH },
	{ SCMP_SYS(getdents64), SEAL },
	/* making blobs, one name for what is whole */
	{ SCMP_SYS(mkdirat), SEAL },
	{ SCMP_SYS(linkat), SEAL },
	{ SCMP_SYS(renameat), SEAL },
	{ SCMP_SYS(renameat2), SEAL },
	{ SCMP_SYS(faccessat), SEAL },
	{ SCMP_SYS(faccessat2), SEAL },
	{ SCMP_SYS(flock), SEAL },
	{ SCMP_SYS(fsync), SEAL },
	{ SCMP_SYS(fdatasync), SEAL },
	{ SCMP_SYS(sync_file_range), SEAL },
	{ SCMP_SYS(fallocate), SEAL },
	{ SCMP_SYS(fadvise64), SEAL },
	{ SCMP_SYS(copy_file_range), SEAL },
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
	r = capabilities_keep(0);
	return r < 0 ? r : calls_keep(UNPACK);
}

/* A file without a name gets one by its descriptor: that is what DAC_READ_SEARCH is for. */
int confine_sealer(pid_t parent)
{
	int r = follow_parent(parent);

	if (r >= 0)
		r = capabilities_keep(CAPABILITY(DAC_OVERRIDE) | CAPABILITY(DAC_READ_SEARCH));
	return r < 0 ? r : calls_keep(SEAL);
}
