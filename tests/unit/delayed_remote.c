/*
 * A remote by HTTP on loopback that is far away: delayed_remote FOLDER DELAY_US [PORT]. It prints
 * its port, answers requests for ranges of FOLDER/HEX, each so much later than it came, and ends
 * with its standard input. One thread, so that what is measured has the other CPU; the delay is the
 * same for all, so answers begin in the order in which requests came.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"

enum { REQUEST_BYTES_MAX = 4096, EVENTS = 64, HEAD_BYTES_MAX = 256, NAME_BYTES = 65 };

/* One request at a time: who wants more at once has more connections. */
struct connection {
	struct connection *next; /* due later */
	uint64_t due_ns;
	int fd, file;
	bool is_due;
	uint32_t got;
	char request[REQUEST_BYTES_MAX];
	char head[HEAD_BYTES_MAX];
	size_t head_bytes, head_sent;
	off_t at, end;
};

struct remote {
	int folder_fd, listen_fd, epoll_fd;
	uint64_t delay_ns;
	struct connection *first, **last;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail */
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

static void connection_free(struct connection *connection)
{
	cleanup_close(&connection->fd);
	cleanup_close(&connection->file);
	free(connection);
}

static void watch(const struct remote *remote, struct connection *connection, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = connection };

	if (epoll_ctl(remote->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event) < 0)
		die("epoll_ctl");
}

/* ---- a request ---- */

