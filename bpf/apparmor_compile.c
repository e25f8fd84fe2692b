/*
 * Runs apparmor_parser, once for a profile. Called by guard_apparmor.c, on the control thread, and
 * by tests. Must hold: the parser gets three memfds and nothing else of the engine's, reads no
 * configuration and keeps no cache; it ends in time or is killed, and is reaped.
 */
#include "bpf/apparmor_compile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"

enum { LIMIT_MS = 30000, LIMIT_CPU_S = 25 };

static int file_make(const char *name, const char *text, size_t bytes, int *ret_fd)
{
	auto_close int fd = memfd_create(name, MFD_CLOEXEC);
	ssize_t written;

	if (fd < 0)
		return -errno;
	written = bytes ? pwrite(fd, text, bytes, 0) : 0;
	if (written != (ssize_t)bytes)
		return written < 0 ? -errno : -ENOSPC;
	*ret_fd = take_fd(&fd);
	return 0;
}

static int parser_spawn_with(const posix_spawn_file_actions_t *files, pid_t *ret_pid)
{
	char program[] = "apparmor_parser", option[] = "--config-file", none[] = "/dev/null";
	char quiet[] = "-q", no_cache[] = "-K", no_load[] = "-Q", write_out[] = "-S";
	char *const argv[] = { program, option, none, quiet, no_cache, no_load, write_out, NULL };
	char *const environment[] = { NULL };
	posix_spawnattr_t attributes;
	sigset_t empty, all;
	int r = posix_spawnattr_init(&attributes);

	if (r != 0)
		return -r;
	sigemptyset(&empty);
	sigfillset(&all);
	(void)posix_spawnattr_setsigmask(&attributes, &empty); /* valid */
	(void)posix_spawnattr_setsigdefault(&attributes, &all);
	(void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	r = posix_spawn(ret_pid, APPARMOR_PARSER, files, &attributes, argv, environment);
	(void)posix_spawnattr_destroy(&attributes); /* cannot fail */
	return -r;
}

/* All other descriptors of ours close as they are executed past. */
static int parser_spawn(const int fds[static 3], pid_t *ret_pid)
{
	posix_spawn_file_actions_t files;
	int r = -posix_spawn_file_actions_init(&files);

	if (r < 0)
		return r;
	for (int i = 0; r == 0 && i < 3; i++)
		r = -posix_spawn_file_actions_adddup2(&files, fds[i], i);
	if (r == 0)
		r = parser_spawn_with(&files, ret_pid);
	(void)posix_spawn_file_actions_destroy(&files); /* cannot fail */
	return r;
}

/* Reaped when this returns, however it went. */
static int parser_wait(pid_t pid, int *ret_status)
{
	const struct rlimit limit = { LIMIT_CPU_S, LIMIT_CPU_S };
	auto_close int fd = pidfd_open(pid, 0);
	struct pollfd end = { .fd = fd, .events = POLLIN };
	int r;

	(void)prlimit(pid, RLIMIT_CPU, &limit, NULL); /* it may have ended; the clock counts too */
	do
		r = fd < 0 ? -1 : poll(&end, 1, LIMIT_MS);
	while (r < 0 && fd >= 0 && errno == EINTR);
	if (r <= 0)
		(void)kill(pid, SIGKILL); /* ours until it is reaped */
	while (waitpid(pid, ret_status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return r > 0 ? 0 : -ETIMEDOUT;
}

/* The parser's words, on one line. */
static void words_read(int fd, char *ret_why, size_t why_bytes)
{
	const ssize_t bytes = pread(fd, ret_why, why_bytes - 1, 0);

	ret_why[bytes > 0 ? bytes : 0] = 0;
	for (char *at = ret_why; *at; at++)
		if ((unsigned char)*at < 32 || *at == 127)
			*at = ' ';
}

int apparmor_compile(const char *text, size_t bytes, char *ret_why, size_t why_bytes, int *ret_fd)
{
	auto_close int in = -1, out = -1, words = -1;
	pid_t pid;
	int r = file_make("profile", text, bytes, &in), status = 0;

	ret_why[0] = 0;
	if (r == 0)
		r = file_make("compiled", NULL, 0, &out);
	if (r == 0)
		r = file_make("words", NULL, 0, &words);
	if (r == 0)
		r = parser_spawn((int[]){ in, out, words }, &pid);
	if (r == 0)
		r = parser_wait(pid, &status);
	if (r < 0)
		return r;
	words_read(words, ret_why, why_bytes);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || lseek(out, 0, SEEK_END) <= 0)
		return -EINVAL;
	if (lseek(out, 0, SEEK_SET) < 0)
		return -errno;
	*ret_fd = take_fd(&out);
	return 0;
}
