/*
 * What a call writes: from its pipes into memory of our own, as much as its function may write.
 * Called by call.c. Must hold: nobody is waited for, since whoever could still write is dead when
 * the rest is taken; a call's memory is bounded by its function's limit and one read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/function/call.h"
#include "engine/function/function.h"
#include "engine/request/request.h"
#include "engine/shard.h"

enum { READ_BYTES = 4 << 10, READ_BYTES_MAX = 64 << 10, DATA_BYTES_MAX = 16 << 10 };

static void stream_close(struct call_stream *stream)
{
	cleanup_close(&stream->fd);
	stream->fd = -1;
}

int call_output_open(struct call *call)
{
	call->output_left = call->function->output_bytes;
	for (int i = 0; i < CALL_STREAMS; i++) {
		struct call_stream *stream = &call->streams[i];
		int pair[2];

		if (pipe2(pair, O_CLOEXEC) < 0)
			return -errno;
		stream->call = call;
		stream->fd = pair[0];
		call->child_fds[i + 1] = pair[1];
	}
	return 0;
}

/* Room for one more read. */
static int stream_room(struct call_stream *stream)
{
	size_t size = stream->size ? 2 * stream->size : READ_BYTES;
	char *bytes;

	if (stream->size - stream->count >= READ_BYTES / 2)
		return 0;
	bytes = realloc(stream->bytes, size);
	if (!bytes)
		return -ENOMEM;
	stream->bytes = bytes;
	stream->size = size;
	return 0;
}

static size_t stream_free(const struct call_stream *stream)
{
	size_t bytes = stream->size - stream->count;

	return bytes < READ_BYTES_MAX ? bytes : READ_BYTES_MAX;
}

/* Over the limit: what is more is not kept, and the call is over. */
static void stream_took(struct call_stream *stream, size_t bytes)
{
	struct call *call = stream->call;

	if (bytes > call->output_left) {
		bytes = call->output_left;
		call->facts.output_over = true;
	}
	call->output_left -= bytes;
	stream->count += bytes;
}

static void stream_read(struct call_stream *stream);

static void stream_got(struct pipe_op *op, int res)
{
	struct call_stream *stream = container_of(op, struct call_stream, pipe);
	struct call *call = stream->call;

	stream->is_reading = false;
	if (res > 0)
		stream_took(stream, (size_t)res);
	else if (res != -EINTR && res != -EAGAIN && res != -ECANCELED)
		stream_close(stream);
	if (call->is_quieting)
		call_is_quiet(call);
	else if (call->facts.output_over)
		call_end(call, CALL_END_OUTPUT);
	else
		stream_read(stream);
}

static void stream_read(struct call_stream *stream)
{
	struct call *call = stream->call;

	if (stream->fd < 0 || stream->is_reading || call->facts.output_over)
		return;
	if (stream_room(stream) < 0) {
		call->error = -ENOMEM;
		call_end(call, CALL_END_CANCEL);
		return;
	}
	stream->is_reading = true;
	stream->pipe.io = call->shard->io;
	stream->pipe.done = stream_got;
	pipe_read(&stream->pipe, stream->fd, stream->bytes + stream->count,
		  (uint32_t)stream_free(stream));
}

void call_output_read(struct call *call)
{
	for (int i = 0; i < CALL_STREAMS; i++)
		stream_read(&call->streams[i]);
}

static bool output_is_quiet(const struct call *call)
{
	for (int i = 0; i < CALL_STREAMS; i++)
		if (call->streams[i].is_reading)
			return false;
	return true;
}

bool call_output_stop(struct call *call)
{
	for (int i = 0; i < CALL_STREAMS; i++)
		if (call->streams[i].is_reading)
			pipe_cancel(&call->streams[i].pipe);
	return output_is_quiet(call);
}

static int stream_drain(struct call_stream *stream)
{
	while (stream->fd >= 0 && !stream->call->facts.output_over) {
		struct iovec part;
		ssize_t n;

		if (stream_room(stream) < 0)
			return -ENOMEM;
		part = (struct iovec){ stream->bytes + stream->count, stream_free(stream) };
		n = preadv2(stream->fd, &part, 1, -1, RWF_NOWAIT);
		if (n <= 0)
			return 0;
		stream_took(stream, (size_t)n);
	}
	return 0;
}

void call_output_drain(struct call *call)
{
	for (int i = 0; i < CALL_STREAMS; i++) {
		int r = stream_drain(&call->streams[i]);

		if (r < 0)
			call->error = r;
	}
}

void call_output_close(struct call *call)
{
	for (int i = 0; i < CALL_STREAMS; i++) {
		stream_close(&call->streams[i]);
		free(call->streams[i].bytes);
		call->streams[i].bytes = NULL;
		call->streams[i].count = call->streams[i].size = 0;
	}
}

static void stream_emit(const struct call_stream *stream, uint16_t number)
{
	const struct call *call = stream->call;
	struct emission e = { .kind = DSEC_EV_DATA,
			      .subject = call->function->id,
			      .stream = number,
			      .index = (uint16_t)call->index };

	while (e.offset < stream->count) {
		size_t left = stream->count - e.offset;

		e.body = stream->bytes + e.offset;
		e.bytes = left < DATA_BYTES_MAX ? (uint32_t)left : DATA_BYTES_MAX;
		part_emit(call->invocation->part, &e);
		e.offset += e.bytes;
	}
}

void call_output_emit(struct call *call)
{
	for (int i = 0; i < CALL_STREAMS; i++)
		stream_emit(&call->streams[i], (uint16_t)(i + 1));
}
