/*
 * Attacks on the walls of a policy, as the sandbox's root: on files by every route there is, and
 * with the calls that a filter refuses. The policy is that of test_launch_walls.c.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/entry_32.h"
#include "tests/root/launch/probe.h"

/* EROFS: the mount; EBUSY: its place; EXDEV: beyond it. */
static void file_attack(const char *path)
{
	const struct timespec times[2] = { { 1, 0 }, { 1, 0 } };
	char own[64];
	int fd;

	refused(path, open(path, O_WRONLY), EROFS);
	refused("open for both", open(path, O_RDWR | O_TRUNC), EROFS);
	refused("truncate", truncate(path, 0), EROFS);
	refused("chmod", chmod(path, 0777), EROFS);
	refused("chown", chown(path, 7, 7), EROFS);
	refused("utimens", utimensat(AT_FDCWD, path, times, 0), EROFS);
	refused("setxattr", setxattr(path, "user.x", "1", 1, 0), EROFS);
	refused("link", link(path, "/tmp/link"), EXDEV);
	fd = open(path, O_RDONLY);
	allowed("open for reading", fd);
	(void)snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
	refused("by its descriptor", open(own, O_WRONLY), EROFS);
	refused("fchmod", fchmod(fd, 0777), EROFS);
	refused("mapped", (long)mmap(NULL, 1, PROT_WRITE, MAP_SHARED, fd, 0), EACCES);
	refused("mount over", mount("/tmp", path, NULL, MS_BIND, NULL), EPERM);
	refused("remount", mount(NULL, path, NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
	refused("unmount", umount2(path, MNT_DETACH), EPERM);
	(void)close(fd); /* only read */
}

/* A name that cannot be given to something else. */
static void name_attack(const char *path, int error)
{
	const int fd = open("/home/other", O_CREAT | O_WRONLY, 0755);

	allowed("a file of its own", fd);
	(void)close(fd); /* empty */
	refused(path, unlink(path), error);
	refused("rename over", rename("/home/other", path), error == EBUSY ? EBUSY : EXDEV);
	refused("rename away", rename(path, "/home/away"), error == EBUSY ? EBUSY : EXDEV);
}

static void folder_attack(const char *path, const char *away)
{
	char inside[128];

	(void)snprintf(inside, sizeof inside, "%s/new", path);
	refused("create", open(inside, O_CREAT | O_WRONLY, 0755), EROFS);
	refused("mkdir", mkdir(inside, 0755), EROFS);
	refused("symlink", symlink("/tmp", inside), EROFS);
	refused("mknod", mknod(inside, S_IFIFO | 0644, 0), EROFS);
	refused("temporary file", open(path, O_TMPFILE | O_WRONLY, 0644), EROFS);
	refused("rmdir", rmdir(path), EBUSY);
	refused("rename", rename(path, away), EBUSY);
	refused("exchange", syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, "/tmp", 2), EBUSY);
}

void probe_walls_protect(const char *argument)
{
	static const char *const paths[] = { "/usr/bin/tool",
					     "/sbin/tool",
					     "/usr/bin/python",
					     "/usr/bin/../bin/tool",
					     "/proc/self/root/usr/bin/tool",
					     "/proc/1/root/usr/bin/tool" };
	struct stat tool;

	(void)argument;
	for (unsigned i = 0; i < sizeof paths / sizeof *paths - 1; i++)
		file_attack(paths[i]);
	refused("by the root of PID 1", open(paths[5], O_WRONLY), EACCES);
	folder_attack("/usr/bin", "/usr/other");
	name_attack("/usr/bin/tool", EROFS);
	name_attack("/usr/bin/python", EROFS);
	name_attack("/sbin", EBUSY);
	name_attack("/lib", EBUSY);
	/* The way to it: what an image has cannot be moved. */
	refused("rename of the parent", rename("/usr", "/usr2"), EXDEV);
	/* Another name of the same file is another file as soon as it is written. */
	allowed("its twin", open("/usr/lib/twin", O_WRONLY | O_TRUNC));
	allowed("still whole", access("/usr/bin/tool", X_OK));
	if (stat("/usr/bin/tool", &tool) < 0 || tool.st_size == 0)
		fail("emptied by its twin");
	allowed("beside it", open("/usr/lib/new", O_CREAT | O_WRONLY, 0644));
	allowed("chroot", chroot("/usr"));
	refused("from another root", open("/bin/tool", O_WRONLY), EROFS);
}

static void folder_is_empty(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;

	if (!dir) {
		fail("%s: %s", path, strerrorname_np(errno));
		return;
	}
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			fail("%s shows %s", path, entry->d_name);
	(void)closedir(dir); /* only read */
}

void probe_walls_hide(const char *argument)
{
	char text[8];

	(void)argument;
	folder_is_empty("/var/log/grader");
	refused("what it hides", open("/var/log/grader/answer", O_RDONLY), ENOENT);
	allowed("chdir", chdir("/var/log/grader"));
	folder_is_empty(".");
	refused("relative", open("answer", O_RDONLY), ENOENT);
	refused("create", open("new", O_CREAT | O_WRONLY, 0644), EROFS);
	allowed("back", chdir("/"));
	refused("another way", open("/proc/self/root/var/log/grader/answer", O_RDONLY), ENOENT);
	refused("handle", open("/proc/self/cwd/var/log/grader/answer", O_RDONLY), ENOENT);
	refused("unmount", umount2("/var/log/grader", MNT_DETACH), EPERM);
	refused("rmdir", rmdir("/var/log/grader"), EBUSY);
	refused("rename", rename("/var/log/grader", "/home/grader"), EBUSY);
	if (read(open("/opt/answer", O_RDONLY), text, sizeof text) != 0)
		fail("a hidden file has something to read");
	refused("unlink", unlink("/opt/answer"), EBUSY);
	refused("write", open("/opt/answer", O_WRONLY), EACCES);
	/* What the image's own files are is as before. */
	allowed("beside it", open("/opt/new", O_CREAT | O_WRONLY, 0644));
	allowed("the password file", open("/etc/passwd", O_RDONLY));
}

static void file_copy(const char *from, const char *to)
{
	static char bytes[1 << 16];
	const int source = open(from, O_RDONLY), copy = open(to, O_CREAT | O_WRONLY, 0755);
	ssize_t count;

	allowed(from, source);
	allowed(to, copy);
	while ((count = read(source, bytes, sizeof bytes)) > 0)
		if (write(copy, bytes, (size_t)count) != count)
			fail("short write");
	(void)close(copy);   /* or it could not be run */
	(void)close(source); /* only read */
}

void probe_walls_noexec(const char *argument)
{
	char name[] = "x", what[] = "exit", *const argv[] = { name, what, NULL };
	int fd;

	(void)argument;
	file_copy("/bin/probe", "/tmp/x");
	refused("execve", execv("/tmp/x", argv), EACCES);
	fd = open("/tmp/x", O_RDONLY);
	refused("fexecve", syscall(SYS_execveat, fd, "", argv, NULL, AT_EMPTY_PATH), EACCES);
	refused("mapped", (long)mmap(NULL, 4096, PROT_EXEC | PROT_READ, MAP_PRIVATE, fd, 0), EPERM);
	refused("a link", link("/tmp/x", "/etc/x"), EXDEV);
}

/* Nothing of it without a policy. */
void probe_walls_open(const char *argument)
{
	char name[] = "x", what[] = "exit", *const argv[] = { name, what, NULL };
	pid_t pid;
	int status = -1;

	(void)argument;
	allowed("the answer", open("/var/log/grader/answer", O_RDONLY));
	allowed("write", open("/usr/bin/tool", O_WRONLY));
	allowed("the link", unlink("/sbin"));
	allowed("unix", socket(AF_UNIX, SOCK_STREAM, 0));
	allowed("scheduler", sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 }));
	file_copy("/bin/probe", "/tmp/x");
	pid = fork();
	if (pid == 0) {
		execv("/tmp/x", argv);
		_exit(1);
	}
	if (waitpid(pid, &status, 0) < 0 || status != 0)
		fail("not run: %x", (unsigned)status);
}

