/*
 * What the kernel lets a program in a sandbox ask for. Arguments are such that a call which is
 * wrongly allowed does nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/entry_32.h"
#include "tests/root/launch/probe.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct expected {
	const char *name;
	long number;
	int error;
};

static const struct expected refused_calls[] = {
	{ "keyctl", SYS_keyctl, ENOSYS },
	{ "add_key", SYS_add_key, ENOSYS },
	{ "request_key", SYS_request_key, ENOSYS },
	{ "io_uring_setup", SYS_io_uring_setup, ENOSYS },
	{ "io_uring_enter", SYS_io_uring_enter, ENOSYS },
	{ "io_uring_register", SYS_io_uring_register, ENOSYS },
	{ "bpf", SYS_bpf, EPERM },
	{ "perf_event_open", SYS_perf_event_open, EPERM },
	{ "userfaultfd", SYS_userfaultfd, EPERM },
	{ "kexec_load", SYS_kexec_load, EPERM },
	{ "kexec_file_load", SYS_kexec_file_load, EPERM },
	{ "init_module", SYS_init_module, EPERM },
	{ "finit_module", SYS_finit_module, EPERM },
	{ "delete_module", SYS_delete_module, EPERM },
	{ "syslog", SYS_syslog, EPERM },
	{ "modify_ldt", SYS_modify_ldt, EPERM },
	{ "iopl", SYS_iopl, EPERM },
	{ "ioperm", SYS_ioperm, EPERM },
	{ "fanotify_init", SYS_fanotify_init, EPERM },
	{ "open_by_handle_at", SYS_open_by_handle_at, EPERM },
	{ "name_to_handle_at", SYS_name_to_handle_at, EPERM },
	{ "quotactl", SYS_quotactl, EPERM },
	{ "quotactl_fd", SYS_quotactl_fd, EPERM },
	{ "swapon", SYS_swapon, EPERM },
	{ "swapoff", SYS_swapoff, EPERM },
	{ "acct", SYS_acct, EPERM },
	{ "reboot", SYS_reboot, EPERM },
	{ "settimeofday", SYS_settimeofday, EPERM },
	{ "clock_settime", SYS_clock_settime, EPERM },
	{ "clock_adjtime", SYS_clock_adjtime, EPERM },
	{ "adjtimex", SYS_adjtimex, EPERM },
	{ "sethostname", SYS_sethostname, EPERM },
	{ "setdomainname", SYS_setdomainname, EPERM },
	{ "mbind", SYS_mbind, EPERM },
	{ "set_mempolicy", SYS_set_mempolicy, EPERM },
	{ "migrate_pages", SYS_migrate_pages, EPERM },
	{ "move_pages", SYS_move_pages, EPERM },
	{ "mount", SYS_mount, EPERM },
	{ "umount2", SYS_umount2, EPERM },
	{ "pivot_root", SYS_pivot_root, EPERM },
	{ "open_tree", SYS_open_tree, EPERM },
	{ "move_mount", SYS_move_mount, EPERM },
	{ "fsopen", SYS_fsopen, EPERM },
	{ "fsconfig", SYS_fsconfig, EPERM },
	{ "fsmount", SYS_fsmount, EPERM },
	{ "fspick", SYS_fspick, EPERM },
	{ "mount_setattr", SYS_mount_setattr, EPERM },
	{ "open_tree_attr", 467, EPERM },
	{ "setns", SYS_setns, EPERM },
	{ "clone3", SYS_clone3, ENOSYS },
};

static void namespaces_refused(void)
{
	static const unsigned long flags[] = { CLONE_NEWNS,  CLONE_NEWUTS, CLONE_NEWIPC,
					       CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWUSER,
					       0x02000000 /* CLONE_NEWCGROUP */ };

	for (unsigned i = 0; i < COUNT(flags); i++) {
		long r = syscall(SYS_clone, flags[i] | SIGCHLD, 0, 0, 0, 0);

		if (r == 0)
			_exit(0);
		refused("clone with a namespace flag", r, EPERM);
		refused("unshare", syscall(SYS_unshare, flags[i], 0, 0, 0, 0, 0), EPERM);
	}
	refused("unshare time", syscall(SYS_unshare, 0x80, 0, 0, 0, 0, 0), EPERM);
	allowed("unshare of files", syscall(SYS_unshare, CLONE_FILES | CLONE_FS, 0, 0, 0, 0, 0));
}

