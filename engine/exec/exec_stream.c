/*
 * What a program writes, from its pipes into our own memory. Called by exec.c and, when there is
 * room again, by the readers. Always true: a program without a live reader never waits for us, and
 * one that has ended is not waited for by us.
 */
#include "engine/exec/exec_state.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/shard.h"
#include "engine/exec/sink.h"

#define NS_PER_MS 1000000ull

enum { READ_BYTES = 16 << 10, DRAIN_BYTES_MAX = 1 << 20 };

static void stream_close(struct stream *stream)
{
	cleanup_close(&stream->fd);
	stream->fd = -1;
}

/*
 * At its end: others may hold the other end and write on, so no more than a reader that keeps up
 * can still be told in full.
 */
static uint32_t drained_max(const struct stream *stream)
{
	return stream->exec->readers ? EXEC_PIPE_BYTES : DRAIN_BYTES_MAX;
}

static void stream_got(struct stream *stream, int res)
{
	struct exec *exec = stream->exec;

	stream->reading = false;
	if (res == -EAGAIN && stream->is_terminal && !exec->stopping) {
		exec_tty_await(stream);
		return;
	}
	if (exec->over) {
		/* Nobody is told of it any more. */
	} else if (res > 0) {
		capture_add(&stream->capture, stream->buffer, (size_t)res);
		stream->drained += exec->stopping ? (uint32_t)res : 0;
		exec->output_ns = io_now_ns(exec->shard->io);
		if (exec_output_is_over(exec) && exec->started && !exec->run_over)
			exec_kill(exec, DSEC_OUTPUT_LIMIT);
		readers_pump(exec);
	} else if (res != -EINTR && res != -EAGAIN && res != -ECANCELED) {
		if (stream->is_terminal)
			exec_tty_left(stream);
		else
			stream_close(stream);
	}
	if (!exec->stopping)
		exec_stream_read(stream);
	else if (!exec_stream_stop(stream))
		exec_op_settled(exec);
}

static void terminal_got(struct io_op *op, int res)
{
	stream_got(container_of(op, struct stream, op), res);
}

static void pipe_got(struct pipe_op *op, int res)
{
	stream_got(container_of(op, struct stream, pipe), res);
}

static void stream_begin(struct stream *stream, uint32_t bytes)
{
	struct io *io = stream->exec->shard->io;

	stream->reading = true;
	if (stream->is_terminal) {
		stream->op.done = terminal_got;
		io_read(io, &stream->op, stream->fd, stream->buffer, bytes);
		return;
	}
	stream->pipe.io = io;
	stream->pipe.done = pipe_got;
	pipe_read(&stream->pipe, stream->fd, stream->buffer, bytes);
}

bool exec_stream_stop(struct stream *stream)
{
	enum pipe_state state;

	if (stream->reading && stream->is_terminal)
		io_cancel(stream->exec->shard->io, &stream->op);
	else if (stream->reading)
		pipe_cancel(&stream->pipe);
	if (stream->reading || stream->fd < 0 || stream->is_terminal)
		return stream->reading;
	state = pipe_state(stream->fd);
	if (state == PIPE_ENDED)
		stream_close(stream);
	else if (state == PIPE_HAS_BYTES && !stream->exec->over &&
		 stream->drained < drained_max(stream))
		stream_begin(stream, READ_BYTES);
	return stream->reading;
}

static void turn_comes(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, paced);

	for (int i = 0; i < EXEC_STREAMS; i++)
		exec_stream_read(&exec->streams[i]);
}

/* Who hears it as it comes says how fast, by what it has consumed; nobody's is read at its pace. */
static bool takes_turn(struct exec *exec)
{
	struct shard *shard = exec->shard;
	uint64_t now_ns = io_now_ns(shard->io);

	if (exec->readers)
		return true;
	if (pace_has_room(&exec->pace, now_ns, PACE_EXEC_READS) &&
	    pace_has_room(&shard->unheard, now_ns, PACE_SHARD_READS)) {
		exec->pace.reads++;
		shard->unheard.reads++;
		return true;
	}
	exec->paced.expired = turn_comes;
	if (!timer_is_set(&exec->paced)) /* the heap has room for it */
		(void)timer_set(&shard->timers, &exec->paced, now_ns + PACE_MS * NS_PER_MS);
	return false;
}

void exec_stream_read(struct stream *stream)
{
	struct exec *exec = stream->exec;
	uint64_t room;

	if (stream->fd < 0 || stream->reading || stream->is_hung_up || exec->run_over ||
	    exec->stopping || exec->over || exec_output_is_over(exec))
		return;
	room = readers_room(exec, stream);
	if (!room) {
		stream->is_held = true;
		return;
	}
	if (stream->is_held)
		exec->output_ns = io_now_ns(exec->shard->io); /* it was not silent: nobody heard */
	stream->is_held = false;
	if (!takes_turn(exec))
		return;
	stream_begin(stream, room < READ_BYTES ? (uint32_t)room : READ_BYTES);
}

bool exec_output_is_over(const struct exec *exec)
{
	uint64_t bytes = 0;

	for (int i = 0; i < EXEC_STREAMS; i++)
		bytes += exec->streams[i].capture.total;
	return bytes > exec->output_limit_bytes;
}

bool exec_is_held_back(const struct exec *exec)
{
	for (int i = 0; i < EXEC_STREAMS; i++)
		if (exec->streams[i].is_held)
			return true;
	return false;
}

/* What a terminal still has; a pipe was drained until it was empty. */
static void terminal_drain(struct stream *stream)
{
	while (stream->drained < drained_max(stream)) {
		ssize_t n = exec_tty_read(stream, READ_BYTES);

		if (n < 0)
			return;
		capture_add(&stream->capture, stream->buffer, (size_t)n);
		stream->drained += (uint32_t)n;
	}
}

void exec_stream_finish(struct stream *stream)
{
	if (stream->fd >= 0 && stream->is_terminal && !stream->exec->over)
		terminal_drain(stream);
	if (stream->fd >= 0 && !stream->is_terminal)
		sink_take(stream->exec->shard, take_fd(&stream->fd));
	free(stream->buffer);
	stream->buffer = NULL;
}
