/* What a program finds of terminals, and what it can do to those of its sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "tests/root/launch/probe.h"

/* Its own: 0, 1 and 2, controlling, and of the program's user. */
void probe_own_terminal(const char *argument)
{
	const int normal = 0, other = 5; /* N_TTY, and one that is never needed */
	struct winsize size = { 0 };
	struct stat found, other_found;
	int tty;

	(void)argument;
	for (int fd = 0; fd < 3; fd++)
		if (!isatty(fd))
			fail("%d is no terminal", fd);
	allowed("stat", fstat(0, &found));
	if (found.st_uid != getuid() || found.st_gid != 5 || (found.st_mode & 0777) != 0620)
		fail("%d:%d %o", found.st_uid, found.st_gid, found.st_mode);
	if (!ttyname(0) || stat(ttyname(0), &other_found) < 0 ||
	    found.st_rdev != other_found.st_rdev || found.st_dev != other_found.st_dev)
		fail("it is %s", ttyname(0) ? ttyname(0) : "not in /dev/pts");
	if (tcgetsid(0) != getsid(0) || getsid(0) != getpid() || tcgetpgrp(0) != getpgrp())
		fail("session %d, group %d of %d", tcgetsid(0), tcgetpgrp(0), getpid());
	tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
	if (tty < 0 && errno != ENOENT) /* not every image of tests has it */
		fail("/dev/tty: %s", strerrorname_np(errno));
	(void)close(tty); /* or there is none */
	refused("TIOCSTI", ioctl(0, TIOCSTI, "x"), EPERM);
	refused("TIOCSETD", ioctl(0, TIOCSETD, &other), EPERM);
	refused("TIOCSETD", ioctl(0, TIOCSETD, &normal), EPERM);
	allowed("TIOCGWINSZ", ioctl(0, TIOCGWINSZ, &size));
	for (int fd = 3; fd < 64; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			fail("%d is open", fd);
	printf("%dx%d\n", size.ws_row, size.ws_col);
}

void probe_no_terminal(const char *argument)
{
	(void)argument;
	refused("/dev/tty", open("/dev/tty", O_RDWR), access("/dev/tty", F_OK) ? ENOENT : ENXIO);
	for (int fd = 0; fd < 3; fd++)
		if (isatty(fd))
			fail("%d is a terminal", fd);
}

/* Every terminal there is, held if asked to. */
void probe_fill_terminals(const char *argument)
{
	int count = 0;

	while (count < 1000 && open("/dev/pts/ptmx", O_RDWR | O_NOCTTY) >= 0)
		count++;
	printf("terminals %d\n", count);
	fflush(stdout);
	if (errno != ENOSPC)
		fail("%s", strerrorname_np(errno));
	while (argument && strcmp(argument, "hold") == 0)
		pause();
}

/* What is found at /dev/pts from now on: the argument. */
void probe_hide_terminals(const char *argument)
{
	allowed("rename", rename("/dev", "/was"));
	if (strcmp(argument, "link") == 0) {
		allowed("symlink", symlink("/was", "/dev"));
		return;
	}
	if (strcmp(argument, "nothing") == 0)
		return;
	allowed("mkdir", mkdir("/dev", 0755));
	allowed("mkdir", mkdir("/dev/pts", 0755));
	if (strcmp(argument, "fifo") == 0)
		allowed("mkfifo", mkfifo("/dev/pts/ptmx", 0666));
	else
		allowed("symlink", symlink("/was/pts/ptmx", "/dev/pts/ptmx"));
}

/* A process that is always a new one: each forks the next and goes. SIGTERM is the end of it. */
void probe_run_away(const char *argument)
{
	(void)argument;
	printf("running\n");
	fflush(stdout);
	(void)setsid(); /* not the leader's: fine */
	for (;;) {
		pid_t pid = fork();

		if (pid > 0)
			_exit(0);
	}
}
