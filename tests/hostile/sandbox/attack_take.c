/*
 * Exhaustion: takes as many of one thing as the sandbox gets, says how many and what stopped it,
 * and holds them. Called by attack.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/hostile/sandbox/attack.h"

enum { TAKE_MAX = 1000000, CHILDREN = 40 };

static int open_file(int i)
{
	(void)i;
	return open("/etc/passwd", O_RDONLY);
}

static int open_watch(int i)
{
	(void)i;
	return inotify_init1(0);
}

static int open_terminal(int i)
{
	(void)i;
	return posix_openpt(O_RDWR | O_NOCTTY);
}

static int open_queue(int i)
{
	char name[32];

	(void)snprintf(name, sizeof name, "queue-%d-%d", getpid(), i);
	return (int)syscall(SYS_mq_open, name, O_CREAT | O_RDWR, 0600, NULL);
}

static int open_poll(int i)
{
	int fd = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };

	(void)i;
	if (fd >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, 0, &event) < 0 && errno != EPERM)
		return -1;
	return fd;
}

/* As large as it may be, and full. */
static int open_pipe(int i)
{
	static char bytes[65536];
	int fds[2];

	(void)i;
	if (pipe2(fds, O_NONBLOCK) < 0)
		return -1;
	(void)fcntl(fds[0], F_SETPIPE_SZ, 1 << 20);
	while (write(fds[1], bytes, sizeof bytes) > 0)
		;
	return fds[0];
}

static int open_socket(int i)
{
	static char bytes[4096];
	int fds[2];

	(void)i;
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fds) < 0)
		return -1;
	while (send(fds[0], bytes, sizeof bytes, 0) > 0)
		;
	return fds[0];
}

/* In many processes, so that no limit of one process is what stops it. */
static void take(const char *what, int (*open_one)(int i))
{
	struct rlimit files;
	int count = 0;

	(void)getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &files);
	for (int i = 0; i < CHILDREN && fork() > 0; i++)
		;
	while (count < TAKE_MAX && open_one(count) >= 0)
		count++;
	printf("%s %d %s\n", what, count, strerrorname_np(errno));
	fflush(stdout);
	for (;;)
		pause();
}

void take_files(const char *argument)
{
	(void)argument;
	take("files", open_file);
}

void take_watches(const char *argument)
{
	(void)argument;
	take("watches", open_watch);
}

void take_terminals(const char *argument)
{
	(void)argument;
	take("terminals", open_terminal);
}

void take_queues(const char *argument)
{
	(void)argument;
	take("queues", open_queue);
}

void take_polls(const char *argument)
{
	(void)argument;
	take("polls", open_poll);
}

void take_pipes(const char *argument)
{
	(void)argument;
	take("pipes", open_pipe);
}

void take_sockets(const char *argument)
{
	(void)argument;
	take("sockets", open_socket);
}

/* What a neighbour needs: says what it cannot have. */
void one_of_each(const char *argument)
{
	static const struct {
		const char *what;
		int (*open_one)(int i);
	} kinds[] = {
		{ "file", open_file },	   { "watch", open_watch }, { "terminal", open_terminal },
		{ "queue", open_queue },   { "poll", open_poll },   { "pipe", open_pipe },
		{ "socket", open_socket },
	};

	(void)argument;
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (kinds[i].open_one(0) < 0)
			printf("no %s: %s\n", kinds[i].what, strerrorname_np(errno));
	printf("done\n");
}
