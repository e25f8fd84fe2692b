/*
 * Attacks at the kernel's own machinery: what capabilities would open, devices, BPF, a filter that
 * a tracer might get round, and the layer that all sandboxes share. Called by attack.c. Everything
 * that works is said, one line each.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostile/sandbox/attack.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void works(long result, const char *what)
{
	if (result >= 0)
		printf("%s works\n", what);
}

/* ---- E43: capabilities ---- */

/* What is not in the set cannot be raised, become ambient, or come with a program. */
static void capabilities_raise(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { { ~0u, ~0u, ~0u }, { ~0u, ~0u, ~0u } };
	static const int dropped[] = {
		CAP_SYS_ADMIN,	  CAP_SYS_MODULE,  CAP_DAC_READ_SEARCH,
		CAP_NET_ADMIN,	  CAP_NET_RAW,	   CAP_SYS_PTRACE,
		CAP_SYS_RAWIO,	  CAP_SYS_TIME,	   CAP_SYS_BOOT,
		CAP_SYS_RESOURCE, CAP_MKNOD,	   CAP_IPC_LOCK,
		CAP_SYS_NICE,	  CAP_SYSLOG,	   CAP_BPF,
		CAP_PERFMON,	  CAP_AUDIT_WRITE,
	};

	works(syscall(SYS_capset, &header, data), "every capability");
	for (unsigned i = 0; i < COUNT(dropped); i++) {
		struct __user_cap_data_struct now[2] = { 0 };
		const unsigned at = (unsigned)dropped[i] / 32;

		(void)syscall(SYS_capget, &header, now);
		now[at].effective |= 1u << dropped[i] % 32;
		now[at].permitted |= 1u << dropped[i] % 32;
		if (syscall(SYS_capset, &header, now) == 0)
			printf("capability %d is raised\n", dropped[i]);
		if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, dropped[i], 0, 0) == 0)
			printf("capability %d is ambient\n", dropped[i]);
	}
	works(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), "taking no_new_privs back");
}

/* One use of each, as root inside. */
static void capabilities_use(void)
{
	struct ifreq interface = { .ifr_name = "lo", .ifr_flags = 0 };
	struct rlimit files;
	struct timespec time = { 0 };

	(void)getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_max++;
	works(setrlimit(RLIMIT_NOFILE, &files), "a limit above the hard one");
	works(setpriority(PRIO_PROCESS, 0, -5), "a better priority");
	works(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &(struct sched_param){ 1 }),
	      "real-time scheduling");
	works(ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &interface), "an interface down");
	works(socket(AF_INET, SOCK_RAW, 1), "a raw socket");
	works(socket(AF_PACKET, SOCK_RAW, 0), "a packet socket");
	works(syscall(SYS_clock_settime, 0, &time), "setting the clock");
	works(syscall(SYS_init_module, "x", 1, ""), "loading a module");
	works(syscall(SYS_finit_module, 0, "", 0), "loading a module from a file");
	works(syscall(SYS_open_by_handle_at, AT_FDCWD, "", 0), "opening by handle");
	works(syscall(SYS_ioperm, 0x70, 1, 1), "ports of the machine");
	works(syscall(SYS_process_madvise, 1, NULL, 0, 0, 0), "advice to PID 1");
	works(syscall(SYS_kcmp, 1, getpid(), 0, 0, 0), "comparing with PID 1");
	works(syscall(SYS_syslog, 3, "", 1), "the kernel's log");
	works(sethostname("mine", 4), "another host name");
	works(chroot("/proc/1/root"), "the root of PID 1");
}

void attack_capabilities(const char *argument)
{
	(void)argument;
	capabilities_raise();
	capabilities_use();
	say("done");
}

/* ---- E42: devices ---- */

static int is_ours(const struct stat *st)
{
	static const unsigned minors[] = { 3, 5, 7, 8, 9 }; /* null, zero, full, random, urandom */

	if (!S_ISCHR(st->st_mode))
		return 0;
	for (unsigned i = 0; i < COUNT(minors); i++)
		if (st->st_rdev == makedev(1, minors[i]))
			return 1;
	return st->st_rdev == makedev(5, 0) || st->st_rdev == makedev(5, 2) ||
	       major(st->st_rdev) == 136;
}

