/*
 * Outlets. Called by the ops that send a stream, on their shard. Always true: what was emitted and
 * not consumed fits the window, and the descriptor is read only when there is room for what it has.
 */
#include "engine/request/outlet.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "engine/base/cleanup.h"

enum { READ_BYTES = 16 << 10 };

static void outlet_read(struct outlet *outlet);

int outlet_open(struct outlet *outlet, const struct outlet_options *options)
{
	*outlet = (struct outlet){
		.io = options->io,
		.part = options->part,
		.event = options->event,
		.window = window_at(0, options->window_bytes),
		.fd = options->fd,
		.owner = outlet->owner,
		.over = outlet->over,
	};
	outlet->event.kind = DSEC_EV_DATA;
	outlet->buffer = malloc(READ_BYTES);
	if (!outlet->buffer) {
		outlet_done(outlet);
		return -ENOMEM;
	}
	outlet_read(outlet);
	return 0;
}

static void outlet_end(struct outlet *outlet, int error)
{
	outlet->ended = true;
	outlet->over(outlet, error);
}

static void outlet_got(struct io_op *op, int res)
{
	struct outlet *outlet = container_of(op, struct outlet, op);

	outlet->reading = false;
	if (outlet->stopping) {
		outlet_end(outlet, -ECANCELED);
		return;
	}
	if (res > 0) {
		outlet->event.offset = outlet->window.sent;
		outlet->event.body = outlet->buffer;
		outlet->event.bytes = (uint32_t)res;
		part_emit(outlet->part, &outlet->event);
		outlet->window.sent += (uint32_t)res;
	} else if (res != -EINTR && res != -EAGAIN) {
		outlet_end(outlet, res);
		return;
	}
	outlet_read(outlet);
}

static void outlet_read(struct outlet *outlet)
{
	uint32_t room = window_room(&outlet->window);

	if (outlet->reading || outlet->stopping || outlet->ended || !room)
		return;
	outlet->reading = true;
	outlet->op.done = outlet_got;
	io_read(outlet->io, &outlet->op, outlet->fd, outlet->buffer,
		room < READ_BYTES ? room : READ_BYTES);
}

int outlet_credit(struct outlet *outlet, uint64_t consumed)
{
	int r;

	r = window_credit(&outlet->window, consumed);
	if (r == 0)
		outlet_read(outlet);
	return r;
}

bool outlet_stop(struct outlet *outlet)
{
	outlet->stopping = true;
	if (outlet->reading)
		io_cancel(outlet->io, &outlet->op);
	return !outlet->reading;
}

void outlet_done(struct outlet *outlet)
{
	assert(!outlet->reading);
	cleanup_close(&outlet->fd);
	outlet->fd = -1;
	free(outlet->buffer);
	outlet->buffer = NULL;
}
