/*
 * The bridge of `dsec port --listen`. Called by port.c. Nothing of a connection is kept when it
 * ends; half-close goes through.
 */
#include "sdk/cli/bridge.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sdk/cli/cleanup.h"

enum { BACKLOG = 64, PIECE_BYTES = 64 << 10 };

struct pair {
	int fds[2]; /* of who connected; of the engine */
	char token[sizeof(((struct dsec_forward *)0)->token) + 1];
};

/* Splits "HOST:PORT" in place. */
static struct addrinfo *address_find(char *text, bool passive)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM,
					.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV |
						    (passive ? AI_PASSIVE : 0) };
	char *colon = strrchr(text, ':'), *host = text;
	struct addrinfo *found = NULL;
	size_t bytes;

	if (!colon) {
		if (getaddrinfo("127.0.0.1", text, &hints, &found))
			return NULL;
		return found;
	}
	*colon = '\0';
	bytes = strlen(host);
	if (bytes > 2 && host[0] == '[' && host[bytes - 1] == ']') {
		host[bytes - 1] = '\0';
		host++;
	}
	if (getaddrinfo(host, colon + 1, &hints, &found))
		return NULL;
	return found;
}

static int address_print(int fd, char *ret, size_t bytes)
{
	struct sockaddr_storage at;
	socklen_t at_bytes = sizeof(at);
	char host[48], port[8];

	if (getsockname(fd, (struct sockaddr *)&at, &at_bytes) < 0)
		return -errno;
	if (getnameinfo((struct sockaddr *)&at, at_bytes, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return -EINVAL;
	(void)snprintf(ret, bytes, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port); /* fits */
	return 0;
}

int bridge_open(struct bridge *bridge, const char *listen_at, const struct dsec_forward *forward)
{
	char text[64];
	struct addrinfo *found;
	const int on = 1;
	int r = 0, fd;

	if (snprintf(text, sizeof(text), "%s", listen_at) >= (int)sizeof(text))
		return -EINVAL;
	found = address_find(text, true);
	if (!found)
		return -EINVAL;
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
		r = -errno;
	freeaddrinfo(found);
	if (r == 0)
		r = address_print(fd, bridge->address, sizeof(bridge->address));
	if (r < 0) {
		if (fd >= 0)
			(void)close(fd); /* of no use */
		return r;
	}
	bridge->listen_fd = fd;
	bridge->forward = *forward;
	return 0;
}

static int engine_connect(const char *address)
{
	char text[64];
	struct addrinfo *found;
	int r = 0, fd;

	(void)snprintf(text, sizeof(text), "%s", address); /* it is as long */
	found = address_find(text, false);
	if (!found)
		return -EINVAL;
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) < 0)
		r = -errno;
	freeaddrinfo(found);
	if (r < 0 && fd >= 0)
		(void)close(fd); /* of no use */
	return r < 0 ? r : fd;
}

static int send_all(int fd, const char *bytes, size_t count)
{
	while (count) {
		ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);

		if (sent < 0 && errno != EINTR)
			return -errno;
		if (sent > 0) {
			bytes += sent;
			count -= (size_t)sent;
		}
	}
	return 0;
}

/* One piece. 0: the stream has ended, and the other side was told; < 0: it failed. */
static ssize_t piece_move(int from, int to, char *buffer)
{
	ssize_t bytes = recv(from, buffer, PIECE_BYTES, 0);

	if (bytes < 0)
		return errno == EINTR ? 1 : -errno;
	if (bytes == 0) {
		(void)shutdown(to, SHUT_WR); /* fails where that side is gone */
		return 0;
	}
	return send_all(to, buffer, (size_t)bytes) < 0 ? -EPIPE : bytes;
}

static void pair_move(struct pair *pair)
{
	struct pollfd waits[2] = { { .fd = pair->fds[0], .events = POLLIN },
				   { .fd = pair->fds[1], .events = POLLIN } };
	auto_free char *buffer = malloc(PIECE_BYTES);

	while (buffer && (waits[0].fd >= 0 || waits[1].fd >= 0)) {
		if (poll(waits, 2, -1) < 0 && errno != EINTR)
			return;
		for (int i = 0; i < 2; i++) {
			ssize_t moved;

			if (waits[i].fd < 0 || !waits[i].revents)
				continue;
			moved = piece_move(pair->fds[i], pair->fds[!i], buffer);
			if (moved < 0)
				return;
			if (moved == 0)
				waits[i].fd = -1;
		}
	}
}

static void *pair_run(void *argument)
{
	struct pair *pair = argument;

	if (send_all(pair->fds[1], pair->token, strlen(pair->token)) == 0)
		pair_move(pair);
	(void)close(pair->fds[0]);
	(void)close(pair->fds[1]);
	free(pair);
	return NULL;
}

static int pair_start(const struct bridge *bridge, int fd)
{
	struct pair *pair = calloc(1, sizeof(*pair));
	pthread_t thread;
	int r;

	if (!pair) {
		(void)close(fd); /* who connected sees that */
		return 0;
	}
	pair->fds[0] = fd;
	pair->fds[1] = r = engine_connect(bridge->forward.address);
	(void)snprintf(pair->token, sizeof(pair->token), "%s\n", bridge->forward.token); /* fits */
	if (r >= 0) {
		r = -pthread_create(&thread, NULL, pair_run, pair);
		if (r == 0)
			(void)pthread_detach(thread); /* it frees what it has */
		else
			(void)close(pair->fds[1]);
	}
	if (r >= 0)
		return 0;
	(void)close(fd); /* who connected sees that */
	free(pair);
	return r == -EAGAIN ? 0 : r;
}

int bridge_run(struct bridge *bridge)
{
	int r = 0;

	while (r >= 0) {
		int fd = accept4(bridge->listen_fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0)
			r = pair_start(bridge, fd);
		else if (errno != EINTR && errno != ECONNABORTED && errno != EMFILE)
			r = -errno;
	}
	(void)close(bridge->listen_fd);
	return r;
}