static void devices_below(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	char path[1024];
	struct stat st;

	while (dir && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		(void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
		if (lstat(path, &st) < 0)
			continue;
		if ((S_ISBLK(st.st_mode) || S_ISCHR(st.st_mode)) && !is_ours(&st))
			printf("%s is a device\n", path);
		if (S_ISDIR(st.st_mode) && strcmp(path, "/proc") != 0)
			devices_below(path);
	}
	if (dir)
		closedir(dir);
}

void attack_devices(const char *argument)
{
	static const struct {
		unsigned major, minor, mode;
	} nodes[] = {
		{ 1, 1, S_IFCHR },    { 1, 2, S_IFCHR },    { 1, 4, S_IFCHR },
		{ 1, 11, S_IFCHR },   { 1, 3, S_IFCHR },    { 10, 232, S_IFCHR },
		{ 10, 229, S_IFCHR }, { 10, 237, S_IFCHR }, { 10, 238, S_IFCHR },
		{ 10, 200, S_IFCHR }, { 10, 126, S_IFCHR }, { 4, 64, S_IFCHR },
		{ 7, 0, S_IFBLK },    { 8, 0, S_IFBLK },    { 254, 0, S_IFBLK },
		{ 259, 0, S_IFBLK },
	};
	char path[64];

	(void)argument;
	devices_below("");
	for (unsigned i = 0; i < COUNT(nodes); i++)
		for (int place = 0; place < 2; place++) {
			(void)snprintf(path, sizeof path, "%s/node%u", place ? "/dev" : "/tmp", i);
			if (mknod(path, nodes[i].mode | 0666,
				  makedev(nodes[i].major, nodes[i].minor)) == 0)
				printf("made device %u:%u\n", nodes[i].major, nodes[i].minor);
		}
	say("done");
}

/* ---- E44: BPF, perf, tracing ---- */

void attack_bpf(const char *argument)
{
	static const char *const places[] = { "/sys/fs/bpf",	   "/sys/kernel/tracing",
					      "/sys/kernel/debug", "/sys/fs/cgroup",
					      "/run/dsec",	   "/sys/kernel/btf/vmlinux" };
	char attributes[128], path[] = "/sys/fs/bpf/dsec";

	(void)argument;
	for (int command = 0; command < 48; command++) {
		memset(attributes, 0, sizeof attributes);
		if (syscall(SYS_bpf, command, attributes, sizeof attributes) >= 0 || errno != EPERM)
			printf("bpf command %d: %s\n", command, strerrorname_np(errno));
	}
	memcpy(attributes, &(char *){ path }, sizeof(char *));
	works(syscall(SYS_bpf, 7 /* BPF_OBJ_GET */, attributes, 16), "opening a pin");
	for (int type = 0; type < 6; type++) {
		memset(attributes, 0, sizeof attributes);
		attributes[0] = (char)type;
		attributes[4] = 64;
		works(syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0), "perf");
		works(syscall(SYS_perf_event_open, attributes, -1, 0, -1, 0), "perf of a CPU");
	}
	for (unsigned i = 0; i < COUNT(places); i++)
		if (access(places[i], F_OK) == 0)
			printf("%s is there\n", places[i]);
	say("done");
}

/* ---- E46: a tracer and the filter ---- */

#ifdef __x86_64__
/* What the child gets for a call that its tracer puts in the place of getppid(). */
static long call_swapped(pid_t child, unsigned long call, const unsigned long arguments[2])
{
	struct user_regs_struct registers;
	int status;

	for (int stop = 0; stop < 2; stop++) {
		if (ptrace(PTRACE_SYSCALL, child, 0, 0) < 0 || waitpid(child, &status, 0) < 0 ||
		    !WIFSTOPPED(status))
			return 0;
		(void)ptrace(PTRACE_GETREGS, child, 0, &registers);
		if (stop == 1)
			break;
		registers.orig_rax = call;
		registers.rdi = arguments[0];
		registers.rsi = arguments[1];
		(void)ptrace(PTRACE_SETREGS, child, 0, &registers);
	}
	return (long)registers.rax;
}

void attack_filter(const char *argument)
{
	static const struct {
		const char *name;
		unsigned long call, arguments[2];
		long error;
	} calls[] = {
		{ "unshare", SYS_unshare, { CLONE_NEWUSER, 0 }, -EPERM },
		{ "keyctl", SYS_keyctl, { 0, (unsigned long)-3 }, -ENOSYS },
		{ "io_uring_setup", SYS_io_uring_setup, { 1, 0 }, -ENOSYS },
		{ "bpf", SYS_bpf, { 0, 0 }, -EPERM },
		{ "userfaultfd", SYS_userfaultfd, { 1, 0 }, -EPERM },
		{ "setns", SYS_setns, { 0, CLONE_NEWNS }, -EPERM },
		{ "x32 getpid", 0x40000000ul | SYS_getpid, { 0, 0 }, -ENOSYS },
	};
	pid_t child = fork();

	(void)argument;
	if (child == 0) {
		(void)ptrace(PTRACE_TRACEME, 0, 0, 0);
		(void)raise(SIGSTOP);
		for (;;)
			(void)syscall(SYS_getppid);
	}
	(void)waitpid(child, NULL, 0);
	for (unsigned i = 0; i < COUNT(calls); i++) {
		long r = call_swapped(child, calls[i].call, calls[i].arguments);

		if (r != calls[i].error)
			printf("%s gave %ld\n", calls[i].name, r);
	}
	works(ptrace(PTRACE_SETOPTIONS, child, 0, 1 << 21 /* SUSPEND_SECCOMP */),
	      "suspending the filter");
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	works(open("/dev/userfaultfd", O_RDWR), "/dev/userfaultfd");
	say("done");
}
#else
void attack_filter(const char *argument)
{
	(void)argument;
	say("done");
}
#endif

/* ---- E51: the shared layer ---- */

/* argument: a file of the image. Its bytes change here, and here only. */
void attack_layer(const char *argument)
{
	static const char mark[] = "overwritten";
	int reader = open(argument, O_RDONLY), fd;
	char *shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, reader, 0), *own;

	/* A descriptor of the layer itself, from before anything was copied. */
	if (mprotect(shared, 4096, PROT_READ | PROT_WRITE) == 0)
		say("the layer is writable through a mapping");
	works(syscall(SYS_mount, NULL, "/", NULL, 32 | 4096, NULL, 0), "remounting");
	works(ftruncate(reader, 0), "truncating the layer");
	fd = open("/proc/self/fd/3", O_RDWR);
	own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (own == MAP_FAILED) {
		say("it cannot be written to even here");
		return;
	}
	memcpy(own, mark, sizeof mark - 1);
	(void)msync(own, 4096, MS_SYNC);
	if (!memcmp(shared, mark, sizeof mark - 1))
		say("the layer has changed");
	close(fd);
	fd = open(argument, O_RDONLY);
	own = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	say(!memcmp(own, mark, sizeof mark - 1) ? "done" : "it did not change here");
}
