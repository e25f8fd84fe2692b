/*
 * What a program writes, from its pipes into our own memory. Called by exec.c and, when there is
 * room again, by the readers. Always true: a program without a live reader never waits for us, and
 * one that has ended is not waited for by us.
 */
#include "engine/exec/exec_state.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
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

static void stream_got(struct io_op *op, int res)
{
	struct stream *stream = container_of(op, struct stream, op);
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
	if (exec->stopping)
		exec_op_settled(exec);
	else
		exec_stream_read(stream);
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
	stream->reading = true;
	stream->op.done = stream_got;
	io_read(exec->shard->io, &stream->op, stream->fd, stream->buffer,
		room < READ_BYTES ? (uint32_t)room : READ_BYTES);
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

/*
 * Others may hold the other end and write on: no more than a reader that keeps up can still be told
 * in full.
 */
static void stream_drain(struct stream *stream)
{
	size_t drained = 0, drained_max = stream->exec->readers ? EXEC_PIPE_BYTES : DRAIN_BYTES_MAX;

	while (drained < drained_max) {
		struct iovec part = { stream->buffer, READ_BYTES };
		ssize_t n = stream->is_terminal ? exec_tty_read(stream, READ_BYTES) :
						  preadv2(stream->fd, &part, 1, -1, RWF_NOWAIT);

		if (n < 0)
			return;
		if (n == 0) {
			stream_close(stream);
			return;
		}
		capture_add(&stream->capture, stream->buffer, (size_t)n);
		drained += (size_t)n;
	}
}

void exec_stream_finish(struct stream *stream)
{
	if (stream->fd >= 0 && !stream->exec->over)
		stream_drain(stream);
	if (stream->fd >= 0 && !stream->is_terminal)
		sink_take(stream->exec->shard, take_fd(&stream->fd));
	free(stream->buffer);
	stream->buffer = NULL;
}
