/*
 * Where a program in a sandbox finds itself: capabilities, mounts, masks, devices, limits, names.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/root/launch/probe.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void text_read(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? -1 : read(fd, text, size - 1);

	if (bytes < 0)
		fail("%s: %s", path, strerrorname_np(errno));
	text[bytes < 0 ? 0 : bytes] = 0;
	if (fd >= 0)
		close(fd);
}

static unsigned long status_number(const char *key)
{
	char text[4096], *found;

	text_read("/proc/self/status", text, sizeof text);
	found = strstr(text, key);
	if (!found)
		fail("no %s", key);
	return found ? strtoul(found + strlen(key), NULL, 16) : ~0ul;
}

static void sets_are(unsigned long permitted)
{
	static const char *const empty[] = { "CapInh:\t", "CapAmb:\t" };

	if (status_number("CapEff:\t") != permitted || status_number("CapPrm:\t") != permitted)
		fail("capabilities %lx, not %lx", status_number("CapPrm:\t"), permitted);
	for (unsigned i = 0; i < COUNT(empty); i++)
		if (status_number(empty[i]) != 0)
			fail("%s is not empty", empty[i]);
	if (status_number("NoNewPrivs:\t") != 1)
		fail("new privileges are possible");
	if (status_number("Seccomp:\t") != 2)
		fail("no filter");
}

/* argument: the expected set; then once more after an execve, which gives root everything back. */
void probe_capabilities(const char *argument)
{
	const unsigned long permitted = strtoul(argument, NULL, 16);

	sets_are(permitted);
	if (getenv("AGAIN"))
		return;
	setenv("AGAIN", "1", 1);
	execl("/bin/probe", "probe", "capabilities", argument, NULL);
	fail("execve: %s", strerrorname_np(errno));
}

static bool mount_line_is(char *line, const char *place, const char *type, const char *flags)
{
	char *fields[6], *rest = line, *dash = strstr(line, " - ");

	for (unsigned i = 0; i < COUNT(fields); i++)
		fields[i] = strsep(&rest, " ");
	if (!dash || strcmp(fields[4], place) != 0)
		return false;
	if (strncmp(dash + 3, type, strlen(type)) != 0)
		fail("%s is %s", place, dash + 3);
	if (strcmp(fields[5], flags) != 0)
		fail("%s has %s, not %s", place, fields[5], flags);
	return true;
}

/* Exactly these, the masks below /proc aside. */
void probe_mounts(const char *argument)
{
	static const struct {
		const char *place, *type, *flags;
	} expected[] = {
		{ "/", "overlay", "rw,nosuid,noatime" },
		{ "/dev/pts", "devpts", "rw,nosuid,noexec,noatime" },
		{ "/proc", "proc", "rw,nosuid,nodev,noexec,relatime" },
	};
	char text[16384], *rest = text, *line;
	unsigned found = 0, masks = 0;

	(void)argument;
	text_read("/proc/self/mountinfo", text, sizeof text);
	while ((line = strsep(&rest, "\n")) && *line) {
		char copy[1024];
		bool known = false;

		for (unsigned i = 0; i < COUNT(expected) && !known; i++) {
			snprintf(copy, sizeof copy, "%s", line);
			known = mount_line_is(copy, expected[i].place, expected[i].type,
					      expected[i].flags);
		}
		found += known;
		if (!known && strstr(line, " /proc/") && strstr(line, " ro,nosuid,nodev,noexec"))
			masks++;
		else if (!known)
			fail("unexpected mount: %s", line);
	}
	if (found != COUNT(expected))
		fail("%u of %zu mounts", found, COUNT(expected));
	if (masks == 0)
		fail("no masks");
}

