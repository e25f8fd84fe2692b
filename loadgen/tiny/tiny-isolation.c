/* Copyright (C) The DSec Authors. SPDX-License-Identifier: Apache-2.0 */
/*
 * tiny-isolation NETWORK [NAMESPACE...]: asserts, from inside a sandbox, that it is one. image.sh
 * puts it into every image; the load generator runs it in the very sandboxes that it measures.
 * NETWORK is none or private; a NAMESPACE ("mnt:[4026531841]") is one that must not be ours.
 *
 * Says "asserted N" and exits 0, or a line "FAILED what" each and exits 1. Must hold: no library,
 * and nothing is written, so that the sandbox's root is as untouched afterwards as before.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/mount.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { TEXT_BYTES = 8192, LINE_BYTES = 256, PROCESSES_MAX = 2 };

/* What a sandbox's root may have at most: no more than container runtimes give by default. */
#define CAPABILITIES_MAX 0xa80425fbull
/* Host uids below this are people's, services' and root's. */
#define UID_FIRST	 1000000ull

struct probe {
	unsigned int asserted, failed;
	bool has_network;
	char text[TEXT_BYTES]; /* of the file read last */
};

void probe_main(long *stack);
void *memset(void *to, int value, size_t bytes);
void *memcpy(void *to, const void *from, size_t bytes);

/* ---- without a library ---- */

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n"
	"\tcall probe_main\n");

