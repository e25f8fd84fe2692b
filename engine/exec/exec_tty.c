/*
 * The terminal of an exec as seen from its master: read and written like pipes, but never waiting.
 * Called by exec.c and exec_stream.c. Must hold: it stays open until the program has ended and all
 * of it was read, since closing it hangs the program up; and no shard closes it, since the sandbox
 * can make that wait.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/exec/exec_state.h"
#include "engine/shard.h"

/* Between two looks at a terminal that nobody has open: poll(2) tells only that it is so. */
#define LEFT_NS (250 * 1000000ull)

static void terminal_type(struct exec *exec)
{
	int fd = fcntl(exec->streams[0].fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0) {
		struct status s = status_of_errno(-errno, "input", "open");

		(void)inlet_stop(&exec->inlet, &s); /* nothing is in flight yet */
		return;
	}
	exec->inlet.is_terminal = true;
	inlet_start(&exec->inlet, fd);
}

void exec_tty_open(struct exec *exec, int master_fd)
{
	struct stream *stream = &exec->streams[0];

	if (master_fd < 0)
		return; /* none came, which the worker's end follows */
	/* Of this open file alone: nobody else has it. */
	(void)fcntl(master_fd, F_SETFL, O_RDWR | O_NONBLOCK);
	stream->fd = master_fd;
	stream->is_terminal = true;
	if (exec->has_input)
		terminal_type(exec);
}

static void terminal_readable(struct io_op *op, int res)
{
	struct stream *stream = container_of(op, struct stream, op);

	(void)res; /* reading says it again */
	stream->reading = false;
	if (stream->exec->stopping)
		exec_op_settled(stream->exec);
	else
		exec_stream_read(stream);
}

void exec_tty_await(struct stream *stream)
{
	stream->reading = true;
	stream->op.done = terminal_readable;
	io_poll_once(stream->exec->shard->io, &stream->op, stream->fd, POLLIN);
}

static void terminal_again(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, left);

	exec->streams[0].is_hung_up = false;
	exec_stream_read(&exec->streams[0]);
}

void exec_tty_left(struct stream *stream)
{
	struct exec *exec = stream->exec;

	stream->is_hung_up = true;
	exec->left.expired = terminal_again;
	if (!exec->stopping)
		(void)timer_set(&exec->shard->timers, &exec->left, /* the heap has room for it */
				io_now_ns(exec->shard->io) + LEFT_NS);
}

ssize_t exec_tty_read(struct stream *stream, size_t bytes)
{
	ssize_t n = read(stream->fd, stream->buffer, bytes);

	return n ? n : -1; /* EIO is its end */
}

static void terminal_closed(struct io_op *op, int res)
{
	struct exec *exec = container_of(op, struct exec, closing);

	(void)res; /* it is gone, whatever it was */
	flow_resume(&exec->flow, 0);
}

bool exec_tty_close(struct exec *exec)
{
	struct stream *stream = &exec->streams[0];

	timer_clear(&exec->shard->timers, &exec->left);
	if (!stream->is_terminal || stream->fd < 0)
		return true;
	exec->closing.done = terminal_closed;
	io_close_fd(exec->shard->io, &exec->closing, take_fd(&stream->fd));
	return false;
}