static unsigned entries_count(const char *path)
{
	DIR *dir = opendir(path);
	unsigned count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

void probe_masks(const char *argument)
{
	static const char *const names[] = { "/proc/keys",	 "/proc/key-users", "/proc/kcore",
					     "/proc/timer_list", "/proc/acpi",	    "/proc/scsi",
					     "/proc/sched_debug" };
	static const char *const closed[] = { "/proc/kmsg",	   "/proc/kpagecount",
					      "/proc/kpageflags",  "/proc/kpagecgroup",
					      "/proc/slabinfo",	   "/proc/vmallocinfo",
					      "/proc/pagetypeinfo" };
	static const char *const fixed[] = { "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern",
					     "/proc/sys/kernel/hostname",
					     "/proc/sys/net/ipv4/ip_forward",
					     "/proc/sys/user/max_user_namespaces" };

	(void)argument;
	for (unsigned i = 0; i < COUNT(names); i++) {
		struct stat found;
		char text[16];

		if (lstat(names[i], &found) < 0 && errno == ENOENT)
			continue;
		if (S_ISDIR(found.st_mode) && entries_count(names[i]) != 2)
			fail("%s is not empty", names[i]);
		if (S_ISREG(found.st_mode)) {
			text_read(names[i], text, sizeof text);
			if (*text)
				fail("%s says %s", names[i], text);
		}
		refused(names[i], open(names[i], O_WRONLY),
			S_ISDIR(found.st_mode) ? EISDIR : EACCES);
	}
	for (unsigned i = 0; i < COUNT(closed); i++)
		if (access(closed[i], F_OK) == 0)
			refused(closed[i], open(closed[i], O_RDONLY), EACCES);
	for (unsigned i = 0; i < COUNT(fixed); i++)
		if (access(fixed[i], F_OK) == 0 && open(fixed[i], O_WRONLY) >= 0)
			fail("%s opens for writing", fixed[i]);
}

void probe_network_masks(const char *argument)
{
	static const char *const hidden[] = { "tcp",	 "tcp6",    "udp", "unix",
					      "netlink", "packet",  "raw", "sockstat",
					      "snmp",	 "netstat", "arp" };
	char path[64];

	(void)argument;
	for (unsigned i = 0; i < COUNT(hidden); i++) {
		snprintf(path, sizeof path, "/proc/net/%s", hidden[i]);
		refused(path, open(path, O_RDONLY), EACCES);
		if (chmod(path, 0444) == 0)
			fail("%s: chmod was allowed", path);
	}
	allowed("/proc/net/dev", open("/proc/net/dev", O_RDONLY));
	allowed("/proc/net/route", open("/proc/net/route", O_RDONLY));
}

/* argument "up": a server on port 80 answers on 127.0.0.1; else nothing can be reached. */
void probe_loopback(const char *argument)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons(80),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	int accepted;

	if (argument && strcmp(argument, "up") == 0) {
		allowed("bind", bind(server, (struct sockaddr *)&address, sizeof address));
		allowed("listen", listen(server, 1));
		allowed("connect", connect(client, (struct sockaddr *)&address, sizeof address));
		allowed("accept", accepted = accept(server, NULL, NULL));
		/* Who closes first stays in TIME_WAIT. */
		allowed("close", close(client));
		allowed("read the end", read(accepted, &(char){ 0 }, 1));
	} else {
		refused("connect", connect(client, (struct sockaddr *)&address, sizeof address),
			ENETUNREACH);
	}
	address.sin_addr.s_addr = htonl(0x08080808);
	refused("connect outside",
		connect(socket(AF_INET, SOCK_DGRAM, 0), (struct sockaddr *)&address,
			sizeof address),
		ENETUNREACH);
}

void probe_devices(const char *argument)
{
	char bytes[4];

	(void)argument;
	allowed("write to null", write(open("/dev/null", O_WRONLY), "x", 1));
	allowed("read of zero", read(open("/dev/zero", O_RDONLY), bytes, 4));
	allowed("read of urandom", read(open("/dev/urandom", O_RDONLY), bytes, 4));
	refused("mknod null", mknod("/tmp/null", S_IFCHR | 0666, makedev(1, 3)), EPERM);
	refused("mknod mem", mknod("/dev/mem", S_IFCHR | 0600, makedev(1, 1)), EPERM);
	refused("mknod block", mknod("/tmp/block", S_IFBLK | 0600, makedev(254, 0)), EPERM);
	allowed("mkfifo", mkfifo("/tmp/fifo", 0600));
	allowed("shm", open("/dev/shm/x", O_CREAT | O_RDWR, 0600));
}

void probe_terminal(const char *argument)
{
	struct stat found;
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	char *name;

	(void)argument;
	allowed("ptmx", master);
	allowed("unlockpt", unlockpt(master));
	name = ptsname(master);
	if (!name || strcmp(name, "/dev/pts/0") != 0)
		fail("terminal is %s", name ? name : "none");
	allowed("open", open("/dev/pts/0", O_RDWR | O_NOCTTY));
	allowed("stat", stat("/dev/pts/0", &found));
	if (found.st_uid != 0 || found.st_gid != 5 || (found.st_mode & 0777) != 0620)
		fail("%d:%d %o", found.st_uid, found.st_gid, found.st_mode);
	refused("TIOCSTI", ioctl(master, TIOCSTI, "x"), EPERM);
}

