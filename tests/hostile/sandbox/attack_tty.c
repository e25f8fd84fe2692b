/* Attacks on terminals: on those of other execs, and through one's own on who holds its master. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "tests/hostile/sandbox/attack.h"

static int refused_count;

static void must_be_refused(const char *what, long result)
{
	if (result >= 0)
		printf("%s was allowed\n", what);
	else
		refused_count++;
}

/* Somebody without a terminal takes this one, in a process of its own. */
static void take_as_controlling(int fd)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		refused_count = 0;
		(void)setsid();
		must_be_refused("TIOCSCTTY", ioctl(fd, TIOCSCTTY, 0));
		must_be_refused("TIOCSCTTY by force", ioctl(fd, TIOCSCTTY, 1));
		fflush(stdout);
		_exit(refused_count == 2 ? 0 : 1);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		printf("the terminal was taken\n");
}

/* argument: the terminal of another exec. */
void steal_terminal(const char *argument)
{
	const int discipline = 0;
	int fd = open(argument, O_RDWR | O_NOCTTY);

	if (fd < 0) {
		say(errno == EACCES ? "closed" : strerrorname_np(errno));
		return;
	}
	must_be_refused("TIOCSTI", ioctl(fd, TIOCSTI, "x"));
	/* The upper half of the number is not looked at by the kernel. */
	must_be_refused("TIOCSTI, disguised", ioctl(fd, TIOCSTI | 1ull << 32, "x"));
	must_be_refused("TIOCSETD", ioctl(fd, TIOCSETD, &discipline));
	must_be_refused("TIOCVHANGUP", ioctl(fd, TIOCVHANGUP));
	must_be_refused("TIOCCONS", ioctl(fd, TIOCCONS));
	must_be_refused("TIOCSPGRP", tcsetpgrp(fd, getpgrp()));
	take_as_controlling(fd);
	say("done");
}

static void loop_sizes(int fd)
{
	struct winsize size = { 1, 1, 0, 0 };

	for (;; size.ws_row++)
		(void)ioctl(fd, TIOCSWINSZ, &size);
}

static void loop_modes(int fd)
{
	struct termios mode;

	if (tcgetattr(fd, &mode) < 0)
		return;
	for (;;) {
		mode.c_lflag ^= ICANON | ECHO;
		(void)tcsetattr(fd, TCSANOW, &mode);
	}
}

static void loop_flushes(int fd)
{
	for (;;) {
		(void)tcflush(fd, TCIOFLUSH);
		(void)tcflow(fd, TCOOFF);
		(void)tcflow(fd, TCOON);
	}
}

static void loop_opens(int fd)
{
	for (;;) {
		int again = open("/dev/tty", O_RDWR);

		(void)ioctl(fd, TIOCEXCL);
		(void)ioctl(fd, TIOCNXCL);
		(void)close(again); /* or it was refused */
	}
}

static void loop_writes(int fd)
{
	static const char bytes[4096] = "\x1b[6n\a\r";

	for (;;)
		(void)!write(fd, bytes, sizeof bytes);
}

/* Everything at once, for ever, on its own terminal. */
void wrestle_terminal(const char *argument)
{
	static void (*const loops[])(int fd) = { loop_sizes, loop_modes, loop_flushes, loop_opens,
						 loop_writes };

	(void)argument;
	(void)signal(SIGWINCH, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	say("wrestling");
	for (unsigned i = 0; i < 2 * sizeof loops / sizeof *loops; i++)
		if (fork() == 0)
			loops[i / 2](1);
	for (;;)
		pause();
}
