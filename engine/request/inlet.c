/*
 * Inlets. Called by the ops that take input, on their shard. One chunk is held at a time: the
 * payload of the INPUT that was taken last. Always true: no byte is written twice or out of order,
 * and an INPUT that was not answered with OK left nothing behind.
 */
#include "engine/request/inlet.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/request/request.h"

static void inlet_pump(struct inlet *inlet);
static void inlet_end(struct inlet *inlet);

void inlet_open(struct inlet *inlet, struct io *io, int fd)
{
	*inlet = (struct inlet){ .io = io,
				 .fd = fd,
				 .owner = inlet->owner,
				 .closed = inlet->closed,
				 .quiet = inlet->quiet };
	inlet->waiting_last = &inlet->waiting;
}

void inlet_start(struct inlet *inlet, int fd)
{
	inlet->fd = fd;
	inlet_pump(inlet);
}

static void inlet_close_fd(struct inlet *inlet)
{
	cleanup_close(&inlet->fd);
	inlet->fd = -1;
}

static struct status input_invalid(const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = EINVAL,
				.table = "input",
				.step = "offset",
				.detail = detail };
}

/* Nobody reads it any more. */
static struct status input_unread(int error)
{
	return (struct status){ .code = DSEC_FAILED,
				.blame = error == -EPIPE ? DSEC_BLAME_GUEST : DSEC_BLAME_PLATFORM,
				.error = -error,
				.table = "input",
				.step = "write",
				.detail = error == -EPIPE ? "the reader closed its end" : NULL };
}

static struct part *inlet_shift(struct inlet *inlet)
{
	struct part *input = inlet->waiting;

	inlet->waiting = input->next;
	if (!inlet->waiting)
		inlet->waiting_last = &inlet->waiting;
	input->next = NULL;
	input->work = NULL;
	return input;
}

static void inlet_refuse_all(struct inlet *inlet)
{
	while (inlet->waiting)
		part_end(inlet_shift(inlet), &inlet->over, NULL);
}

/* ---- writing ---- */

static void inlet_broke(struct inlet *inlet, int error)
{
	inlet_close_fd(inlet);
	free(inlet->chunk);
	inlet->chunk = NULL;
	inlet->over = input_unread(error);
	inlet_refuse_all(inlet);
	if (inlet->closed)
		inlet->closed(inlet, error);
}

static void inlet_write(struct inlet *inlet);

static void inlet_end(struct inlet *inlet)
{
	inlet->ended = true;
	inlet_close_fd(inlet);
	if (inlet->closed)
		inlet->closed(inlet, 0);
}

/*
 * A terminal has no end but one that is typed: the character for it (VEOF, unless the program
 * changed that) once at the beginning of a line, and twice where a line has begun. False: nothing
 * is to be typed any more.
 */
static bool inlet_type_end(struct inlet *inlet)
{
	static const char end[] = { 4, 4 };
	bool at_start = !inlet->typed || strchr("\n\r\4", inlet->typed);

	if (!inlet->is_terminal || inlet->end_typed)
		return false;
	inlet->chunk = malloc(sizeof end);
	if (!inlet->chunk)
		return false; /* closing it is the next best */
	memcpy(inlet->chunk, end, sizeof end);
	inlet->at = 0;
	inlet->bytes = at_start ? 1 : 2;
	inlet->end_typed = true;
	return true;
}

/* True: it may be gone now, as `quiet` is the last that is heard of it. */
static bool inlet_is_stopped(struct inlet *inlet)
{
	bool stopping = inlet->stopping;

	inlet->writing = false;
	if (stopping && inlet->quiet)
		inlet->quiet(inlet);
	return stopping;
}

static void inlet_has_room(struct io_op *op, int res)
{
	struct inlet *inlet = container_of(op, struct inlet, op);

	(void)res; /* writing says it again */
	if (!inlet_is_stopped(inlet))
		inlet_write(inlet);
}

/* Of a descriptor that does not wait: a terminal's. */
static void inlet_await_room(struct inlet *inlet)
{
	inlet->writing = true;
	inlet->op.done = inlet_has_room;
	io_poll_once(inlet->io, &inlet->op, inlet->fd, POLLOUT);
}

static void inlet_wrote(struct inlet *inlet, int res)
{
	if (inlet_is_stopped(inlet))
		return;
	if (res == -EAGAIN) {
		inlet_await_room(inlet);
		return;
	}
	if (res > 0)
		inlet->at += (uint32_t)res;
	else if (res != -EINTR) {
		inlet_broke(inlet, res ? res : -EIO);
		return;
	}
	if (inlet->at < inlet->bytes) {
		inlet_write(inlet);
		return;
	}
	inlet->typed = inlet->chunk[inlet->bytes - 1];
	free(inlet->chunk);
	inlet->chunk = NULL;
	if (inlet->last && !inlet_type_end(inlet))
		inlet_end(inlet);
	inlet_pump(inlet);
}

