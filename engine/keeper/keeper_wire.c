/*
 * Owns the engine's side of the keeper's socket, and the packets of both sides. Called by the
 * engine's control thread and by the keeper. No descriptor that arrives is ever lost: it is
 * returned or closed.
 */
#include "engine/keeper/keeper_wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/keeper/keeper.h"

enum { DESCRIPTORS_MAX = 8 }; /* room to receive what must not come, so that it can be closed */

static int exchange(int keeper_fd, struct keeper_request *request, int fd,
		    struct keeper_reply *ret_reply, int *ret_fd);

int keeper_ask(int keeper_fd, int32_t pid, int *ret_status, uint64_t *ret_time_ns)
{
	struct keeper_request request = { .op = KEEPER_ASK, .pid = pid };
	struct keeper_reply reply;
	int r;

	r = exchange(keeper_fd, &request, -1, &reply, NULL);
	if (r < 0)
		return r;
	*ret_status = reply.status;
	*ret_time_ns = reply.time_ns;
	return 0;
}

static int name_put(struct keeper_request *request, const char *name)
{
	size_t bytes = strlen(name);

	if (bytes < 1 || bytes > PARKING_NAME_BYTES_MAX)
		return -EINVAL;
	memcpy(request->name, name, bytes + 1);
	return 0;
}

int keeper_put(int keeper_fd, const char *name, int fd)
{
	struct keeper_request request = { .op = KEEPER_PUT };
	struct keeper_reply reply;
	int r;

	r = name_put(&request, name);
	if (r < 0)
		return r;
	return exchange(keeper_fd, &request, fd, &reply, NULL);
}

int keeper_get(int keeper_fd, const char *name, int *ret_fd)
{
	struct keeper_request request = { .op = KEEPER_GET };
	struct keeper_reply reply;
	int r, fd = -1;

	r = name_put(&request, name);
	if (r < 0)
		return r;
	r = exchange(keeper_fd, &request, -1, &reply, &fd);
	if (r < 0)
		return r;
	if (fd < 0)
		return -EBADMSG;
	*ret_fd = fd;
	return 0;
}

int keeper_drop(int keeper_fd, const char *name)
{
	struct keeper_request request = { .op = KEEPER_DROP };
	struct keeper_reply reply;
	int r;

	r = name_put(&request, name);
	if (r < 0)
		return r;
	return exchange(keeper_fd, &request, -1, &reply, NULL);
}

int keeper_name(int keeper_fd, uint32_t at, char *ret_name)
{
	struct keeper_request request = { .op = KEEPER_NAME, .at = at };
	struct keeper_reply reply;
	int r;

	r = exchange(keeper_fd, &request, -1, &reply, NULL);
	if (r < 0)
		return r;
	if (strnlen(reply.name, sizeof(reply.name)) > PARKING_NAME_BYTES_MAX)
		return -EBADMSG;
	strcpy(ret_name, reply.name);
	return 0;
}

int keeper_wire_send(int socket_fd, const void *packet, size_t bytes, int fd, int flags)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec part = { .iov_base = (void *)packet, .iov_len = bytes };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t n;

	if (fd >= 0) {
		struct cmsghdr *header;

		message.msg_control = control.bytes;
		message.msg_controllen = sizeof(control.bytes);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	}
	do
		n = sendmsg(socket_fd, &message, flags | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	return 0;
}

/* The first descriptor of a message; the others are closed. */
static int descriptor_take(struct msghdr *message)
{
	int first = -1;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h; h = CMSG_NXTHDR(message, h)) {
		size_t count;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
			if (first < 0)
				first = fd;
			else
				(void)close(fd); /* was not asked for */
		}
	}
	return first;
}

int keeper_wire_receive(int socket_fd, void *packet, size_t bytes, int flags, int *ret_fd)
{
	union {
		char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = { .iov_base = packet, .iov_len = bytes };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	auto_close int fd = -1;
	ssize_t n;

	do
		n = recvmsg(socket_fd, &message, flags | MSG_CMSG_CLOEXEC | MSG_TRUNC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	fd = descriptor_take(&message);
	if (n == 0)
		return -EPIPE;
	if ((size_t)n != bytes)
		return -EBADMSG;
	*ret_fd = take_fd(&fd);
	return 0;
}

/*
 * One request, one reply. A reply that comes after we gave up on it is told by its tag and skipped.
 */
static int exchange(int keeper_fd, struct keeper_request *request, int fd,
		    struct keeper_reply *ret_reply, int *ret_fd)
{
	struct timeval limit = { .tv_sec = KEEPER_ANSWER_MS / 1000 };
	struct timespec now;
	int r;

	if (setsockopt(keeper_fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
	    setsockopt(keeper_fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
		return -errno;
	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	request->tag = (uint32_t)now.tv_nsec ^ (uint32_t)now.tv_sec << 30;
	r = keeper_wire_send(keeper_fd, request, sizeof(*request), fd, 0);
	while (r >= 0) {
		auto_close int got = -1;

		r = keeper_wire_receive(keeper_fd, ret_reply, sizeof(*ret_reply), 0, &got);
		if (r < 0 || ret_reply->tag != request->tag)
			continue;
		if (ret_reply->error)
			return -ret_reply->error;
		if (ret_fd)
			*ret_fd = take_fd(&got);
		return 0;
	}
	return r == -EAGAIN ? -ETIMEDOUT : r;
}
