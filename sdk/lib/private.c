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
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sdk/lib/cleanup.h"
#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/program.h"

enum { READY_WAIT_MS = 30 * 1000 };
enum { CHILD_LIFELINE_FD = 3, CHILD_READY_FD = 4, CHILD_FDS = 5 };

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
	*ret_read = fcntl(fds[0], F_DUPFD_CLOEXEC, PROGRAM_FDS_MAX);
	*ret_write = fcntl(fds[1], F_DUPFD_CLOEXEC, PROGRAM_FDS_MAX);
	(void)close(fds[0]); /* nothing to do about a failing close, here and below */
	(void)close(fds[1]);
	if (*ret_read < 0 || *ret_write < 0)
		return -EMFILE;
	return 0;
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
	struct program_start start = { .argv = argv, .fd_count = CHILD_FDS };
	int r;

	(void)snprintf(lifeline, sizeof(lifeline), "%d", CHILD_LIFELINE_FD); /* fits, as below */
	(void)snprintf(ready, sizeof(ready), "%d", CHILD_READY_FD);
	r = pipe_new(&lifeline_read, &engine->lifeline_fd);
	if (r == 0)
		r = pipe_new(&ready_read, &ready_write);
	if (r == 0)
		r = engine->log_fd = dsec__program_log_new();
	if (r < 0)
		return r;
	start.fds[0] = -1;
	start.fds[1] = start.fds[2] = engine->log_fd;
	start.fds[CHILD_LIFELINE_FD] = lifeline_read;
	start.fds[CHILD_READY_FD] = ready_write;
	r = dsec__program_start(&start, &engine->pid, &engine->pidfd);
	if (r < 0)
		return r;
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
		dsec__program_log_reason(engine->log_fd, line, sizeof(line));
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
