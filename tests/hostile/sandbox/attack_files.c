/*
 * Attacks on operations on files: what changes while it is looked at. See attack.c.
 */
#include "tests/hostile/sandbox/attack.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* /tmp/w/dir is a folder, then a link to the argument, then a folder, as fast as it goes. */
void swap_names(const char *argument)
{
	(void)mkdir("/tmp/w", 0777);
	if (mkdir("/tmp/w/dir", 0777) < 0 || symlink(argument, "/tmp/w/link") < 0)
		say("cannot begin");
	say("swapping");
	for (;;)
		(void)renameat2(AT_FDCWD, "/tmp/w/dir", AT_FDCWD, "/tmp/w/link", RENAME_EXCHANGE);
}

/* /tmp/w/file is a file, a link to the argument, a FIFO, a folder, nothing. */
void swap_kinds(const char *argument)
{
	static const char *const name = "/tmp/w/file";

	(void)mkdir("/tmp/w", 0777);
	say("swapping");
	for (;;) {
		int fd = open("/tmp/w/new", O_CREAT | O_WRONLY, 0666);

		if (fd >= 0 && write(fd, "inside", 6) == 6)
			(void)close(fd);
		(void)rename("/tmp/w/new", name);
		(void)unlink(name);
		(void)symlink(argument, name);
		(void)unlink(name);
		(void)mkfifo(name, 0666);
		(void)unlink(name);
		(void)mkdir(name, 0777);
		(void)rmdir(name);
	}
}

/* A file that grows faster than it is read. */
void grow_file(const char *argument)
{
	static char bytes[1 << 16];
	int fd = open(argument, O_CREAT | O_WRONLY | O_APPEND, 0666);

	say("growing");
	for (long i = 0; fd >= 0; i++) {
		if (write(fd, bytes, sizeof bytes) < 0)
			(void)usleep(100); /* full: it stays so */
		/* Never more than this, or the disk would end it. */
		if (i % 64 == 63)
			(void)ftruncate(fd, 1 << 20);
	}
}

/* A name that stands for a socket. */
void make_socket(const char *argument)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)strncpy(address.sun_path, argument, sizeof address.sun_path - 1);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) < 0)
		say("no socket");
}

static int helper_find(void)
{
	char path[64], name[32];

	for (int pid = 2; pid < 400; pid++) {
		ssize_t n;
		int fd;

		(void)snprintf(path, sizeof path, "/proc/%d/comm", pid);
		fd = open(path, O_RDONLY);
		n = fd < 0 ? 0 : read(fd, name, sizeof name - 1);
		if (fd >= 0)
			(void)close(fd);
		if (n > 0 && !strncmp(name, "dsec-file", 9))
			return pid;
	}
	return 0;
}

/* What can be opened or signalled of a helper that waits: everything that could be said is said. */
void touch_helper(const char *argument)
{
	static const char *const names[] = { "exe", "mem", "maps", "fd/0", "fd/1", "environ" };
	char path[64];
	int pid = 0;

	for (int i = 0; i < 1000 && !(pid = helper_find()); i++)
		(void)usleep(1000);
	if (!pid)
		say("no helper");
	for (unsigned i = 0; pid && i < sizeof names / sizeof *names; i++) {
		(void)snprintf(path, sizeof path, "/proc/%d/%s", pid, names[i]);
		if (open(path, O_RDONLY) >= 0)
			say(path);
	}
	if (pid && *argument)
		(void)kill(pid, atoi(argument));
	say("done");
}
