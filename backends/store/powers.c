/*
 * Giving up powers. Called by the confinement of dsec-import, dsec-store and dsec-fetch. Must hold:
 * what a process of these may ask of the kernel stands here and nowhere else.
 */
#include "backends/store/powers.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	CPU_S_MAX = 6 * 3600,
	MEMORY_BYTES_MAX = 2000 << 20, /* of its control group, too: group.c */
};

/* ---- limits, capabilities ---- */

static int limit(int what, uint64_t most)
{
	const struct rlimit limit = { most, most };

	return setrlimit((__rlimit_resource_t)what, &limit) < 0 ? -errno : 0;
}

int powers_limit(void)
{
	int r = limit(RLIMIT_CPU, CPU_S_MAX);

	if (r >= 0)
		r = limit(RLIMIT_CORE, 0);
#ifndef __SANITIZE_ADDRESS__ /* its shadow is larger */
	if (r >= 0)
		r = limit(RLIMIT_AS, MEMORY_BYTES_MAX);
#endif
	if (r < 0)
		return r;
	(void)signal(SIGXFSZ, SIG_IGN); /* EFBIG is told */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)setpriority(PRIO_PROCESS, 0, 10); /* sandboxes first */
	umask(0);
	return 0;
}

int powers_keep_capabilities(uint64_t kept)
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

/* ---- system calls ---- */

enum {
	UNPACK = POWERS_UNPACKER,
	STORE = POWERS_STORE,
	MAKE = POWERS_SEALER | POWERS_STORE,
	IMPORT = POWERS_UNPACKER | POWERS_SEALER,
	FILES = UNPACK | MAKE,
	FETCH = POWERS_FETCHER,
	ALL = FILES | FETCH,
};

static const struct {
	int call;
	uint32_t who;
} allowed[] = {
	/* memory, time, the end */
	{ SCMP_SYS(brk), ALL },
	{ SCMP_SYS(mmap), ALL },
	{ SCMP_SYS(munmap), ALL },
	{ SCMP_SYS(mremap), ALL },
	{ SCMP_SYS(mprotect), ALL },
	{ SCMP_SYS(madvise), ALL },
	{ SCMP_SYS(futex), ALL },
	{ SCMP_SYS(clock_gettime), ALL },
	{ SCMP_SYS(gettimeofday), IMPORT },
	{ SCMP_SYS(time), IMPORT },
	{ SCMP_SYS(getrandom), ALL },
	{ SCMP_SYS(rt_sigaction), ALL },
	{ SCMP_SYS(rt_sigprocmask), ALL },
	{ SCMP_SYS(rt_sigreturn), ALL },
	{ SCMP_SYS(sigaltstack), ALL },
	{ SCMP_SYS(restart_syscall), ALL },
	{ SCMP_SYS(sched_yield), ALL },
	{ SCMP_SYS(sysinfo), STORE }, /* glibc's qsort() */
	{ SCMP_SYS(exit), ALL },
	{ SCMP_SYS(exit_group), ALL },
	/* open files, what is in a directory */
	{ SCMP_SYS(read), ALL },
	{ SCMP_SYS(pread64), FILES },
	{ SCMP_SYS(readv), ALL },
	{ SCMP_SYS(write), ALL },
	{ SCMP_SYS(pwrite64), FILES },
	{ SCMP_SYS(writev), ALL },
	{ SCMP_SYS(close), ALL },
	{ SCMP_SYS(lseek), FILES },
	{ SCMP_SYS(fcntl), ALL },
	{ SCMP_SYS(fstat), ALL },
	{ SCMP_SYS(fstatfs), FILES },
	{ SCMP_SYS(ftruncate), FILES },
	{ SCMP_SYS(newfstatat), ALL },
	{ SCMP_SYS(openat), FILES },
	{ SCMP_SYS(unlinkat), FILES },
	{ SCMP_SYS(openat2), STORE },
	{ SCMP_SYS(statx), STORE },
	{ SCMP_SYS(readlinkat), STORE },
	{ SCMP_SYS(flistxattr), STORE },
	{ SCMP_SYS(fgetxattr), STORE },
	/* making blobs, one name for what is whole */
	{ SCMP_SYS(getdents64), MAKE },
	{ SCMP_SYS(mkdirat), MAKE },
	{ SCMP_SYS(linkat), MAKE },
	{ SCMP_SYS(renameat), MAKE },
	{ SCMP_SYS(renameat2), MAKE },
	{ SCMP_SYS(faccessat), MAKE },
	{ SCMP_SYS(faccessat2), MAKE },
	{ SCMP_SYS(flock), MAKE },
	{ SCMP_SYS(fsync), MAKE },
	{ SCMP_SYS(fdatasync), MAKE },
	{ SCMP_SYS(sync_file_range), MAKE },
	{ SCMP_SYS(fallocate), MAKE },
	{ SCMP_SYS(fadvise64), MAKE },
	{ SCMP_SYS(copy_file_range), MAKE },
	{ SCMP_SYS(fchmod), STORE },
	/* connections; sockets: sockets_allow() */
	{ SCMP_SYS(connect), FETCH },
	{ SCMP_SYS(getsockopt), FETCH },
	{ SCMP_SYS(setsockopt), FETCH },
	{ SCMP_SYS(getsockname), FETCH },
	{ SCMP_SYS(getpeername), FETCH },
	{ SCMP_SYS(sendto), FETCH },
	{ SCMP_SYS(sendmsg), FETCH },
	{ SCMP_SYS(recvfrom), FETCH },
	{ SCMP_SYS(recvmsg), FETCH },
	{ SCMP_SYS(shutdown), FETCH },
	{ SCMP_SYS(poll), FETCH },
	{ SCMP_SYS(ppoll), FETCH },
	{ SCMP_SYS(pipe2), FETCH },
	{ SCMP_SYS(eventfd2), FETCH },
	{ SCMP_SYS(clock_nanosleep), FETCH },
	{ SCMP_SYS(getpid), FETCH },
	/* a thread's beginning: threads_allow() */
	{ SCMP_SYS(set_robust_list), MAKE },
	{ SCMP_SYS(rseq), MAKE },
};

/* Of the process's own, in its namespaces; clone3() hides its flags, so the C library asks anew. */
static int threads_allow(scmp_filter_ctx filter)
{
	const uint64_t shared = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
	const uint64_t apart = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
			       CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_PTRACE |
			       CLONE_VFORK;
	int r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);

	return r < 0 ? r :
		       seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
					SCMP_A0(SCMP_CMP_MASKED_EQ, shared | apart, shared));
}

/* Of the internet's families; libcurl wakes itself up by a pair. */
static int sockets_allow(scmp_filter_ctx filter)
{
	static const unsigned families[] = { AF_INET, AF_INET6 };
	int r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 0);

	for (size_t i = 0; r >= 0 && i < sizeof families / sizeof *families; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
				     SCMP_A0(SCMP_CMP_EQ, families[i], 0));
	return r;
}

int powers_keep_calls(enum powers whose)
{
	scmp_filter_ctx filter =
		seccomp_init(whose & IMPORT ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO(EPERM));
	int r = filter ? 0 : -ENOMEM;

	for (size_t i = 0; r >= 0 && i < sizeof allowed / sizeof *allowed; i++)
		if (allowed[i].who & whose)
			r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i].call, 0);
	if (r >= 0 && whose & MAKE)
		r = threads_allow(filter);
	if (r >= 0 && whose & FETCH)
		r = sockets_allow(filter);
	if (r >= 0)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r;
}