void probe_walls_families(const char *argument)
{
	const uint64_t junk = 1ull << 32;

	(void)argument;
	allowed("inet", socket(AF_INET, SOCK_STREAM, 0));
	refused("inet6", socket(AF_INET6, SOCK_STREAM, 0), EAFNOSUPPORT);
	refused("netlink", socket(AF_NETLINK, SOCK_RAW, 0), EAFNOSUPPORT);
	refused("unix", socket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
	refused("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){ 0 }), EAFNOSUPPORT);
	refused("junk", syscall(SYS_socket, AF_UNIX | junk, SOCK_STREAM, 0), EAFNOSUPPORT);
	refused("junk", syscall(SYS_socketpair, AF_UNIX | junk, SOCK_STREAM, 0, (int[2]){ 0 }),
		EAFNOSUPPORT);
}

void probe_walls_processes(const char *argument)
{
	struct iovec none = { NULL, 0 };
	const struct sched_param param = { 0 };
	char attributes[48] = { 48 };
	pid_t pid = fork();

	(void)argument;
	if (pid == 0)
		for (;;)
			pause();
	refused("attach", ptrace(PTRACE_ATTACH, pid, NULL, NULL), EPERM);
	refused("trace me", ptrace(PTRACE_TRACEME, 0, NULL, NULL), EPERM);
	refused("read", process_vm_readv(pid, &none, 1, &none, 1, 0), EPERM);
	refused("write", process_vm_writev(pid, &none, 1, &none, 1, 0), EPERM);
	refused("compare", syscall(SYS_kcmp, getpid(), pid, 0, 0, 0), EPERM);
	refused("scheduler", sched_setscheduler(0, SCHED_BATCH, &param), EPERM);
	refused("attributes", syscall(SYS_sched_setattr, 0, attributes, 0), EPERM);
	refused("cookie", syscall(SYS_prctl, 62, 1, 0, 1, 0), EPERM);
	refused("of another", sched_setparam(pid, &param), EPERM);
	allowed("its end", kill(pid, SIGKILL));
	(void)waitpid(pid, NULL, 0); /* it was killed */
}

static void ioctl_attack(int fd, unsigned long number)
{
	refused("ioctl", syscall(SYS_ioctl, fd, number, 0), EPERM);
	refused("with junk", syscall(SYS_ioctl, fd, number | 0xabcdef01ul << 32, 0), EPERM);
	refused("of another size", syscall(SYS_ioctl, fd, number ^ 0x00040000ul, 0), EPERM);
	refused("by x32", syscall(0x40000000 | 514, fd, number, 0), ENOSYS);
	if (entry_32(54, fd, (long)number, 0) != -ENOSYS)
		fail("0x%lx by the 32-bit entry", number);
}

/* SWAPEXT, which is refused to all, and FS_IOC_FIEMAP, which the policy names. */
void probe_walls_ioctl(const char *argument)
{
	int fd = open("/tmp", O_RDONLY);

	(void)argument;
	ioctl_attack(fd, 0xc0c0586d);
	ioctl_attack(fd, 0xc020660b);
	refused("one that only does not fit", syscall(SYS_ioctl, fd, 0x5413, 0), ENOTTY);
}

/* 0x5413 is listed, others are not; 0x660b is refused by name, and what is no ioctl as ever. */
void probe_walls_ioctl_list(const char *argument)
{
	int fd = open("/tmp", O_RDONLY);

	(void)argument;
	ioctl_attack(fd, 0x5401);
	ioctl_attack(fd, 0xc020660b);
	refused("one that is listed", syscall(SYS_ioctl, fd, 0x5413, 0), ENOTTY);
	refused("with junk", syscall(SYS_ioctl, fd, 0xabcdef01c0005413ul, 0), ENOTTY);
	refused("a family", socket(AF_NETLINK, SOCK_RAW, 0), EAFNOSUPPORT);
	allowed("another call", fcntl(fd, F_GETFD));
}

static void profile_is(const char *path, const char *profile)
{
	char text[160] = "", wanted[160];
	const int fd = open(path, O_RDONLY);

	(void)snprintf(wanted, sizeof wanted, "%s (enforce)\n", profile);
	if (fd < 0 || read(fd, text, sizeof text - 1) < 0 || strcmp(text, wanted) != 0)
		fail("%s: %s", path, text);
	(void)close(fd); /* only read */
}

static void profile_leave(const char *file, const char *words)
{
	const int fd = open(file, O_WRONLY);

	allowed(file, fd);
	refused(words, write(fd, words, strlen(words)), EACCES);
	(void)close(fd); /* refused */
}

/* Of the rules of test_launch_apparmor.c, by a profile alone; and what is the program's own. */
void probe_walls_profile(const char *argument)
{
	char name[] = "x", what[] = "exit", *const argv[] = { name, what, NULL };
	int fd;

	profile_is("/proc/self/attr/apparmor/current", argument);
	profile_is("/proc/1/attr/apparmor/current", argument);
	refused("write", open("/usr/bin/tool", O_WRONLY), EACCES);
	refused("by another name", open("/proc/self/root/sbin/tool", O_WRONLY), EACCES);
	refused("from below", chdir("/usr/bin") < 0 ? 0 : open("tool", O_WRONLY), EACCES);
	refused("unlink", unlink("/usr/bin/tool"), EACCES);
	refused("rename", rename("/usr/bin/tool", "/usr/lib/tool"), EACCES);
	refused("link", link("/usr/bin/tool", "/usr/lib/tool"), EACCES);
	refused("create", open("/usr/bin/new", O_CREAT | O_WRONLY, 0755), EACCES);
	refused("mode", chmod("/usr/bin/tool", 0777), EACCES);
	refused("read", open("/var/log/grader/answer", O_RDONLY), EACCES);
	allowed("the folder", open("/var/log/grader", O_RDONLY | O_DIRECTORY));
	refused("inet6", socket(AF_INET6, SOCK_STREAM, 0), EACCES);
	allowed("inet", socket(AF_INET, SOCK_STREAM, 0));
	allowed("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){ 0 }));
	allowed("beside it", open("/usr/lib/new", O_CREAT | O_WRONLY, 0644));
	allowed("an unlinked name", unlink("/usr/lib/new"));
	file_copy("/bin/probe", "/tmp/x");
	refused("execve", execv("/tmp/x", argv), EACCES);
	fd = open("/tmp/x", O_RDONLY);
	refused("fexecve", syscall(SYS_execveat, fd, "", argv, NULL, AT_EMPTY_PATH), EACCES);
	profile_leave("/proc/self/attr/apparmor/current", "changeprofile unconfined");
	profile_leave("/proc/self/attr/apparmor/exec", "exec unconfined");
	profile_leave("/proc/self/attr/current", "changeprofile unconfined");
}
