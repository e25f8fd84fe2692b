/*
 * Attacks at what lies outside the sandbox or enters it: programs on their way in, sockets of the
 * host and of others, settings of the kernel, other processes. Called by attack.c. Everything that
 * works is said, one line each.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostile/sandbox/attack.h"

/* ---- programs on their way in ---- */

static int is_entering(int pid)
{
	char path[64], name[32] = "";
	int fd;

	(void)snprintf(path, sizeof path, "/proc/%d/comm", pid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return 0;
	(void)!read(fd, name, sizeof name - 1);
	close(fd);
	return strncmp(name, "dsec", 4) == 0 || pid == 1;
}

/* What is on its way is not what it will be: only what was done before counts. */
static void attack_one(int pid)
{
	static const char *const files[] = { "mem",  "environ", "root/etc", "cwd/.", "fd/0",
					     "fd/3", "auxv",	"exe",	    "stack", "syscall" };
	char path[64], bytes[64];
	struct iovec mine = { bytes, sizeof bytes }, its = { (void *)0x400000, sizeof bytes };
	int pidfd, fd;

	if (ptrace(PTRACE_SEIZE, pid, 0, 0) == 0 && is_entering(pid))
		printf("traced %d\n", pid);
	if (process_vm_readv(pid, &mine, 1, &its, 1, 0) >= 0 && is_entering(pid))
		printf("read %d\n", pid);
	if (process_vm_writev(pid, &mine, 1, &its, 1, 0) >= 0 && is_entering(pid))
		printf("wrote %d\n", pid);
	for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
		(void)snprintf(path, sizeof path, "/proc/%d/%s", pid, files[i]);
		fd = open(path, O_RDONLY);
		if (fd >= 0 && is_entering(pid))
			printf("opened %s\n", path);
		close(fd);
	}
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	for (fd = 0; pidfd >= 0 && fd < 9; fd++)
		if (syscall(SYS_pidfd_getfd, pidfd, fd, 0) >= 0 && is_entering(pid))
			printf("took descriptor %d of %d\n", fd, pid);
}

/* By a child, whose end lets go of what it traced. */
static void attack_apart(int pid)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		attack_one(pid);
		exit(0);
	}
	(void)waitpid(child, NULL, 0);
}

/* Every process that appears, until /tmp/stop is there. Says how many it met on their way in. */
void attack_entering(const char *argument)
{
	int met = 0;

	(void)argument;
	say("waiting");
	while (access("/tmp/stop", F_OK) < 0) {
		DIR *dir = opendir("/proc");
		struct dirent *entry;

		while (dir && (entry = readdir(dir))) {
			int pid = atoi(entry->d_name);

			if (pid < 1 || !is_entering(pid))
				continue;
			met += pid > 1;
			attack_apart(pid);
		}
		if (dir)
			closedir(dir);
	}
	printf("met %d\n", met);
}

/* Traces every process it can and keeps its hold on them, dead or alive. */
void trace_all(const char *argument)
{
	(void)argument;
	say("tracing");
	for (;;) {
		DIR *dir = opendir("/proc");
		struct dirent *entry;

		while (dir && (entry = readdir(dir)))
			if (atoi(entry->d_name) > 1 && atoi(entry->d_name) != getpid())
				(void)ptrace(PTRACE_SEIZE, atoi(entry->d_name), 0, 0);
		if (dir)
			closedir(dir);
	}
}

static void must(int works, const char *what)
{
	if (!works)
		printf("%s: %s\n", what, strerror(errno));
}

/* What a debugger does, to a child of one's own: that much must work. */
void debug_own(const char *argument)
{
	static volatile long marker = 0x5ec2e7;
	long value = 0;
	struct iovec mine = { &value, sizeof value }, its = { (void *)&marker, sizeof value };
	pid_t child = fork();
	char path[64];
	int pidfd, fd;

	(void)argument;
	if (child == 0)
		for (;;)
			pause();
	must(ptrace(PTRACE_ATTACH, child, 0, 0) == 0, "attach");
	must(waitpid(child, NULL, 0) == child, "wait");
	must(ptrace(PTRACE_PEEKDATA, child, &marker, 0) == 0x5ec2e7, "peek");
	must(ptrace(PTRACE_POKEDATA, child, &marker, 7) == 0, "poke");
	must(process_vm_readv(child, &mine, 1, &its, 1, 0) == sizeof value && value == 7, "read");
	(void)snprintf(path, sizeof path, "/proc/%d/mem", child);
	fd = open(path, O_RDONLY);
	must(fd >= 0 && pread(fd, &value, sizeof value, (off_t)(uintptr_t)&marker) > 0, path);
	pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	must(syscall(SYS_pidfd_getfd, pidfd, 1, 0) >= 0, "take a descriptor");
	must(ptrace(PTRACE_DETACH, child, 0, 0) == 0, "let go");
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	say("done");
}

