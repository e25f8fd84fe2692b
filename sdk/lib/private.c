/*
 * An engine of one's own: started for one connection, gone with it. Called by dsec_open() and
 * dsec_close().
 *
 * What ties it to us is the lifeline, a pipe whose write end only we hold: however we end, the
 * engine reads its end and destroys everything. It runs in a session of its own, so that a
 * terminal's Ctrl-C reaches us and not it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sdk/lib/cleanup.h"
#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"

enum { READY_WAIT_MS = 30 * 1000, LOG_BYTES = 64 << 10, FDS_FIRST = 10 };
enum { CHILD_LIFELINE_FD = 3, CHILD_READY_FD = 4, CHILD_FDS = 5 };

extern char **environ;

/* $DSEC_DSECD, or ../engine/dsecd from this program (a build tree), or the installed one. */
static int program_find(char *path, size_t path_bytes)
{
	const char *given = getenv("DSEC_DSECD");
	char self[4096];
	ssize_t n;
	char *slash;

	if (given && *given) {
		if (snprintf(path, path_bytes, "%s", given) >= (int)path_bytes)
			return -ENAMETOOLONG;
		return access(path, X_OK) < 0 ? -errno : 0;
	}
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n > 0) {
		self[n] = '\0';
		slash = strrchr(self, '/');
		*slash = '\0';
		if (snprintf(path, path_bytes, "%s/../engine/dsecd", self) < (int)path_bytes &&
		    access(path, X_OK) == 0)
			return 0;
	}
	(void)snprintf(path, path_bytes, "/usr/sbin/dsecd"); /* fits */
	return access(path, X_OK) < 0 ? -errno : 0;
}

/* A pipe whose ends lie where they cannot be in the way of the child's. */
static int pipe_new(int *ret_read, int *ret_write)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	*ret_read = fcntl(fds[0], F_DUPFD_CLOEXEC, FDS_FIRST);
	*ret_write = fcntl(fds[1], F_DUPFD_CLOEXEC, FDS_FIRST);
	(void)close(fds[0]); /* nothing to do about a failing close, here and below */
	(void)close(fds[1]);
	if (*ret_read < 0 || *ret_write < 0)
		return -EMFILE;
	return 0;
}

/* What the engine says: the first 64 KiB, then writes fail and it goes on. */
static int log_new(void)
{
	auto_close int low = memfd_create("dsecd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int fd;

	if (low < 0)
		return -errno;
	fd = fcntl(low, F_DUPFD_CLOEXEC, FDS_FIRST);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, LOG_BYTES) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0) {
		int r = -errno;

		(void)close(fd); /* as above */
		return r;
	}
	return fd;
}

/* What it said of why it ended: its first error, which the others follow from, or its last line. */
static void log_reason(int fd, char *line, size_t line_bytes)
{
	static const char mark[] = " dsecd error ";
	char text[LOG_BYTES + 1];
	ssize_t n = pread(fd, text, LOG_BYTES, 0);
	char *start, *found;
	size_t end;

	line[0] = '\0';
	if (n <= 0)
		return;
	text[n] = '\0';
	end = strlen(text);
	while (end && text[end - 1] == '\n')
		text[--end] = '\0';
	start = strrchr(text, '\n');
	start = start ? start + 1 : text;
	found = strstr(text, mark);
	if (found) {
		start = found + strlen(mark);
		start[strcspn(start, "\n")] = '\0';
	}
	(void)snprintf(line, line_bytes, "%s", start); /* cut is fine */
}

struct spawn {
	int lifeline_fd, ready_fd, log_fd;
	const char *const *argv;
};

static int actions_fill(posix_spawn_file_actions_t *actions, const struct spawn *spawn)
{
	int r;

	r = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, spawn->log_fd, 1);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, spawn->log_fd, 2);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, spawn->lifeline_fd,
						     CHILD_LIFELINE_FD);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, spawn->ready_fd, CHILD_READY_FD);
	if (r == 0)
		r = posix_spawn_file_actions_addclosefrom_np(actions, CHILD_FDS);
	return -r;
}

static int attributes_fill(posix_spawnattr_t *attributes)
{
	sigset_t none, all;

	(void)sigemptyset(&none); /* neither can fail */
	(void)sigfillset(&all);
	/* None of these can fail: the values are good. */
	(void)posix_spawnattr_setsigmask(attributes, &none);
	(void)posix_spawnattr_setsigdefault(attributes, &all);
	return -posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
							     POSIX_SPAWN_SETSIGDEF);
}

