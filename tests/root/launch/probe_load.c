/* Programs that use more than they should, or attack what enters the sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/root/launch/probe.h"

/* argument: at most so many processes; they all go with this one's session leader. */
void probe_forks(const char *argument)
{
	const int most = atoi(argument);
	int count = 0;

	while (count < most + 100) {
		pid_t pid = fork();

		if (pid == 0)
			for (;;)
				pause();
		if (pid < 0)
			break;
		count++;
	}
	printf("forked %d\n", count);
	if (count > most)
		fail("%d processes", count);
	if (errno != EAGAIN)
		fail("%s", strerrorname_np(errno));
	signal(SIGTERM, SIG_IGN);
	kill(-1, SIGTERM);
	while (wait(NULL) > 0)
		;
}

/* Opens inotify instances up to the argument, says how many it got, and holds them if asked to. */
void probe_watches(const char *argument)
{
	int count = 0;

	while (count < 1000 && inotify_init1(0) >= 0)
		count++;
	printf("watches %d\n", count);
	fflush(stdout);
	if (argument && strcmp(argument, "hold") == 0)
		for (;;)
			pause();
}

/* Stops whatever else appears in the sandbox, for ever. */
void probe_stop_all(const char *argument)
{
	(void)argument;
	printf("stopping\n");
	fflush(stdout);
	for (;;)
		(void)kill(-1, SIGSTOP);
}

/* A tree of processes in sessions of their own; the first says when all are there. */
void probe_tree(const char *argument)
{
	const int count = atoi(argument);
	int ends[2];
	char ready;

	allowed("pipe", pipe(ends));
	for (int i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			setsid();
			if (fork() == 0 && write(ends[1], "x", 1) != 1)
				_exit(1);
			for (;;)
				pause();
		}
	}
	for (int i = 0; i < count; i++)
		if (read(ends[0], &ready, 1) != 1)
			fail("no tree");
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}

/* Grandchildren that outlive their parents by a moment: PID 1 must reap them all. */
void probe_orphans(const char *argument)
{
	const int count = atoi(argument);

	for (int i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			if (fork() == 0)
				usleep(1000);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
}

/* Fills /tmp; argument: so many MiB at most. */
void probe_fill(const char *argument)
{
	static char bytes[65536];
	const long most = atol(argument) * 1048576;
	int fd = open("/tmp/fill", O_CREAT | O_WRONLY | O_TRUNC, 0600);
	long total = 0;
	ssize_t r;

	memset(bytes, 'x', sizeof bytes);
	while (total <= most && (r = write(fd, bytes, sizeof bytes)) > 0)
		total += r;
	if (total > most)
		fail("%ld bytes fit", total);
	if (errno != ENOSPC)
		fail("%s", strerrorname_np(errno));
}
