/*
 * What the helper and the engine say to each other. Called by the verbs. Must hold: a write blocks
 * until the engine takes it, so nothing piles up here; whoever waits for input sees the engine go.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/guest/files/files.h"

static char *text_take(const char *bytes, uint32_t count)
{
	char *text;

	if (memchr(bytes, 0, count))
		return NULL;
	text = malloc(count + 1);
	if (!text)
		return NULL;
	memcpy(text, bytes, count);
	text[count] = 0;
	return text;
}

int talk_ask(struct files *f)
{
	char *packet = f->buffer;
	ssize_t bytes;

	_Static_assert((int)GUEST_ASK_BYTES_MAX < (int)FILES_BUFFER_BYTES, "a packet fits");
	do
		bytes = recv(f->control_fd, packet, FILES_BUFFER_BYTES, 0);
	while (bytes < 0 && errno == EINTR);
	if (bytes < (ssize_t)sizeof f->ask)
		return -EPROTO;
	memcpy(&f->ask, packet, sizeof f->ask);
	if (f->ask.packet != GUEST_ASK || f->ask.size != sizeof f->ask ||
	    f->ask.path_bytes > GUEST_PATH_BYTES_MAX || f->ask.to_bytes > GUEST_PATH_BYTES_MAX ||
	    (size_t)bytes != sizeof f->ask + f->ask.path_bytes + f->ask.to_bytes)
		return -EPROTO;
	f->path = text_take(packet + sizeof f->ask, f->ask.path_bytes);
	f->to = text_take(packet + sizeof f->ask + f->ask.path_bytes, f->ask.to_bytes);
	return f->path && f->to ? 0 : -EINVAL;
}

static int packet_send(struct files *f, struct iovec *parts, size_t count)
{
	const struct msghdr message = { .msg_iov = parts, .msg_iovlen = count };
	ssize_t bytes;

	do
		bytes = sendmsg(f->control_fd, &message, MSG_NOSIGNAL);
	while (bytes < 0 && errno == EINTR);
	return bytes < 0 ? -errno : 0;
}

static uint32_t name_bytes(const char *name)
{
	size_t bytes = name ? strlen(name) : 0;

	return bytes < GUEST_NAME_BYTES_MAX ? (uint32_t)bytes : GUEST_NAME_BYTES_MAX;
}

int talk_row(struct files *f, struct guest_row *row, const char *name, const char *target)
{
	struct iovec parts[] = {
		{ row, sizeof *row },
		{ (void *)name, name_bytes(name) },
		{ (void *)target, name_bytes(target) },
	};

	row->packet = GUEST_ROW;
	row->size = sizeof *row;
	row->name_bytes = (uint32_t)parts[1].iov_len;
	row->target_bytes = (uint32_t)parts[2].iov_len;
	return packet_send(f, parts, 3);
}

int talk_refusal(struct files *f, enum dsec_file_reason reason, int error, const char *name)
{
	struct guest_row row = { .reason = reason, .error = (uint32_t)-error };

	if (reason != DSEC_FILE_REASON_BITS && reason != DSEC_FILE_REASON_ATTRIBUTES)
		f->done.left_out++;
	if (f->refusals == GUEST_REFUSALS_MAX)
		return 0;
	f->refusals++;
	return talk_row(f, &row, name, NULL);
}

int talk_done(struct files *f, int error)
{
	struct iovec part = { &f->done, sizeof f->done };

	f->done.packet = GUEST_DONE;
	f->done.size = sizeof f->done;
	f->done.error = (uint32_t)-error;
	if (!error)
		f->done.step = GUEST_STEP_NONE;
	error = packet_send(f, &part, 1);
	/* A socket that is closed with packets unread takes along what it sent. */
	while (recv(f->control_fd, f->buffer, FILES_BUFFER_BYTES, 0) > 0)
		;
	return error;
}

long talk_read(struct files *f, void *to, size_t bytes)
{
	struct pollfd ends[] = {
		{ .fd = f->in_fd, .events = POLLIN },
		{ .fd = f->control_fd, .events = POLLRDHUP },
	};
	ssize_t n;

	do {
		if (poll(ends, 2, -1) < 0 && errno != EINTR)
			return -errno;
		if (ends[1].revents)
			return -ECANCELED;
		n = ends[0].revents ? read(f->in_fd, to, bytes) : -1;
	} while (n < 0 && (!ends[0].revents || errno == EINTR || errno == EAGAIN));
	if (n < 0)
		return -errno;
	f->received += (uint64_t)n;
	return n;
}

int talk_write(struct files *f, const void *from, size_t bytes)
{
	const char *at = from;

	while (bytes) {
		ssize_t n = write(f->out_fd, at, bytes);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n < 0)
			continue;
		at += n;
		bytes -= (size_t)n;
	}
	return 0;
}

int talk_commit(struct files *f)
{
	struct guest_commit commit;
	ssize_t bytes;

	do
		bytes = recv(f->control_fd, &commit, sizeof commit, 0);
	while (bytes < 0 && errno == EINTR);
	if (bytes != sizeof commit || commit.packet != GUEST_COMMIT)
		return -ECANCELED;
	/* Somebody else wrote to the pipe, or read from it. */
	return commit.bytes == f->received ? 0 : -EPROTO;
}