static int program_spawn(const struct spawn *spawn, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int r;

	r = posix_spawn_file_actions_init(&actions);
	if (r)
		return -r;
	r = posix_spawnattr_init(&attributes);
	if (r) {
		(void)posix_spawn_file_actions_destroy(&actions); /* frees */
		return -r;
	}
	r = actions_fill(&actions, spawn);
	if (r == 0)
		r = attributes_fill(&attributes);
	if (r == 0)
		r = -posix_spawn(ret_pid, spawn->argv[0], &actions, &attributes,
				 (char *const *)(uintptr_t)spawn->argv, environ);
	(void)posix_spawnattr_destroy(&attributes); /* frees, as below */
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

static int ready_await(int fd)
{
	static const char ready[] = "ready\n";
	int64_t end = dsec__clock_ns() + READY_WAIT_MS * 1000000ll;
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };
	char text[sizeof(ready)];
	size_t have = 0;

	while (have < sizeof(ready) - 1) {
		int64_t left_ms = (end - dsec__clock_ns()) / 1000000;
		ssize_t n;

		if (left_ms <= 0)
			return -ETIMEDOUT;
		if (poll(&pollfd, 1, (int)left_ms) <= 0)
			continue;
		n = read(fd, text + have, sizeof(ready) - 1 - have);
		if (n == 0)
			return -ECHILD;
		if (n > 0)
			have += (size_t)n;
		else if (errno != EINTR)
			return -errno;
	}
	return memcmp(text, ready, have) == 0 ? 0 : -EPROTO;
}

static int engine_name(struct private_engine *engine)
{
	uint16_t number;

	/* The process may have several: a random part keeps them apart. */
	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -EIO;
	(void)snprintf(engine->instance, sizeof(engine->instance), "private-%d-%04x", getpid(),
		       number); /* fits, as below */
	(void)snprintf(engine->socket, sizeof(engine->socket), "/run/dsec-%s.sock",
		       engine->instance);
	return 0;
}

static int engine_spawn(struct private_engine *engine, const char *program, const char *images)
{
	char lifeline[12], ready[12];
	const char *argv[] = { program, "--instance", engine->instance, "--socket", engine->socket,
			       "--lifeline", lifeline, "--ready-fd", ready,
			       /* One of many small ones may be started for a command each. */
			       "--shards", "1", "--sandboxes-max", "128",
			       images ? "--images" : NULL, images, NULL };
	auto_close int lifeline_read = -1;
	auto_close int ready_read = -1;
	auto_close int ready_write = -1;
	struct spawn spawn = { .argv = argv };
	int r;

	(void)snprintf(lifeline, sizeof(lifeline), "%d", CHILD_LIFELINE_FD); /* fits, as below */
	(void)snprintf(ready, sizeof(ready), "%d", CHILD_READY_FD);
	r = pipe_new(&lifeline_read, &engine->lifeline_fd);
	if (r == 0)
		r = pipe_new(&ready_read, &ready_write);
	if (r == 0)
		r = engine->log_fd = log_new();
	if (r < 0)
		return r;
	spawn.lifeline_fd = lifeline_read;
	spawn.ready_fd = ready_write;
	spawn.log_fd = engine->log_fd;
	r = program_spawn(&spawn, &engine->pid);
	if (r < 0)
		return r;
	engine->pidfd = (int)syscall(SYS_pidfd_open, engine->pid, 0);
	(void)close(take_fd(&ready_write)); /* else its end would not be seen */
	return ready_await(ready_read);
}

int dsec__private_start(struct dsec *d, const char *images)
{
	struct private_engine *engine = &d->engine;
	char program[4096], line[256];
	int r;

	r = program_find(program, sizeof(program));
	if (r < 0)
		return dsec__fail(r,
				  "open: no engine program: $DSEC_DSECD, ../engine/dsecd or "
				  "/usr/sbin/dsecd: %s",
				  strerror(-r));
	r = engine_name(engine);
	if (r == 0)
		r = engine_spawn(engine, program, images);
	if (r == 0)
		return 0;
	line[0] = '\0';
	if (engine->log_fd >= 0)
		log_reason(engine->log_fd, line, sizeof(line));
	return dsec__fail(r, "open: %s did not start: %s", program,
			  line[0]      ? line :
			  r == -ECHILD ? "it ended before it was ready" :
			  r == -EPROTO ? "it said something else than ready" :
					 strerror(-r));
}

/* Bounded: an engine that takes longer ends by itself later. */
static void engine_await(const struct private_engine *engine)
{
	int64_t end = dsec__clock_ns() + CLOSE_WAIT_MS * 1000000ll;
	struct pollfd pollfd = { .fd = engine->pidfd, .events = POLLIN };
	int64_t left_ms;
	int r;

	do {
		left_ms = (end - dsec__clock_ns()) / 1000000;
		r = left_ms > 0 ? poll(&pollfd, 1, (int)left_ms) : 0;
	} while (r < 0 && errno == EINTR);
	(void)waitpid(engine->pid, NULL, WNOHANG); /* the application may have reaped it */
}

void dsec__private_stop(struct dsec *d)
{
	struct private_engine *engine = &d->engine;

	if (engine->lifeline_fd >= 0)
		(void)close(engine->lifeline_fd); /* nothing to do about a failing close */
	if (engine->pidfd >= 0) {
		engine_await(engine);
		(void)close(engine->pidfd); /* as above */
	}
	if (engine->log_fd >= 0)
		(void)close(engine->log_fd); /* as above */
	engine->lifeline_fd = engine->pidfd = engine->log_fd = -1;
}