void probe_limits(const char *argument)
{
	struct rlimit limit;
	mode_t mask = umask(0);
	char score[16];

	(void)argument;
	text_read("/proc/self/oom_score_adj", score, sizeof score);
	if (atoi(score) < 100)
		fail("out of memory, others go first: %s", score);
	/* 1, and nothing inside can change it: see worker_start.c. */
	limit.rlim_cur = limit.rlim_max = 0;
	allowed("no core files", setrlimit(RLIMIT_CORE, &limit));
	allowed("the same", syscall(SYS_setrlimit, RLIMIT_CORE, &limit));
	allowed("the same", syscall(SYS_prlimit64, 0, RLIMIT_CORE | 1l << 32, &limit, NULL));
	getrlimit(RLIMIT_CORE, &limit);
	if (limit.rlim_cur != 1 || limit.rlim_max != 1)
		fail("core files %lu:%lu", limit.rlim_cur, limit.rlim_max);
	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur != 1024 || limit.rlim_max > 65536)
		fail("files %lu:%lu", limit.rlim_cur, limit.rlim_max);
	if (mask != 022)
		fail("umask %o", mask);
	for (int i = 1; i < 32; i++)
		if (i != SIGKILL && i != SIGSTOP && signal(i, SIG_DFL) != SIG_DFL)
			fail("signal %d is not as a program expects", i);
	if (status_number("SigBlk:\t") != 0)
		fail("signals are blocked");
}

static void limit_say(const char *name, int resource)
{
	struct rlimit limit;

	getrlimit((__rlimit_resource_t)resource, &limit);
	printf("%s %ld:%ld", name, (long)limit.rlim_cur, (long)limit.rlim_max);
}

void probe_limits_say(const char *argument)
{
	(void)argument;
	limit_say("core", RLIMIT_CORE);
	limit_say(" nofile", RLIMIT_NOFILE);
	limit_say(" nproc", RLIMIT_NPROC);
	printf("\n");
}

/* Nothing but 0, 1, 2 and the one that this look needs. */
void probe_descriptors(const char *argument)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;

	(void)argument;
	while ((entry = readdir(dir)))
		if (*entry->d_name != '.' && atoi(entry->d_name) > 2 &&
		    atoi(entry->d_name) != dirfd(dir))
			fail("descriptor %s is open", entry->d_name);
}

/* argument "open": a PID 1 whose memfd has mode 0777, which shows what the rule is for. */
void probe_init(const char *argument)
{
	char text[64] = "", link[64];
	int fd = open("/proc/1/exe", O_RDONLY);

	if (argument && strcmp(argument, "open") == 0) {
		allowed("open of PID 1's program", fd);
		allowed("lock of the file all sandboxes share", flock(fd, LOCK_EX | LOCK_NB));
		return;
	}
	refused("open of PID 1's program", fd, EACCES);
	refused("link of PID 1's program", readlink("/proc/1/exe", link, sizeof link), EACCES);
	refused("its root", open("/proc/1/root", O_PATH), EACCES);
	refused("its descriptors", open("/proc/1/fd", O_RDONLY | O_DIRECTORY), EACCES);
	refused("its memory", open("/proc/1/mem", O_RDONLY), EACCES);
	refused("trace", ptrace(PTRACE_ATTACH, 1, 0, 0), EPERM);
	refused("seize", ptrace(PTRACE_SEIZE, 1, 0, 0), EPERM);
	/* Its first call but one; the sandbox is there before. */
	for (unsigned i = 0; i < 5000 && strcmp(text, "init\n") != 0; i++) {
		text_read("/proc/1/comm", text, sizeof text);
		if (i)
			(void)usleep(1000);
	}
	if (strcmp(text, "init\n") != 0)
		fail("PID 1 is %s", text);
	for (int i = 1; i <= 64; i++)
		if (i != 32 && i != 33)
			allowed("signal", kill(1, i));
	usleep(20000);
	allowed("PID 1 after every signal", kill(1, 0));
}

/* chroot with a folder kept open: the classic way out ends at the sandbox's own root. */
void probe_escape(const char *argument)
{
	struct stat root, found;
	int fd;

	(void)argument;
	allowed("stat", stat("/", &root));
	fd = open("/", O_RDONLY | O_DIRECTORY);
	mkdir("/tmp/jail", 0755);
	allowed("chroot", chroot("/tmp/jail"));
	allowed("fchdir", fchdir(fd));
	for (unsigned i = 0; i < 64; i++)
		allowed("chdir", chdir(".."));
	allowed("stat", stat(".", &found));
	if (found.st_dev != root.st_dev || found.st_ino != root.st_ino)
		fail("got out: device %lx inode %lu", (long)found.st_dev, (long)found.st_ino);
	allowed("chroot", chroot("."));
	allowed("the sandbox's own file", access("/bin/probe", F_OK));
}

void probe_names(const char *argument)
{
	char text[256], *found;

	gethostname(text, sizeof text);
	if (strcmp(text, argument) != 0)
		fail("host %s", text);
	text_read("/proc/self/cgroup", text, sizeof text);
	found = strstr(text, "0::");
	if (!found || strncmp(found, "0::/e", 5) != 0)
		fail("cgroup %s", text);
	text_read("/proc/1/cgroup", text, sizeof text);
	found = strstr(text, "0::");
	if (!found || strcmp(found, "0::/\n") != 0)
		fail("cgroup of PID 1 %s", text);
}
