/*
 * Storms from inside a sandbox: one kind, as hard as it goes, until it is killed. Static, put into
 * a sandbox by dsec-storms; nothing else runs it. Must hold: it takes no more than the sandbox's
 * own limits let it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 8, MEMORY_BYTES = 16 << 20, PAGE_BYTES = 4096, NAMES = 2000, TAKEN_MAX = 10000 };

/* ---- kinds: one turn each, called again and again ---- */

static void turn_cpu(int worker)
{
	volatile unsigned counted = 0;

	(void)worker;
	for (int i = 0; i < 1000000; i++)
		counted++;
}

/* Processes that live for a moment: each is an event of the engine's. */
static void turn_death(int worker)
{
	pid_t pid = fork();

	(void)worker;
	if (pid == 0)
		_exit(0);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* To the limit of processes, each of which tries to be more; some flee into sessions. */
static void turn_fork(int worker)
{
	if (fork() == 0 && worker % 2)
		(void)setsid(); /* a leader stays where it is */
}

static void turn_memory(int worker)
{
	char *bytes = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	(void)worker;
	if (bytes == MAP_FAILED)
		return;
	for (size_t at = 0; at < MEMORY_BYTES; at += PAGE_BYTES)
		bytes[at] = 1;
	(void)munmap(bytes, MEMORY_BYTES);
}

/* Takes all it gets, then gives all back. */
static void descriptors_take(int (*open_one)(int i))
{
	int first = -1, last = -1, fd;

	for (int i = 0; i < TAKEN_MAX && (fd = open_one(i)) >= 0; i++) {
		if (first < 0)
			first = fd;
		last = fd;
	}
	if (first >= 0)
		(void)close_range((unsigned)first, (unsigned)last, 0);
}

static int open_file(int i)
{
	(void)i;
	return open("/proc/self/status", O_RDONLY);
}

static int open_watch(int i)
{
	int fd = i % 64 ? -1 : inotify_init1(0);

	if (i % 64)
		return dup(STDIN_FILENO);
	if (fd >= 0)
		(void)inotify_add_watch(fd, "/tmp", IN_ALL_EVENTS);
	return fd;
}

static int open_terminal(int i)
{
	(void)i;
	return posix_openpt(O_RDWR | O_NOCTTY);
}

static int open_queue(int i)
{
	char name[32];
	int fd;

	(void)snprintf(name, sizeof name, "q%d-%d", getpid(), i);
	fd = (int)syscall(SYS_mq_open, name, O_CREAT | O_RDWR, 0600, NULL);
	(void)syscall(SYS_mq_unlink, name);
	return fd;
}

static void turn_descriptors(int worker)
{
	(void)worker;
	descriptors_take(open_file);
}

static void turn_inotify(int worker)
{
	char path[48];

	descriptors_take(open_watch);
	for (int i = 0; i < 100; i++) {
		(void)snprintf(path, sizeof path, "/tmp/watched-%d", worker);
		(void)close(open(path, O_CREAT | O_RDWR, 0600));
		(void)unlink(path);
	}
}

static void turn_pty(int worker)
{
	(void)worker;
	descriptors_take(open_terminal);
}

static void turn_mqueue(int worker)
{
	(void)worker;
	descriptors_take(open_queue);
}

static void turn_inodes(int worker)
{
	char path[48];
	int made = 0;

	for (; made < NAMES; made++) {
		(void)snprintf(path, sizeof path, "/tmp/%d-%d", worker, made);
		int fd = open(path, O_CREAT | O_RDWR, 0600);

		if (fd < 0)
			break;
		(void)close(fd);
	}
	while (made--) {
		(void)snprintf(path, sizeof path, "/tmp/%d-%d", worker, made);
		(void)unlink(path);
	}
}

static void turn_sync(int worker)
{
	char path[48];
	int fd;

	(void)snprintf(path, sizeof path, "/tmp/synced-%d", worker);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	for (int i = 0; i < 100; i++) {
		(void)!write(fd, path, sizeof path);
		(void)fsync(fd);
		sync();
	}
	(void)close(fd);
}

/* What the kernel would write of: programs that crash. */
static void turn_log(int worker)
{
	int *volatile nowhere = NULL;
	pid_t pid = fork();

	(void)worker;
	if (pid == 0) {
		(void)signal(SIGSEGV, SIG_DFL);
		*nowhere = 1;
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static void turn_output(int worker)
{
	static const char bytes[65536];

	(void)!write(worker % 2 ? STDOUT_FILENO : STDERR_FILENO, bytes, sizeof bytes);
}

static void turn_socket(int worker)
{
	static const char bytes[4096];
	int fds[2];

	(void)worker;
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fds) < 0)
		return;
	while (send(fds[0], bytes, sizeof bytes, 0) > 0)
		;
	(void)close(fds[0]);
	(void)close(fds[1]);
}

static const struct {
	const char *name;
	void (*turn)(int worker);
} kinds[] = {
	{ "cpu", turn_cpu },
	{ "death", turn_death },
	{ "fork", turn_fork },
	{ "memory", turn_memory },
	{ "inodes", turn_inodes },
	{ "pty", turn_pty },
	{ "descriptors", turn_descriptors },
	{ "inotify", turn_inotify },
	{ "mqueue", turn_mqueue },
	{ "sync", turn_sync },
	{ "log", turn_log },
	{ "output", turn_output },
	{ "socket", turn_socket },
};

int main(int argc, char **argv)
{
	int worker = 0;

	for (size_t i = 0; argc == 2 && i < sizeof kinds / sizeof *kinds; i++) {
		if (strcmp(kinds[i].name, argv[1]) != 0)
			continue;
		while (worker < WORKERS - 1 && fork() > 0)
			worker++;
		for (;;)
			kinds[i].turn(worker);
	}
	(void)fputs("usage: storm KIND\n", stderr);
	return 2;
}