static long call6(long number, const long *a)
{
	register long r10 __asm__("r10") = a[3], r8 __asm__("r8") = a[4], r9 __asm__("r9") = a[5];
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n\tmov x0, sp\n\tbl probe_main\n");

static long call6(long number, const long *a)
{
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a[0], x1 __asm__("x1") = a[1];
	register long x2 __asm__("x2") = a[2], x3 __asm__("x3") = a[3], x4 __asm__("x4") = a[4];
	register long x5 __asm__("x5") = a[5];

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}
#else
#error "tiny-isolation is not written for this processor"
#endif

#define CALL(number, ...) call6(number, (const long[6]){ __VA_ARGS__ })

void *memset(void *to, int value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((volatile char *)to)[i] = (char)value;
	return to;
}

void *memcpy(void *to, const void *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((volatile char *)to)[i] = ((const char *)from)[i];
	return to;
}

static size_t text_bytes(const char *text)
{
	size_t bytes = 0;

	while (text[bytes])
		bytes++;
	return bytes;
}

static bool is_prefix(const char *prefix, const char *text)
{
	while (*prefix && *prefix == *text) {
		prefix++;
		text++;
	}
	return !*prefix;
}

static const char *text_find(const char *text, const char *wanted)
{
	for (; *text; text++) {
		if (is_prefix(wanted, text))
			return text + text_bytes(wanted);
	}
	return NULL;
}

static bool is_same(const char *a, const char *b)
{
	return is_prefix(a, b) && text_bytes(a) == text_bytes(b);
}

/* Skips blanks; *at ends after the digits. */
static uint64_t number_read(const char **at, unsigned int base)
{
	uint64_t value = 0;

	while (**at == ' ' || **at == '\t')
		(*at)++;
	for (;; (*at)++) {
		char c = **at;
		unsigned int digit = 99;

		if (c >= '0' && c <= '9')
			digit = (unsigned int)(c - '0');
		else if (c >= 'a' && c <= 'f')
			digit = (unsigned int)(c - 'a' + 10);
		if (digit >= base)
			return value;
		value = value * base + digit;
	}
}

static void say(const char *text)
{
	CALL(SYS_write, 1, (long)text, (long)text_bytes(text));
}

static void say_number(unsigned int value)
{
	char digits[12];
	int at = 11;

	digits[at] = '\0';
	do {
		digits[--at] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	say(&digits[at]);
}

static void holds(struct probe *probe, bool is_true, const char *what)
{
	probe->asserted++;
	if (is_true)
		return;
	probe->failed++;
	say("FAILED ");
	say(what);
	say("\n");
}

/* A call that a sandbox must not be able to make. What it opened by mistake stays open. */
static void refused(struct probe *probe, long result, const char *what)
{
	holds(probe, result < 0, what);
}

/* Reads a file into probe->text; its bytes, or -errno. */
static long file_read(struct probe *probe, const char *path)
{
	long bytes = 0, more, fd = CALL(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC);

	probe->text[0] = '\0';
	if (fd < 0)
		return fd;
	do {
		more = CALL(SYS_read, fd, (long)probe->text + bytes, TEXT_BYTES - 1 - bytes);
		if (more > 0)
			bytes += more;
	} while (more > 0 && bytes < TEXT_BYTES - 1);
	CALL(SYS_close, fd);
	probe->text[bytes] = '\0';
	return more < 0 ? more : bytes;
}

/* ---- who we are ---- */

static void map_assert(struct probe *probe, const char *path, const char *what)
{
	const char *at = probe->text;
	uint64_t inside, outside, count;

	holds(probe, file_read(probe, path) > 0, path);
	inside = number_read(&at, 10);
	outside = number_read(&at, 10);
	count = number_read(&at, 10);
	holds(probe, inside == 0 && outside >= UID_FIRST && count <= 65536 && is_same(at, "\n"),
	      what);
}

static uint64_t status_number(struct probe *probe, const char *name, unsigned int base)
{
	const char *at = text_find(probe->text, name);

	holds(probe, at, name);
	return at ? number_read(&at, base) : UINT64_MAX;
}

static void credentials_assert(struct probe *probe)
{
	map_assert(probe, "/proc/self/uid_map", "uid_map is one range of the host's spare uids");
	map_assert(probe, "/proc/self/gid_map", "gid_map is one range of the host's spare gids");
	holds(probe, CALL(SYS_getgroups, 0, 0) == 0, "no supplementary groups");
	holds(probe, CALL(SYS_prctl, PR_GET_NO_NEW_PRIVS) == 1, "no_new_privs");
	holds(probe, file_read(probe, "/proc/self/status") > 0, "/proc/self/status");
	holds(probe, status_number(probe, "\nSeccomp:", 10) == 2, "a seccomp filter");
	holds(probe, !(status_number(probe, "\nCapEff:", 16) & ~CAPABILITIES_MAX),
	      "effective capabilities");
	holds(probe, !(status_number(probe, "\nCapPrm:", 16) & ~CAPABILITIES_MAX),
	      "permitted capabilities");
	holds(probe, !(status_number(probe, "\nCapInh:", 16) & ~CAPABILITIES_MAX),
	      "inheritable capabilities");
	holds(probe, status_number(probe, "\nCapAmb:", 16) == 0, "ambient capabilities");
	holds(probe, status_number(probe, "\nSigIgn:", 16) == 0, "no signal is ignored");
	holds(probe, status_number(probe, "\nSigBlk:", 16) == 0, "no signal is blocked");
}

/* ---- what we are in ---- */

static void namespaces_assert(struct probe *probe, char **foreign)
{
	static const char names[][24] = { "/proc/self/ns/cgroup", "/proc/self/ns/ipc",
					  "/proc/self/ns/mnt",	  "/proc/self/ns/net",
					  "/proc/self/ns/pid",	  "/proc/self/ns/user",
					  "/proc/self/ns/uts" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char link[64];
		long bytes = CALL(SYS_readlinkat, AT_FDCWD, (long)names[i], (long)link,
				  sizeof(link) - 1);
		bool is_ours = bytes > 0;

		link[bytes > 0 ? bytes : 0] = '\0';
		for (char **other = foreign; *other; other++)
			is_ours = is_ours && !is_same(*other, link);
		holds(probe, is_ours, names[i]);
	}
	holds(probe, file_read(probe, "/proc/self/cgroup") > 0, "/proc/self/cgroup");
	holds(probe, !text_find(probe->text, "dsec-") && !text_find(probe->text, "/.."),
	      "cgroup paths begin in the sandbox");
}

struct entry {
	uint64_t inode, offset;
	uint16_t bytes;
	uint8_t type;
	char name[];
};

/* How many names of this folder are numbers, and are above the bound; -errno. */
static long numbers_count(struct probe *probe, const char *path, uint64_t above)
{
	long count = 0, bytes,
	     fd = CALL(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return fd;
	while ((bytes = CALL(SYS_getdents64, fd, (long)probe->text, TEXT_BYTES)) > 0) {
		for (long at = 0; at < bytes;) {
			const struct entry *entry = (const void *)(probe->text + at);
			const char *name = entry->name;
			bool is_number = *name >= '0' && *name <= '9';

			count += is_number && number_read(&name, 10) > above;
			at += entry->bytes;
		}
	}
	CALL(SYS_close, fd);
	return bytes < 0 ? bytes : count;
}

static void processes_assert(struct probe *probe)
{
	long visible = numbers_count(probe, "/proc", 0);

	holds(probe, visible >= 1 && visible <= PROCESSES_MAX, "only PID 1 and we are visible");
	holds(probe, CALL(SYS_getpid) > 1, "we are not PID 1");
	holds(probe, CALL(SYS_getppid) == 0, "our parent is outside");
	/* The folder's own descriptor is the fourth. */
	holds(probe, numbers_count(probe, "/proc/self/fd", 2) == 1, "no descriptor but 0, 1, 2");
	refused(probe, CALL(SYS_openat, AT_FDCWD, (long)"/proc/1/exe", O_RDONLY), "read PID 1");
	refused(probe, CALL(SYS_ptrace, PTRACE_SEIZE, 1, 0, 0), "ptrace of PID 1");
}

/* One line of mountinfo: "id parent dev root point options tags - type source super". */
static void mount_assert(struct probe *probe, const char *line)
{
	const char *type = text_find(line, " - ");
	bool is_proc = type && is_prefix("proc ", type);
	bool is_known = type &&
			(is_proc || is_prefix("overlay ", type) || is_prefix("devpts ", type) ||
			 is_prefix("tmpfs ", type) || is_prefix("mqueue ", type));

	holds(probe, is_known, "a mount of a known type");
	if (!is_known) {
		say(line);
		say("\n");
		return;
	}
	holds(probe, !text_find(line, " shared:") && !text_find(line, " master:"),
	      "a mount that propagates nothing");
	holds(probe, text_find(line, "nosuid"), "a mount with nosuid");
	if (is_proc)
		holds(probe, text_find(line, "nodev") && text_find(line, "noexec"),
		      "a proc mount with nodev, noexec");
}

static void mounts_assert(struct probe *probe)
{
	char line[LINE_BYTES];
	size_t bytes = 0;

	holds(probe, file_read(probe, "/proc/self/mountinfo") > 0, "/proc/self/mountinfo");
	for (const char *at = probe->text; *at; at++) {
		if (*at != '\n') {
			if (bytes < LINE_BYTES - 1)
				line[bytes++] = *at;
			continue;
		}
		line[bytes] = '\0';
		mount_assert(probe, line);
		bytes = 0;
	}
}

/* ---- what we cannot do ---- */

static void mounting_assert(struct probe *probe)
{
	const char *none = "none", *tmpfs = "tmpfs", *tmp = "/tmp", *root = "/";
	struct mount_attr attr;
	long fd = CALL(SYS_openat, AT_FDCWD, (long)"/proc/1/ns/mnt", O_RDONLY | O_CLOEXEC);

	memset(&attr, 0, sizeof(attr));
	attr.attr_clr = MOUNT_ATTR_NOSUID;
	refused(probe, CALL(SYS_mount, (long)none, (long)tmp, (long)tmpfs, 0, 0), "mount tmpfs");
	refused(probe, CALL(SYS_mount, (long)none, (long)tmp, (long)"proc", 0, 0), "mount proc");
	refused(probe, CALL(SYS_mount, (long)root, (long)tmp, 0, 4096, 0), "bind mount");
	refused(probe, CALL(SYS_mount, 0, (long)"/proc", 0, 4096 | 32, 0), "remount /proc");
	refused(probe, CALL(SYS_umount2, (long)"/proc", 2), "umount /proc");
	refused(probe, CALL(SYS_pivot_root, (long)root, (long)tmp), "pivot_root");
	refused(probe, CALL(SYS_fsopen, (long)tmpfs, 0), "fsopen");
	refused(probe, CALL(SYS_open_tree, AT_FDCWD, (long)root, 1), "open_tree clone");
	refused(probe, CALL(SYS_mount_setattr, AT_FDCWD, (long)root, 0, (long)&attr, sizeof(attr)),
		"mount_setattr");
	refused(probe, CALL(SYS_setns, fd, CLONE_NEWNS), "setns to a mount namespace");
	refused(probe, CALL(SYS_unshare, CLONE_NEWUSER), "a nested user namespace");
	refused(probe, CALL(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS), "… with a mount namespace");
	refused(probe, CALL(SYS_unshare, CLONE_NEWNS), "a new mount namespace");
	refused(probe, CALL(SYS_unshare, CLONE_NEWNET), "a new network namespace");
	refused(probe, CALL(SYS_mknodat, AT_FDCWD, (long)"/tmp/isolation", 0020600, 0x101),
		"mknod of /dev/mem");
	refused(probe, CALL(SYS_sethostname, (long)"broken", 6), "sethostname");
	if (fd >= 0)
		CALL(SYS_close, fd);
}

static void kernel_assert(struct probe *probe)
{
	char big[256]; /* what an accepted call would read */

	memset(big, 0, sizeof(big));
	refused(probe, CALL(SYS_io_uring_setup, 1, (long)big), "io_uring_setup");
	refused(probe, CALL(SYS_bpf, 0, (long)big, 72), "bpf");
	refused(probe, CALL(SYS_perf_event_open, (long)big, 0, -1, -1, 0), "perf_event_open");
	refused(probe, CALL(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1),
		"keyctl");
	refused(probe, CALL(SYS_add_key, (long)"user", (long)"a", (long)"b", 1, -3), "add_key");
	refused(probe, CALL(SYS_finit_module, 0, (long)"", 0), "finit_module");
	refused(probe, CALL(SYS_delete_module, (long)"a", 0), "delete_module");
	refused(probe, CALL(SYS_kexec_load, 0, 0, 0, 0), "kexec_load");
	refused(probe, CALL(SYS_reboot, 0xfee1dead, 672274793, 0, 0), "reboot");
	refused(probe, CALL(SYS_swapon, (long)"/tmp", 0), "swapon");
	refused(probe, CALL(SYS_acct, 0), "acct");
	refused(probe, CALL(SYS_syslog, 3, (long)big, 16), "the kernel's log");
	refused(probe, CALL(SYS_open_by_handle_at, AT_FDCWD, (long)big, 0), "open_by_handle_at");
	refused(probe, CALL(SYS_clock_settime, 0, (long)big), "clock_settime");
}

static void file_refuse(struct probe *probe, const char *path, long flags)
{
	long fd = CALL(SYS_openat, AT_FDCWD, (long)path, flags | O_CLOEXEC);
	char byte;

	/* A masked file may open, with nothing in it. */
	if (fd >= 0 && flags == O_RDONLY && CALL(SYS_read, fd, (long)&byte, 1) == 0)
		fd = -1;
	refused(probe, fd, path);
}

static void masks_assert(struct probe *probe)
{
	file_refuse(probe, "/proc/kcore", O_RDONLY);
	file_refuse(probe, "/proc/kmsg", O_RDONLY);
	file_refuse(probe, "/proc/keys", O_RDONLY);
	file_refuse(probe, "/proc/timer_list", O_RDONLY);
	file_refuse(probe, "/proc/sched_debug", O_RDONLY);
	file_refuse(probe, "/proc/sysrq-trigger", O_WRONLY);
	file_refuse(probe, "/proc/sys/kernel/core_pattern", O_WRONLY);
	file_refuse(probe, "/proc/sys/kernel/modprobe", O_WRONLY);
	file_refuse(probe, "/proc/sys/vm/drop_caches", O_WRONLY);
	file_refuse(probe, "/proc/irq/default_smp_affinity", O_WRONLY);
	file_refuse(probe, "/sys/kernel/uevent_seqnum", O_RDONLY);
	file_refuse(probe, "/sys/fs/cgroup/cgroup.procs", O_WRONLY);
	file_refuse(probe, "/dev/mem", O_RDONLY);
	file_refuse(probe, "/dev/kmsg", O_RDONLY);
}

static void socket_assert(struct probe *probe, int family, int type, int protocol, const char *what)
{
	refused(probe, CALL(SYS_socket, family, type | SOCK_CLOEXEC, protocol), what);
}

static void sockets_assert(struct probe *probe)
{
	long fd = CALL(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	holds(probe, fd >= 0, "unix sockets work");
	CALL(SYS_close, fd);
	socket_assert(probe, AF_PACKET, SOCK_RAW, 0x300, "a packet socket");
	socket_assert(probe, AF_VSOCK, SOCK_STREAM, 0, "a vsock socket");
	socket_assert(probe, AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG, "a sock_diag socket");
	if (probe->has_network) {
		fd = CALL(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		holds(probe, fd >= 0, "inet sockets work");
		CALL(SYS_close, fd);
		return;
	}
	socket_assert(probe, AF_INET, SOCK_STREAM, 0, "an inet socket");
	socket_assert(probe, AF_INET, SOCK_DGRAM, 0, "an inet datagram socket");
	socket_assert(probe, AF_INET6, SOCK_STREAM, 0, "an inet6 socket");
	socket_assert(probe, AF_INET6, SOCK_DGRAM, 0, "an inet6 datagram socket");
	holds(probe, file_read(probe, "/proc/self/net/dev") < 0 || !text_find(probe->text, "eth"),
	      "no interface of the host");
}

void probe_main(long *stack)
{
	struct probe probe;
	long count = stack[0];
	char **arguments = (char **)&stack[1];

	probe.asserted = probe.failed = 0;
	probe.has_network = count > 1 && is_same(arguments[1], "private");
	credentials_assert(&probe);
	namespaces_assert(&probe, count > 2 ? &arguments[2] : &arguments[count]);
	processes_assert(&probe);
	mounts_assert(&probe);
	mounting_assert(&probe);
	kernel_assert(&probe);
	masks_assert(&probe);
	sockets_assert(&probe);
	if (!probe.failed) {
		say("asserted ");
		say_number(probe.asserted);
		say("\n");
	}
	for (;;)
		CALL(SYS_exit_group, probe.failed != 0);
}
