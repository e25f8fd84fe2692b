/*
 * Pipes that sandboxes have the other end of: first looked at, then read or written by a thread.
 * Called by whoever has such a pipe, on its shard. Must hold: no call that takes a pipe's lock is
 * made on a shard's thread.
 */
#include "engine/base/pipe.h"

#include <errno.h>
#include <poll.h>

#include "engine/base/cleanup.h"

static void pipe_through(struct io_op *io_op, int res)
{
	struct pipe_op *op = container_of(io_op, struct pipe_op, op);

	op->done(op, res);
}

static void pipe_seen(struct io_op *io_op, int res)
{
	struct pipe_op *op = container_of(io_op, struct pipe_op, op);
	struct io_range range = { .buffer = op->buffer,
				  .bytes = op->bytes,
				  .offset = (uint64_t)-1 };

	op->is_looking = false;
	if (res < 0) {
		op->done(op, res);
		return;
	}
	if (!op->is_write && !(res & POLLIN) && pipe_state(op->fd) != PIPE_HAS_BYTES) {
		op->done(op, 0); /* its last writer is gone, and all was read */
		return;
	}
	op->op.done = pipe_through;
	if (op->is_write)
		io_write_far(op->io, &op->op, op->fd, &range);
	else
		io_read_far(op->io, &op->op, op->fd, &range);
}

static void pipe_look(struct pipe_op *op)
{
	op->is_looking = true;
	op->op.done = pipe_seen;
	io_poll_once(op->io, &op->op, op->fd, op->is_write ? POLLOUT : POLLIN);
}

void pipe_read(struct pipe_op *op, int fd, void *buffer, uint32_t bytes)
{
	op->fd = fd;
	op->is_write = false;
	op->buffer = buffer;
	op->bytes = bytes;
	pipe_look(op);
}

void pipe_write(struct pipe_op *op, int fd, const void *buffer, uint32_t bytes)
{
	op->fd = fd;
	op->is_write = true;
	op->buffer = (void *)(uintptr_t)buffer; /* it is only read */
	op->bytes = bytes;
	pipe_look(op);
}

void pipe_cancel(struct pipe_op *op)
{
	if (op->is_looking)
		io_cancel(op->io, &op->op);
}

enum pipe_state pipe_state(int fd)
{
	struct pollfd at = { .fd = fd, .events = POLLIN };

	if (poll(&at, 1, 0) <= 0)
		return PIPE_SILENT;
	/* Bytes first, then writers: one may have written and gone between the two looks. */
	if (!(at.revents & POLLIN) && poll(&at, 1, 0) <= 0)
		return PIPE_SILENT;
	return at.revents & POLLIN ? PIPE_HAS_BYTES : PIPE_ENDED;
}
