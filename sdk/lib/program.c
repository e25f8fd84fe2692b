/*
 * Programs that the library starts for a connection. Called by private.c and ssh.c. A program gets
 * the descriptors it is given and no others, whatever the application has open, and no signal mask
 * or handler of the application.
 */
#include "sdk/lib/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sdk/lib/cleanup.h"

enum { LOG_BYTES = 64 << 10 };

extern char **environ;

static int actions_fill(posix_spawn_file_actions_t *actions, const struct program_start *start)
{
	int r = 0;

	for (int fd = 0; fd < start->fd_count && r == 0; fd++)
		r = start->fds[fd] < 0 ?
			    posix_spawn_file_actions_addopen(actions, fd, "/dev/null", O_RDONLY,
							     0) :
			    posix_spawn_file_actions_adddup2(actions, start->fds[fd], fd);
	if (r == 0)
		r = posix_spawn_file_actions_addclosefrom_np(actions, start->fd_count);
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

static int program_spawn(const struct program_start *start, pid_t *ret_pid)
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
	r = actions_fill(&actions, start);
	if (r == 0)
		r = attributes_fill(&attributes);
	if (r == 0)
		r = -posix_spawnp(ret_pid, start->argv[0], &actions, &attributes,
				  (char *const *)(uintptr_t)start->argv, environ);
	(void)posix_spawnattr_destroy(&attributes); /* frees, as below */
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

int dsec__program_start(const struct program_start *start, pid_t *ret_pid, int *ret_pidfd)
{
	pid_t pid;
	int r, pidfd;

	r = program_spawn(start, &pid);
	if (r < 0)
		return r;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0) {
		r = -errno;
		(void)kill(pid, SIGKILL); /* ours, and not reaped: it is that one */
		(void)waitpid(pid, NULL, 0);
		return r;
	}
	*ret_pid = pid;
	*ret_pidfd = pidfd;
	return 0;
}

int dsec__program_log_new(void)
{
	auto_close int low = memfd_create("dsecd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int fd;

	if (low < 0)
		return -errno;
	fd = fcntl(low, F_DUPFD_CLOEXEC, PROGRAM_FDS_MAX);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, LOG_BYTES) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0) {
		int r = -errno;

		(void)close(fd); /* nothing to do about a failing close */
		return r;
	}
	return fd;
}

void dsec__program_log_reason(int fd, char *line, size_t line_bytes)
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
	while (end && strchr("\r\n", text[end - 1]))
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
