/*
 * Confining dsec-fetch. Called once, by its main(). Must hold: whoever takes it over by what a
 * server says has the socket to dsec-store, which believes nothing, and connections of his own.
 */
#include "engine/serve/fetch_confine.h"

#include <errno.h>
#include <grp.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/image.h"

enum { NOBODY = 65534, MEMORY_BYTES_MAX = 512 << 20, FILES_MAX = 32 };

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
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(getrandom),
	SCMP_SYS(getpid),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(sigaltstack),
	SCMP_SYS(restart_syscall),
	SCMP_SYS(sched_yield),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
	/* descriptors */
	SCMP_SYS(read),
	SCMP_SYS(readv),
	SCMP_SYS(write),
	SCMP_SYS(writev),
	SCMP_SYS(close),
	SCMP_SYS(fcntl),
	SCMP_SYS(fstat),
	SCMP_SYS(newfstatat),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(pipe2),
	SCMP_SYS(eventfd2),
	/* connections */
	SCMP_SYS(connect),
	SCMP_SYS(getsockopt),
	SCMP_SYS(setsockopt),
	SCMP_SYS(getsockname),
	SCMP_SYS(getpeername),
	SCMP_SYS(sendto),
	SCMP_SYS(sendmsg),
	SCMP_SYS(recvfrom),
	SCMP_SYS(recvmsg),
	SCMP_SYS(shutdown),
};

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

static int calls_keep(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = filter ? sockets_allow(filter) : -ENOMEM;

	for (size_t i = 0; r >= 0 && i < sizeof allowed / sizeof *allowed; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
	if (r >= 0)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r;
}

static int limit(int what, uint64_t most)
{
	const struct rlimit limit = { most, most };

	return setrlimit((__rlimit_resource_t)what, &limit) < 0 ? -errno : 0;
}

static int limits_set(void)
{
	int r = limit(RLIMIT_CORE, 0);

	if (r >= 0)
		r = limit(RLIMIT_NOFILE, FILES_MAX);
#ifndef __SANITIZE_ADDRESS__ /* its shadow is larger */
	if (r >= 0)
		r = limit(RLIMIT_AS, MEMORY_BYTES_MAX);
#endif
	return r;
}

int fetch_confine(void)
{
	int r = limits_set();

	if (r < 0)
		return r;
	(void)signal(SIGPIPE, SIG_IGN);
	(void)setpriority(PRIO_PROCESS, 0, 10); /* sandboxes first */
	/* The scratch is root's: a place where nobody finds anything. */
	if (fchdir(IMAGE_FD_SCRATCH) < 0 || chroot(".") < 0 || close(IMAGE_FD_SCRATCH) < 0 ||
	    setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	return calls_keep();
}
