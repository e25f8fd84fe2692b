/* Attacks on the engine's end of a pipe, by its lock. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/hostile/sandbox/attack.h"

/* argument: 1 or 2. There is something to read, and whoever reads it waits for a silent socket. */
void hold_output(const char *argument)
{
	int pair[2], fd = atoi(argument);

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0 || write(fd, "x", 1) != 1)
		say(strerrorname_np(errno));
	(void)!splice(pair[0], NULL, fd, NULL, 4096, 0); /* for ever */
}

/* What comes goes into a socket that is full: with the lock held. */
void hold_input(const char *argument)
{
	static const char bytes[4096];
	int pair[2];

	(void)argument;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		say(strerrorname_np(errno));
	while (send(pair[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
		continue;
	(void)!splice(STDIN_FILENO, NULL, pair[0], NULL, 4096, 0); /* for ever */
}