static bool request_parse(const struct remote *remote, struct connection *connection)
{
	const char *path = strstr(connection->request, "/blobs/sha256/");
	const char *range = strcasestr(connection->request, "\nrange: bytes=");
	unsigned long long first, last;
	char name[NAME_BYTES];
	struct stat st;

	if (!path || !range || sscanf(path, "/blobs/sha256/%64[0-9a-f]", name) != 1 ||
	    sscanf(range, "%*[^=]=%llu-%llu", &first, &last) != 2)
		return false;
	cleanup_close(&connection->file);
	connection->file = openat(remote->folder_fd, name, O_RDONLY | O_CLOEXEC);
	if (connection->file < 0 || fstat(connection->file, &st) < 0) {
		connection->at = connection->end = 0;
		connection->head_bytes =
			(size_t)snprintf(connection->head, HEAD_BYTES_MAX,
					 "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
		return true;
	}
	if (last >= (unsigned long long)st.st_size)
		last = (unsigned long long)st.st_size - 1;
	if (first > last)
		return false;
	connection->at = (off_t)first;
	connection->end = (off_t)last + 1;
	connection->head_bytes =
		(size_t)snprintf(connection->head, HEAD_BYTES_MAX,
				 "HTTP/1.1 206 Partial Content\r\nContent-Length: %llu\r\n"
				 "Content-Range: bytes %llu-%llu/%lld\r\n\r\n",
				 last - first + 1, first, last, (long long)st.st_size);
	return true;
}

/* False: it ends. */
static bool request_read(struct remote *remote, struct connection *connection)
{
	ssize_t n = recv(connection->fd, connection->request + connection->got,
			 REQUEST_BYTES_MAX - 1 - connection->got, 0);

	if (n <= 0)
		return n < 0 && errno == EAGAIN;
	connection->got += (uint32_t)n;
	connection->request[connection->got] = 0;
	if (!strstr(connection->request, "\r\n\r\n"))
		return connection->got < REQUEST_BYTES_MAX - 1;
	connection->got = 0;
	connection->head_sent = 0;
	if (!request_parse(remote, connection))
		return false;
	connection->is_due = true;
	connection->due_ns = now_ns() + remote->delay_ns;
	connection->next = NULL;
	*remote->last = connection;
	remote->last = &connection->next;
	watch(remote, connection, 0);
	return true;
}

/* False: it ends. */
static bool answer_send(const struct remote *remote, struct connection *connection)
{
	ssize_t n = 0;

	while (connection->head_sent < connection->head_bytes && n >= 0) {
		n = send(connection->fd, connection->head + connection->head_sent,
			 connection->head_bytes - connection->head_sent,
			 MSG_NOSIGNAL | (connection->at < connection->end ? MSG_MORE : 0));
		connection->head_sent += n > 0 ? (size_t)n : 0;
	}
	while (n >= 0 && connection->at < connection->end) {
		n = sendfile(connection->fd, connection->file, &connection->at,
			     (size_t)(connection->end - connection->at));
		if (n == 0)
			return false; /* the file was cut */
	}
	if (n < 0 && errno != EAGAIN)
		return false;
	watch(remote, connection, n < 0 ? EPOLLOUT : EPOLLIN);
	return true;
}

/* ---- the loop ---- */

static void connection_take(struct remote *remote)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct connection *connection = calloc(1, sizeof *connection);
	const int one = 1;

	if (!connection)
		die("calloc");
	connection->file = -1;
	connection->fd = accept4(remote->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	event.data.ptr = connection;
	if (connection->fd < 0 ||
	    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0 ||
	    epoll_ctl(remote->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) < 0)
		connection_free(connection);
}

/* How long until the next is due; NULL: none is. */
static const struct timespec *due_send(struct remote *remote, struct timespec *ret)
{
	const uint64_t now = now_ns();
	struct connection *connection;

	while ((connection = remote->first) && connection->due_ns <= now) {
		remote->first = connection->next;
		if (!remote->first)
			remote->last = &remote->first;
		connection->is_due = false;
		if (!answer_send(remote, connection))
			connection_free(connection);
	}
	if (!connection)
		return NULL;
	ret->tv_sec = (time_t)((connection->due_ns - now) / 1000000000u);
	ret->tv_nsec = (long)((connection->due_ns - now) % 1000000000u);
	return ret;
}

static void event_take(struct remote *remote, const struct epoll_event *event)
{
	struct connection *connection = event->data.ptr;
	bool stays;

	if (event->data.ptr == &remote->listen_fd) {
		connection_take(remote);
		return;
	}
	if (event->data.ptr == remote)
		exit(0); /* who started us has gone */
	if (connection->is_due)
		return; /* it is told when it is due */
	stays = event->events & EPOLLOUT ? answer_send(remote, connection) :
					   request_read(remote, connection);
	if (!stays)
		connection_free(connection);
}

static void remote_listen(struct remote *remote, uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons(port),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct epoll_event listens = { .events = EPOLLIN, .data.ptr = &remote->listen_fd };
	struct epoll_event ends = { .events = EPOLLIN, .data.ptr = remote };
	socklen_t bytes = sizeof address;
	const int one = 1;

	remote->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	remote->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (remote->listen_fd < 0 || remote->epoll_fd < 0 ||
	    setsockopt(remote->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
	    bind(remote->listen_fd, (struct sockaddr *)&address, sizeof address) < 0 ||
	    listen(remote->listen_fd, 128) < 0 ||
	    getsockname(remote->listen_fd, (struct sockaddr *)&address, &bytes) < 0 ||
	    epoll_ctl(remote->epoll_fd, EPOLL_CTL_ADD, remote->listen_fd, &listens) < 0 ||
	    epoll_ctl(remote->epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &ends) < 0)
		die("listen");
	printf("%u\n", ntohs(address.sin_port));
	if (fflush(stdout) < 0)
		die("stdout");
}

int main(int argc, char **argv)
{
	struct remote remote = { .folder_fd = -1 };
	struct epoll_event events[EVENTS];
	struct timespec rest;

	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: delayed_remote FOLDER DELAY_US [PORT] < pipe\n");
		return 2;
	}
	remote.folder_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (remote.folder_fd < 0)
		die(argv[1]);
	remote.delay_ns = strtoull(argv[2], NULL, 10) * 1000;
	remote.last = &remote.first;
	(void)signal(SIGPIPE, SIG_IGN); /* who asked may have gone: sendfile(2) says so, too */
	remote_listen(&remote, argc == 4 ? (uint16_t)strtoul(argv[3], NULL, 10) : 0);
	for (;;) {
		const int count = epoll_pwait2(remote.epoll_fd, events, EVENTS,
					       due_send(&remote, &rest), NULL);

		if (count < 0 && errno != EINTR)
			die("epoll_pwait2");
		for (int i = 0; i < count; i++)
			event_take(&remote, &events[i]);
	}
}
