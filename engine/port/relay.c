/*
 * The relay of relay.h: one op in flight each way, a receive or a send, so that who does not read
 * is not read from either. Called by its owner and from the loop.
 */
#include "engine/port/relay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/base/cleanup.h"

static void way_receive(struct relay_way *way);
static void way_send(struct relay_way *way);

static void relay_settle(struct relay *relay)
{
	struct relay_way *ways = relay->ways;

	if (relay->stopping) {
		for (int i = 0; i < 2; i++)
			if (ways[i].busy)
				io_cancel(relay->io, &ways[i].op);
	} else if (!ways[0].ended || !ways[1].ended) {
		return;
	}
	if (!ways[0].busy && !ways[1].busy)
		relay->over(relay, relay->error);
}

static void relay_fail(struct relay *relay, int error)
{
	if (!relay->error)
		relay->error = error;
	relay->stopping = true;
	relay_settle(relay);
}

static void way_end(struct relay_way *way)
{
	way->ended = true;
	/* Fails where that side is gone altogether, which its own stream tells. */
	(void)shutdown(way->to_fd, SHUT_WR);
	relay_settle(way->relay);
}

static void way_received(struct io_op *op, int res)
{
	struct relay_way *way = container_of(op, struct relay_way, op);

	way->busy = false;
	if (way->relay->stopping || (res < 0 && res != -EINTR && res != -EAGAIN)) {
		relay_fail(way->relay, res < 0 ? res : -ECANCELED);
	} else if (res == 0) {
		way_end(way);
	} else {
		way->at = 0;
		way->bytes = res > 0 ? (uint32_t)res : 0;
		way->relay->moved_bytes += way->bytes;
		way_send(way);
	}
}

static void way_sent(struct io_op *op, int res)
{
	struct relay_way *way = container_of(op, struct relay_way, op);

	way->busy = false;
	if (way->relay->stopping || (res < 0 && res != -EINTR && res != -EAGAIN)) {
		relay_fail(way->relay, res < 0 ? res : -ECANCELED);
		return;
	}
	if (res > 0) {
		way->at += (uint32_t)res;
		way->bytes -= (uint32_t)res;
	}
	way_send(way);
}

static void way_receive(struct relay_way *way)
{
	way->busy = true;
	way->op.done = way_received;
	io_recv(way->relay->io, &way->op, way->from_fd, way->buffer, RELAY_BYTES);
}

static void way_send(struct relay_way *way)
{
	if (!way->bytes) {
		way_receive(way);
		return;
	}
	way->busy = true;
	way->op.done = way_sent;
	io_send(way->relay->io, &way->op, way->to_fd, way->buffer + way->at, way->bytes);
}

int relay_open(struct relay *relay, struct io *io, const int fds[2], const char *first,
	       uint32_t first_bytes)
{
	relay->io = io;
	relay->moved_bytes = 0;
	for (int i = 0; i < 2; i++) {
		struct relay_way *way = &relay->ways[i];

		*way = (struct relay_way){ .relay = relay,
					   .from_fd = fds[i],
					   .to_fd = fds[!i],
					   .buffer = malloc(RELAY_BYTES) };
		if (!way->buffer) {
			relay_done(relay);
			return -ENOMEM;
		}
	}
	memcpy(relay->ways[0].buffer, first, first_bytes);
	relay->ways[0].bytes = first_bytes;
	way_send(&relay->ways[0]);
	way_send(&relay->ways[1]);
	return 0;
}

bool relay_stop(struct relay *relay)
{
	relay->stopping = true;
	for (int i = 0; i < 2; i++)
		if (relay->ways[i].busy)
			io_cancel(relay->io, &relay->ways[i].op);
	return !relay->ways[0].busy && !relay->ways[1].busy;
}

void relay_reset(const int fds[2])
{
	const struct linger at_once = { .l_onoff = 1 };

	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0) /* fails for what is closed already */
			(void)setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

void relay_done(struct relay *relay)
{
	free(take_ptr(relay->ways[0].buffer));
	free(take_ptr(relay->ways[1].buffer));
}
