/*
 * The stream transport: the same messages inline over the socket. Called under the connection's
 * lock. At most one message is half sent: while it is, nothing more is accepted, so the engine's
 * slowness becomes -EAGAIN here and not memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"

enum { RECEIVE_BYTES = 64 << 10 };

int dsec__stream_open(struct dsec *d)
{
	d->transport = &dsec__stream;
	d->channel_count = 1;
	d->receiving.data = malloc(RECEIVE_BYTES);
	if (!d->receiving.data)
		return dsec__fail(-ENOMEM, "open: no memory");
	d->receiving.capacity = RECEIVE_BYTES;
	return 0;
}

/* `bytes` is read without the lock, by the leader: is there something to send? */
static void sending_set(struct dsec *d, size_t at, size_t bytes)
{
	bool was = d->sending.bytes, is = bytes;

	d->sending.at = at;
	__atomic_store_n(&d->sending.bytes, bytes, __ATOMIC_RELAXED);
	if (was == is)
		return;
	dsec__queues_watch_output(d, is);
	if (is && d->leader)
		dsec__leader_kick(d);
}

static int send_errno(void)
{
	return errno == EAGAIN || errno == EINTR ? -EAGAIN : -ECONNRESET;
}

/* 0: all of it went; -EAGAIN: not yet. */
static int sending_flush(struct dsec *d)
{
	while (d->sending.bytes) {
		ssize_t n = send(d->socket_fd, d->sending.data + d->sending.at, d->sending.bytes,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			return send_errno();
		sending_set(d, d->sending.at + (size_t)n, d->sending.bytes - (size_t)n);
	}
	return 0;
}

/* Keeps what the socket did not take of head and body. */
static void sending_keep(struct dsec *d, const struct iovec parts[2], size_t sent)
{
	size_t head_left = sent < parts[0].iov_len ? parts[0].iov_len - sent : 0;
	size_t body_at = sent > parts[0].iov_len ? sent - parts[0].iov_len : 0;
	size_t body_left = parts[1].iov_len - body_at;
	unsigned char *data = d->sending.data;

	if (head_left)
		memcpy(data, (char *)parts[0].iov_base + sent, head_left);
	if (body_left)
		memcpy(data + head_left, (char *)parts[1].iov_base + body_at, body_left);
	sending_set(d, 0, head_left + body_left);
}

static int sending_reserve(struct dsec *d, size_t bytes)
{
	unsigned char *data;

	if (bytes <= d->sending.capacity)
		return 0;
	data = realloc(d->sending.data, bytes);
	if (!data)
		return -EAGAIN;
	d->sending.data = data;
	d->sending.capacity = bytes;
	return 0;
}

static int stream_submit(struct dsec *d, struct ticket *ticket, struct dsec_ring_request *request,
			 const void *payload)
{
	struct iovec parts[2] = {
		{ request, sizeof(*request) },
		{ (void *)(uintptr_t)payload, request->payload_bytes },
	};
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = payload ? 2 : 1 };
	size_t bytes = sizeof(*request) + request->payload_bytes;
	ssize_t sent;
	int r;

	(void)ticket; /* nothing of it lies in shared memory */
	if (dsec__must_wait(d, request->op, d->stream_running))
		return -EAGAIN;
	if (request->payload_bytes > d->welcome.stream_payload_max)
		return -EMSGSIZE;
	r = sending_flush(d);
	if (r < 0)
		return r;
	r = sending_reserve(d, bytes);
	if (r < 0)
		return r;
	sent = sendmsg(d->socket_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0)
		return send_errno();
	if ((size_t)sent < bytes)
		sending_keep(d, parts, (size_t)sent);
	d->stream_running++;
	return 0;
}

static void stream_ticket_end(struct dsec *d, struct ticket *ticket)
{
	(void)ticket; /* as above */
	d->stream_running--;
}

/* Room for a whole message of `bytes`, with what came so far moved to the front. */
static int receiving_reserve(struct stream_buffer *receiving, size_t bytes)
{
	unsigned char *data;

	if (receiving->at)
		memmove(receiving->data, receiving->data + receiving->at, receiving->bytes);
	receiving->at = 0;
	if (bytes <= receiving->capacity)
		return 0;
	data = realloc(receiving->data, bytes);
	if (!data)
		return -ENOMEM;
	receiving->data = data;
	receiving->capacity = bytes;
	return 0;
}

/* 1: one message was dispatched; 0: there is no whole one. */
static int message_reap(struct dsec *d)
{
	struct stream_buffer *receiving = &d->receiving;
	struct dsec_ring_event event;
	size_t bytes = sizeof(event);
	int r;

	if (receiving->bytes < sizeof(event))
		return receiving_reserve(receiving, bytes);
	memcpy(&event, receiving->data + receiving->at, sizeof(event));
	if (event.bytes > DSEC_PAYLOAD_BYTES_MAX)
		return -EPROTO;
	bytes += event.bytes;
	if (receiving->bytes < bytes)
		return receiving_reserve(receiving, bytes);
	r = dsec__dispatch(d, &event, receiving->data + receiving->at + sizeof(event));
	receiving->at += bytes;
	receiving->bytes -= bytes;
	return r < 0 ? r : 1;
}

/* All whole ones: what stays behind would not make the socket readable. */
static int messages_reap(struct dsec *d)
{
	int count = 0, r;

	while ((r = message_reap(d)) > 0)
		count++;
	return r < 0 ? r : count;
}

static int stream_reap(struct dsec *d, bool socket)
{
	struct stream_buffer *receiving = &d->receiving;
	bool deaf;
	size_t end;
	ssize_t n;

	(void)socket; /* the socket is all there is */
	/* Whoever takes nothing more may have answered before it went: that still counts. */
	deaf = sending_flush(d) == -ECONNRESET;
	end = receiving->at + receiving->bytes;
	n = recv(d->socket_fd, receiving->data + end, receiving->capacity - end, MSG_DONTWAIT);
	if (n < 0)
		return !deaf && (errno == EAGAIN || errno == EINTR) ? 0 : -ECONNRESET;
	if (n == 0)
		return -ECONNRESET;
	receiving->bytes += (size_t)n;
	return messages_reap(d);
}

static bool stream_pending(struct dsec *d)
{
	(void)d;
	return false; /* the socket says */
}

static bool stream_sleep_begin(struct dsec *d, enum dsec_sleep mode)
{
	(void)d;
	(void)mode;
	return false;
}

static void stream_sleep_end(struct dsec *d)
{
	(void)d;
}

static void stream_close(struct dsec *d)
{
	free(d->sending.data);
	free(d->receiving.data);
	/* Nobody leads: nothing is read meanwhile. */
	d->sending = d->receiving = (struct stream_buffer){ 0 };
	d->channel_count = 0;
	d->stream_running = 0;
}

const struct transport dsec__stream = {
	.submit = stream_submit,
	.reap = stream_reap,
	.pending = stream_pending,
	.sleep_begin = stream_sleep_begin,
	.sleep_end = stream_sleep_end,
	.ticket_end = stream_ticket_end,
	.close = stream_close,
};