void probe_calls(const char *argument)
{
	(void)argument;
	/* Guesses at the secret are as good as none. */
	for (unsigned i = 0; i < COUNT(refused_calls); i++) {
		const struct expected *e = &refused_calls[i];

		refused(e->name, syscall(e->number, -1, -1, -1, -1, -1, 0), e->error);
		refused(e->name, syscall(e->number, -1, -1, -1, -1, -1, -1), e->error);
	}
	namespaces_refused();
	refused("prctl of core scheduling", prctl(62, 0, 0, 0, 0), EPERM);
	if (syscall(SYS_sync) != 0 || syscall(SYS_syncfs, -1) != 0)
		fail("sync: %s", strerrorname_np(errno));
	if (prctl(PR_GET_SECCOMP) != 2)
		fail("no filter");
}

/* The counterpart: outside a sandbox each of these reaches the kernel. */
void probe_plain_calls(const char *argument)
{
	char parameters[120] = { 0 };

	(void)argument;
	allowed("io_uring_setup", syscall(SYS_io_uring_setup, 1, parameters));
	allowed("keyctl", syscall(SYS_keyctl, 0, -3, 1));
	allowed("unshare", syscall(SYS_unshare, CLONE_NEWUTS, 0, 0, 0, 0, 0));
	allowed("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
	allowed("vsock or netlink", socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG));
	refused("clone3", syscall(SYS_clone3, NULL, 0, 0, 0, 0, 0), EINVAL);
	/* A root that cannot be exported has handles to compare, at least. */
	refused("name_to_handle_at",
		syscall(SYS_name_to_handle_at, AT_FDCWD, "/", 0, 0, 0x200 /* AT_HANDLE_FID */),
		EFAULT);
	refused("swapon", syscall(SYS_swapon, "/nowhere", 0), ENOENT);
	refused("syncfs", syscall(SYS_syncfs, -1), EBADF);
}

void probe_sockets(const char *argument)
{
	const uint64_t junk = 1ull << 32;

	(void)argument;
	allowed("unix", socket(AF_UNIX, SOCK_STREAM, 0));
	allowed("inet", socket(AF_INET, SOCK_STREAM, 0));
	allowed("inet6", socket(AF_INET6, SOCK_DGRAM, 0));
	allowed("rtnetlink", socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
	for (long family = 0; family < AF_MAX + 3; family++) {
		if (family == AF_UNIX || family == AF_INET || family == AF_INET6 ||
		    family == AF_NETLINK)
			continue;
		refused("socket", syscall(SYS_socket, family, SOCK_DGRAM, 0), EAFNOSUPPORT);
		refused("socket with junk", syscall(SYS_socket, family | junk, SOCK_DGRAM, 0),
			EAFNOSUPPORT);
	}
	for (long protocol = 1; protocol < 32; protocol++)
		refused("netlink", socket(AF_NETLINK, SOCK_RAW, (int)protocol), EAFNOSUPPORT);
	refused("raw", socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, 1), EPERM);
	refused("raw6", socket(AF_INET6, SOCK_RAW, 58), EPERM);
	refused("packet", socket(AF_INET, SOCK_PACKET, 3), EPERM);
	refused("raw with junk", syscall(SYS_socket, AF_INET | junk, SOCK_RAW, 1), EPERM);
	refused("pair of inet", socketpair(AF_INET, SOCK_STREAM, 0, (int[2]){ 0 }), EAFNOSUPPORT);
	allowed("pair of unix", socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){ 0 }));
}