/* ---- sockets ---- */

/* Whether a datagram arrives is for the host to see. */
static void reach_inet(int family, const struct sockaddr *address, socklen_t bytes)
{
	int stream = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int datagram = socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	struct sockaddr_storage peer;
	socklen_t peer_bytes = sizeof peer;

	(void)connect(stream, address, bytes);
	usleep(1000);
	if (getpeername(stream, (struct sockaddr *)&peer, &peer_bytes) == 0)
		say("reached by stream");
	(void)sendto(datagram, "x", 1, 0, address, bytes);
	close(stream);
	close(datagram);
}

/* argument: PORT of a listener of the host's everywhere, and its abstract name "dsec-PORT". */
void reach(const char *argument)
{
	static const char *const addresses[] = { "127.0.0.1",	"10.0.0.1",   "169.254.169.254",
						 "192.168.0.1", "172.17.0.1", "8.8.8.8" };
	struct sockaddr_in v4 = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)atoi(argument)) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
				   .sin6_port = htons((uint16_t)atoi(argument)),
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t bytes;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	for (unsigned i = 0; i < sizeof addresses / sizeof *addresses; i++) {
		(void)inet_pton(AF_INET, addresses[i], &v4.sin_addr);
		reach_inet(AF_INET, (struct sockaddr *)&v4, sizeof v4);
	}
	reach_inet(AF_INET6, (struct sockaddr *)&v6, sizeof v6);
	bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			    (size_t)snprintf(un.sun_path + 1, 64, "dsec-%s", argument));
	if (connect(fd, (struct sockaddr *)&un, bytes) == 0)
		say("reached by abstract name");
	static const char *const paths[] = { "/run/dsec.sock", "/run/dbus/system_bus_socket",
					     "/var/run/docker.sock", "/run/systemd/private" };

	for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++)
		if (access(paths[i], F_OK) == 0)
			printf("%s is there\n", paths[i]);
	say("done");
}

/* ---- settings ---- */

void write_settings(const char *argument)
{
	static const char *const paths[] = {
		"/proc/sysrq-trigger",
		"/proc/sys/kernel/core_pattern",
		"/proc/sys/kernel/modprobe",
		"/proc/sys/kernel/hotplug",
		"/proc/sys/kernel/sysrq",
		"/proc/sys/kernel/panic",
		"/proc/sys/kernel/randomize_va_space",
		"/proc/sys/kernel/yama/ptrace_scope",
		"/proc/sys/vm/drop_caches",
		"/proc/sys/vm/overcommit_memory",
		"/proc/sys/fs/file-max",
		"/proc/sys/fs/suid_dumpable",
		"/proc/sys/fs/binfmt_misc/register",
		"/proc/sys/user/max_user_namespaces",
		"/proc/sys/net/ipv4/ip_forward",
		"/proc/sys/net/core/somaxconn",
		"/proc/irq/0/smp_affinity",
		"/proc/mtrr",
		"/proc/bus/pci/devices",
		"/sys/kernel/uevent_helper",
		"/sys/kernel/mm/ksm/run",
		"/sys/fs/cgroup/cgroup.procs",
		"/sys/fs/bpf",
		"/sys/kernel/debug/tracing/trace",
		"/sys/firmware/efi/efivars",
		"/dev/mem",
		"/dev/kmem",
		"/dev/kvm",
		"/dev/fuse",
		"/dev/loop-control",
		"/dev/vda",
		"/dev/kmsg",
	};

	(void)argument;
	for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++) {
		int fd = open(paths[i], O_WRONLY);

		if (fd >= 0)
			printf("%s opens for writing\n", paths[i]);
		if (fd >= 0)
			close(fd);
	}
	say("done");
}

/* argument: so many processes may be seen. */
void see_others(const char *argument)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	int seen = 0;

	while (dir && (entry = readdir(dir)))
		seen += atoi(entry->d_name) > 0;
	if (dir)
		closedir(dir);
	if (seen > atoi(argument))
		printf("%d processes seen\n", seen);
	for (int pid = 2; pid < 32768; pid++)
		if (pid != getpid() && kill(pid, 0) == 0)
			printf("process %d can be signalled\n", pid);
	say("done");
}
