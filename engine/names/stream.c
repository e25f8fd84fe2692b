/*
 * Questions by TCP, for answers that are too large for a datagram. Called by the resolver and from
 * the loop. Must hold: a connection has one question under way, and nothing is read of it
 * meanwhile; what is idle ends, and where there is no room for another one the one that has been
 * idle longest; while its op is in flight a stream is in its place.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/names/resolver_state.h"
#include "engine/shard.h"

static void stream_receive(struct stream *stream);

static void stream_free(struct stream *stream)
{
	cleanup_close(&stream->fd);
	pool_put(&stream->in->streams, stream);
}

void stream_end(struct stream *stream)
{
	if (stream->question)
		question_abandon(stream->question);
	if (stream->asker)
		stream->asker->stream_count--;
	stream->asker = NULL;
	if (stream->receiving)
		io_cancel(stream->in->shard->io, &stream->op);
	else
		stream_free(stream);
}

/* It may end by this: `ending`, until whoever has it looks. */
void stream_reply(struct stream *stream, const uint8_t *bytes, size_t count)
{
	uint8_t head[2] = { (uint8_t)(count >> 8), (uint8_t)count };
	struct iovec parts[] = { { head, sizeof head }, { (void *)bytes, count } };
	const struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	const ssize_t sent = sendmsg(stream->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

	/* Who does not read its answers has no use for more. */
	stream->ending |= sent != (ssize_t)(count + sizeof head);
}

void stream_next(struct stream *stream)
{
	while (!stream->ending && stream->got >= 2) {
		const size_t bytes = (size_t)stream->buffer[0] << 8 | stream->buffer[1];
		const struct reply_to to = { .asker = stream->asker, .stream = stream };

		if (bytes > DNS_QUERY_BYTES_MAX) {
			stream->ending = true;
			break;
		}
		if (stream->got - 2 < bytes)
			break;
		stream->got -= (uint32_t)bytes + 2;
		const bool is_answered = question_take(stream->in, &to, stream->buffer + 2, bytes);

		memmove(stream->buffer, stream->buffer + 2 + bytes, stream->got);
		if (!is_answered)
			return;
	}
	if (stream->ending)
		stream_end(stream);
	else
		stream_receive(stream);
}

static void stream_received(struct io_op *op, int res)
{
	struct stream *stream = container_of(op, struct stream, op);

	stream->receiving = false;
	if (!stream->asker) {
		stream_free(stream);
	} else if (res <= 0) {
		stream_end(stream);
	} else {
		stream->got += (uint32_t)res;
		stream_next(stream);
	}
}

static void stream_receive(struct stream *stream)
{
	stream->receiving = true;
	stream->deadline_ns = io_now_ns(stream->in->shard->io) + STREAM_IDLE_MS * 1000000ull;
	stream->op.done = stream_received;
	io_recv(stream->in->shard->io, &stream->op, stream->fd, stream->buffer + stream->got,
		(uint32_t)sizeof stream->buffer - stream->got);
}

/* So that those who say nothing cannot keep out those who ask. */
static void oldest_end(struct resolver *resolver)
{
	struct stream *oldest = NULL;

	for (uint32_t i = 0; i < resolver->streams.count; i++) {
		struct stream *stream = pool_at(&resolver->streams, i);

		if (stream && stream->asker && stream->receiving &&
		    (!oldest || stream->deadline_ns < oldest->deadline_ns))
			oldest = stream;
	}
	if (oldest)
		stream_end(oldest);
}

void stream_begin(struct resolver *resolver, int fd)
{
	struct sockaddr_in from = { 0 };
	socklen_t bytes = sizeof from;
	auto_close int own_fd = fd;
	struct asker *asker = NULL;
	struct stream *stream;

	if (getpeername(fd, (struct sockaddr *)&from, &bytes) == 0)
		asker = asker_find(resolver, from.sin_addr.s_addr);
	if (!asker || asker->stream_count >= STREAMS_ASKER_MAX)
		return;
	stream = pool_take(&resolver->streams);
	if (!stream) {
		oldest_end(resolver); /* for the next one: it is in its place until then */
		return;
	}
	stream->in = resolver;
	stream->asker = asker;
	stream->fd = take_fd(&own_fd);
	asker->stream_count++;
	resolver_wake(resolver);
	stream_receive(stream);
}

void streams_expire(struct resolver *resolver, uint64_t now_ns)
{
	for (uint32_t i = 0; pool_taken(&resolver->streams) && i < resolver->streams.count; i++) {
		struct stream *stream = pool_at(&resolver->streams, i);

		if (stream && stream->asker && stream->receiving && stream->deadline_ns <= now_ns)
			stream_end(stream);
	}
}