void probe_ioctls(const char *argument)
{
	static const unsigned long numbers[] = {
		0x5412,	    0x541c,	0xc0c0586d, 0xc0285881, 0x8004587d, 0xc0045877, 0xc0045878,
		0xc0185879, 0xc028660f, 0x800c6613, 0xc0506617, 0x40049409, 0x4020940d, 0xc0189436,
	};
	int fd = open("/tmp", O_RDONLY), value;

	(void)argument;
	for (unsigned i = 0; i < COUNT(numbers); i++) {
		refused("ioctl", syscall(SYS_ioctl, fd, numbers[i], 0), EPERM);
		refused("ioctl with junk", syscall(SYS_ioctl, fd, numbers[i] | 1ul << 40, 0),
			EPERM);
		refused("ioctl of another size",
			syscall(SYS_ioctl, fd, numbers[i] ^ 0x00010000ul, 0), EPERM);
	}
	refused("an ioctl that only does not fit", syscall(SYS_ioctl, fd, 0x5413, &value), ENOTTY);
	refused("FIEMAP", syscall(SYS_ioctl, fd, 0xc020660bul, 0), EOPNOTSUPP);
}

void probe_personality(const char *argument)
{
	const unsigned long standard = (unsigned long)syscall(SYS_personality, 0xffffffff);

	(void)argument;
	allowed("personality query", (long)standard);
	allowed("personality 0", syscall(SYS_personality, 0));
	allowed("personality ADDR_NO_RANDOMIZE", syscall(SYS_personality, 0x40000));
	for (unsigned bit = 0; bit < 32; bit++) {
		if (1u << bit == 0x40000)
			continue;
		refused("personality", syscall(SYS_personality, 1u << bit), EPERM);
		refused("personality", syscall(SYS_personality, 0x40000u | 1u << bit), EPERM);
		refused("personality", syscall(SYS_personality, 0xffffffffu & ~(1u << bit)), EPERM);
	}
	refused("personality", syscall(SYS_personality, 0xfffbffffu), EPERM);
	refused("personality", syscall(SYS_personality, 0x440000u | 1ul << 32), EPERM);
	allowed("personality 0", syscall(SYS_personality, 0));
}

/* The 32-bit entry: getpid is 20 there. */
void probe_foreign(const char *argument)
{
	long r = entry_32(20, 0, 0, 0);

	/* With an argument: outside, where the entry must work for this test to mean anything. */
	if (argument) {
		printf("%s\n", r == getpid() ? "the kernel has a 32-bit entry" : "no 32-bit entry");
		return;
	}
	if (r != -ENOSYS)
		fail("32-bit getpid gave %ld", r);
	r = entry_32(21, 0, 0, 0); /* mount */
	if (r != -ENOSYS)
		fail("32-bit mount gave %ld", r);
	refused("x32 getpid", syscall(0x40000000 | SYS_getpid), ENOSYS);
}

static double cost_ns(long number)
{
	enum { CALLS = 200000 };
	struct timespec start, end;
	double best = 1e9;

	for (unsigned round = 0; round < 5; round++) {
		double ns;

		clock_gettime(CLOCK_MONOTONIC, &start);
		for (unsigned i = 0; i < CALLS; i++)
			(void)syscall(number, -1, 0, 0);
		clock_gettime(CLOCK_MONOTONIC, &end);
		ns = ((double)(end.tv_sec - start.tv_sec) * 1e9 +
		      (double)(end.tv_nsec - start.tv_nsec)) /
		     CALLS;
		if (ns < best)
			best = ns;
	}
	return best;
}

void probe_call_cost(const char *argument)
{
	(void)argument;
	printf("getppid %.0f ns, close %.0f ns, ioctl %.0f ns, prctl %.0f ns, socket %.0f ns\n",
	       cost_ns(SYS_getppid), cost_ns(SYS_close), cost_ns(SYS_ioctl), cost_ns(SYS_prctl),
	       cost_ns(SYS_socket));
}