static void terminal_wrote(struct io_op *op, int res)
{
	inlet_wrote(container_of(op, struct inlet, op), res);
}

static void pipe_wrote(struct pipe_op *op, int res)
{
	inlet_wrote(container_of(op, struct inlet, pipe), res);
}

static void inlet_write(struct inlet *inlet)
{
	const char *bytes = inlet->chunk + inlet->at;

	inlet->writing = true;
	if (inlet->is_terminal) {
		inlet->op.done = terminal_wrote;
		io_write(inlet->io, &inlet->op, inlet->fd, bytes, inlet->bytes - inlet->at);
		return;
	}
	inlet->pipe.io = inlet->io;
	inlet->pipe.done = pipe_wrote;
	pipe_write(&inlet->pipe, inlet->fd, bytes, inlet->bytes - inlet->at);
}

/* ---- taking ---- */

/* The first that waits, with no chunk held: what is said to it. */
static struct status inlet_take(struct inlet *inlet, struct request *request)
{
	uint64_t offset = request->entry.offset, bytes = request->payload.bytes;

	if (offset > UINT64_MAX - bytes)
		return input_invalid("it ends beyond any stream");
	if (offset > inlet->offset)
		return input_invalid("bytes before it did not come");
	if (bytes && offset + bytes <= inlet->offset)
		return STATUS_OK; /* it came before */
	if (offset < inlet->offset)
		return input_invalid(bytes ? "a part of it came before, a part did not" :
					     "the end lies before what came");
	if (inlet->ended)
		return bytes ? input_invalid("it comes after the end") : STATUS_OK;
	if (!bytes) {
		inlet->last = true;
		if (!inlet_type_end(inlet))
			inlet_end(inlet);
		return STATUS_OK;
	}
	inlet->chunk = (char *)request->payload.payload;
	request->payload.payload = NULL; /* ours now */
	inlet->at = 0;
	inlet->bytes = (uint32_t)bytes;
	inlet->offset += bytes;
	return STATUS_OK;
}

static void inlet_pump(struct inlet *inlet)
{
	if (inlet->fd < 0 && !inlet->ended)
		return; /* it has not started */
	while (inlet->waiting && !inlet->chunk) {
		struct part *input = inlet_shift(inlet);
		struct status status = inlet_take(inlet, input->request);

		part_end(input, &status, NULL);
	}
	if (inlet->chunk && !inlet->writing)
		inlet_write(inlet);
}

void inlet_add(struct inlet *inlet, struct part *input)
{
	if (inlet->over.code) {
		part_end(input, &inlet->over, NULL);
		return;
	}
	input->work = inlet;
	input->next = NULL;
	*inlet->waiting_last = input;
	inlet->waiting_last = &input->next;
	inlet_pump(inlet);
}

int inlet_feed(struct inlet *inlet, const char *bytes, uint32_t count)
{
	if (!count) {
		inlet_end(inlet);
		return 0;
	}
	inlet->chunk = malloc(count);
	if (!inlet->chunk)
		return -ENOMEM;
	memcpy(inlet->chunk, bytes, count);
	inlet->at = 0;
	inlet->bytes = count;
	inlet->offset += count;
	inlet->last = true;
	inlet_write(inlet);
	return 0;
}

void inlet_cancel(struct part *input)
{
	struct inlet *inlet = input->work;
	struct status status = status_of_errno(-ECANCELED, "input", "cancel");
	struct part **at;

	if (!inlet)
		return;
	for (at = &inlet->waiting; *at != input; at = &(*at)->next)
		;
	*at = input->next;
	if (!*at)
		inlet->waiting_last = at;
	input->work = NULL;
	part_end(input, &status, NULL);
}

/* ---- the end ---- */

bool inlet_stop(struct inlet *inlet, const struct status *over)
{
	inlet->stopping = true;
	if (!inlet->over.code)
		inlet->over = *over;
	inlet_refuse_all(inlet);
	if (inlet->writing && inlet->is_terminal)
		io_cancel(inlet->io, &inlet->op);
	else if (inlet->writing)
		pipe_cancel(&inlet->pipe);
	return !inlet->writing;
}

void inlet_done(struct inlet *inlet)
{
	assert(!inlet->writing);
	assert(!inlet->waiting);
	inlet_close_fd(inlet);
	free(inlet->chunk);
	inlet->chunk = NULL;
}
