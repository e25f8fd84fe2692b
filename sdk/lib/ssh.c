/*
 * The way to an engine on another host: ssh runs `dsec proxy` there, which joins its standard input
 * and output to the engine's socket; the inline transport does the rest. Called by open.c,
 * handshakes and reconnect.c through dsec__connect() and dsec__ssh_stop().
 *
 * ssh is started with an argument vector; what it hands to the far side's shell is words of ours
 * and a path in which no character means anything to a shell. It never asks for a password: nobody
 * may wait for a person here.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sdk/lib/cleanup.h"
#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/program.h"

enum { END_WAIT_MS = 1000, KILLED_WAIT_MS = 100 };

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/* Of letters, digits and `others` alone, and no option. */
static bool word_good(const char *word, const char *others)
{
	if (!*word || *word == '-')
		return false;
	for (; *word; word++) {
		if (!strchr(letters, *word) && !strchr(others, *word))
			return false;
	}
	return true;
}

/* "[user@]host[:path]", where a host with colons stands in brackets. */
static int address_split(struct ssh *ssh, char *text)
{
	char *at = strchr(text, '@'), *host = text, *end;

	if (at && at < strchrnul(text, '/'))
		host = at + 1;
	end = *host == '[' ? strchr(host, ']') : NULL;
	end = end ? end + 1 : host + strcspn(host, ":");
	if (*end && *end != ':')
		return -EINVAL;
	ssh->path = *end ? end + 1 : NULL;
	*end = '\0';
	ssh->host = text;
	if (!word_good(text, "@._-:[]%"))
		return -EINVAL;
	/* ssh itself knows no brackets here. */
	if (*host == '[') {
		host[strlen(host) - 1] = '\0';
		memmove(host, host + 1, strlen(host));
	}
	if (!*host || *host == '-')
		return -EINVAL;
	return !ssh->path || (*ssh->path == '/' && word_good(ssh->path, "/._-+=,@%")) ? 0 : -EINVAL;
}

int dsec__ssh_parse(struct dsec *d, const char *address)
{
	struct ssh *ssh = &d->ssh;

	ssh->text = strdup(address);
	if (!ssh->text)
		return dsec__fail(-ENOMEM, "open: no memory");
	if (address_split(ssh, ssh->text) < 0)
		return dsec__fail(-EINVAL, "open: ssh:%s: not ssh:[USER@]HOST[:/PATH]", address);
	return 0;
}

/* Two ends of one socket, where they are in nobody's way. */
static int ends_new(int *ret_ours, int *ret_its)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	*ret_ours = fds[0];
	*ret_its = fcntl(fds[1], F_DUPFD_CLOEXEC, PROGRAM_FDS_MAX);
	(void)close(fds[1]); /* nothing to do about a failing close */
	if (*ret_its < 0 || fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

int dsec__ssh_connect(struct dsec *d)
{
	struct ssh *ssh = &d->ssh;
	const char *argv[] = { "ssh", "-T",	 "-a",	 "-x",	  "-o",	     "BatchMode=yes",
			       "--",  ssh->host, "dsec", "proxy", ssh->path, NULL };
	struct program_start start = { .argv = argv, .fd_count = 3 };
	auto_close int ours = -1;
	auto_close int its = -1;
	int r;

	dsec__ssh_stop(d); /* of the link before */
	ssh->log_fd = dsec__program_log_new();
	if (ssh->log_fd < 0)
		return ssh->log_fd;
	r = ends_new(&ours, &its);
	if (r < 0)
		return r;
	start.fds[0] = start.fds[1] = its;
	start.fds[2] = ssh->log_fd;
	r = dsec__program_start(&start, &ssh->pid, &ssh->pidfd);
	if (r < 0)
		return dsec__fail(r, "open: ssh does not start: %s", strerror(-r));
	d->socket_fd = take_fd(&ours);
	return 0;
}

/* Waits until it has ended, dropping what still comes: it may want to be rid of that first. */
static bool end_await(const struct dsec *d, int wait_ms)
{
	int64_t end_ns = dsec__clock_ns() + wait_ms * 1000000ll;
	struct pollfd fds[2] = { { .fd = d->ssh.pidfd, .events = POLLIN },
				 { .fd = d->socket_fd, .events = POLLIN } };
	char dropped[4096];
	siginfo_t info;

	while (!fds[0].revents) {
		int64_t left_ms = (end_ns - dsec__clock_ns()) / 1000000;
		int r = poll(fds, 2, left_ms > 0 ? (int)left_ms : 0);

		if (r == 0 || (r < 0 && errno != EINTR))
			return false;
		if (r > 0 && fds[1].revents && recv(fds[1].fd, dropped, sizeof(dropped), 0) <= 0)
			fds[1].fd = -1;
	}
	/* It fails where the application reaped it already. */
	(void)waitid(P_PIDFD, (id_t)d->ssh.pidfd, &info, WEXITED | WNOHANG);
	return true;
}

void dsec__ssh_finish(struct dsec *d)
{
	(void)shutdown(d->socket_fd, SHUT_WR); /* it fails where the other end is gone */
	(void)end_await(d, CLOSE_WAIT_MS);     /* one that does not end is killed */
}

void dsec__ssh_stop(struct dsec *d)
{
	struct ssh *ssh = &d->ssh;

	if (ssh->pidfd >= 0) {
		/* It fails where it has ended; a slow one is the application's zombie. */
		(void)syscall(SYS_pidfd_send_signal, ssh->pidfd, SIGKILL, NULL, 0);
		(void)end_await(d, KILLED_WAIT_MS);
		(void)close(ssh->pidfd); /* nothing to do about a failing close, here and below */
	}
	if (ssh->log_fd >= 0)
		(void)close(ssh->log_fd);
	ssh->pidfd = ssh->log_fd = -1;
}

int dsec__ssh_failed(struct dsec *d, int r)
{
	char line[256];

	(void)end_await(d, END_WAIT_MS); /* it says last what is wrong */
	dsec__program_log_reason(d->ssh.log_fd, line, sizeof(line));
	return dsec__fail(r == -ETIMEDOUT ? r : -ECONNREFUSED, "open: no engine by ssh %s: %s",
			  d->ssh.host, line[0] ? line : strerror(-r));
}
