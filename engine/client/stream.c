/*
 * Requests and events inline over a socket. Called by channel.c. One receive and one send are in
 * flight at most; events gather in a buffer while a send is out, and what exceeds it waits in the
 * channel's backlog. While nothing is received a hang-up is still seen: the socket is polled for
 * it.
 */
#include "engine/client/stream.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/base/cleanup.h"
#include "engine/client/channel.h"
#include "engine/client/client.h"
#include "engine/request/request.h"
#include "engine/shard.h"

enum { STREAM_OUT_BYTES = 256 << 10, STREAM_REQUESTS_MAX = 64 };

static void stream_receive(struct channel *channel);
static void stream_take(struct channel *channel);

static bool stream_grow(struct channel *channel, uint32_t bytes)
{
	char *in = realloc(channel->in, bytes);

	if (!in)
		return false;
	channel->in = in;
	channel->in_wanted = bytes;
	return true;
}

/*
 * An entry is complete: its payload follows, or the request begins, or it stays where it is until
 * others have ended. False: it breaks the rules.
 */
static bool stream_got_entry(struct channel *channel)
{
	struct dsec_ring_request entry;
	char *payload = NULL;

	memcpy(&entry, channel->in, sizeof entry);
	channel->is_held = false;
	if (entry.payload_bytes > DSEC_PAYLOAD_BYTES_MAX || entry.payload_at)
		return false;
	if (channel->in_bytes < sizeof entry + entry.payload_bytes)
		return stream_grow(channel, (uint32_t)sizeof entry + entry.payload_bytes);
	if (channel->in_flight >= requests_in_flight_max(entry.op, STREAM_REQUESTS_MAX)) {
		channel->is_held = true;
		return true;
	}
	if (entry.payload_bytes) {
		payload = malloc(entry.payload_bytes);
		if (!payload)
			return false;
		memcpy(payload, channel->in + sizeof entry, entry.payload_bytes);
	}
	channel->in_bytes = 0;
	channel->in_wanted = sizeof entry;
	request_begin(channel, &entry, payload);
	return true;
}

static void stream_received(struct io_op *op, int res)
{
	struct channel *channel = container_of(op, struct channel, receive);

	channel->receiving = false;
	if (channel->closing) {
		client_channel_settled(channel);
		return;
	}
	if (res <= 0) {
		client_hung_up(channel);
		return;
	}
	channel->in_bytes += (uint32_t)res;
	stream_take(channel);
	stream_receive(channel);
}

static void stream_take(struct channel *channel)
{
	if (channel->in_bytes == channel->in_wanted && !stream_got_entry(channel))
		client_cut(channel, "its request cannot be taken"); /* the next receive ends */
}

/*
 * Not while too many of the client's requests are in flight or it does not read its events: then
 * the socket holds it back.
 */
static void stream_receive(struct channel *channel)
{
	if (channel->receiving || channel->closing)
		return;
	if (channel->is_held)
		stream_take(channel);
	if (channel->is_held || channel_is_full(channel)) {
		if (channel->hung_up)
			client_hung_up(channel); /* what it sent last is not served */
		return;
	}
	channel->receiving = true;
	channel->receive.done = stream_received;
	io_recv(channel->shard->io, &channel->receive, client_socket(channel->client),
		channel->in + channel->in_bytes, channel->in_wanted - channel->in_bytes);
}

static void stream_watch(struct channel *channel);

/* What the client sent before it hung up is received first, where that goes on. */
static void stream_hung_up(struct io_op *op, int res)
{
	struct channel *channel = container_of(op, struct channel, hangup);

	channel->watching = op->flags & IO_MORE;
	if (channel->closing) {
		client_channel_settled(channel);
		return;
	}
	channel->hung_up |= res > 0;
	if (channel->hung_up)
		stream_receive(channel);
	else if (!channel->watching)
		stream_watch(channel);
}

static void stream_watch(struct channel *channel)
{
	channel->watching = true;
	channel->hangup.done = stream_hung_up;
	io_poll(channel->shard->io, &channel->hangup, client_socket(channel->client), POLLRDHUP);
}

void stream_open(struct channel *channel)
{
	stream_watch(channel);
	if (!stream_grow(channel, sizeof(struct dsec_ring_request)))
		client_cut(channel, "no memory");
	stream_receive(channel);
}

void stream_resume(struct channel *channel)
{
	stream_receive(channel);
}

static void stream_send(struct channel *channel);

static void stream_sent(struct io_op *op, int res)
{
	struct channel *channel = container_of(op, struct channel, send);

	channel->sending = false;
	if (channel->closing) {
		client_channel_settled(channel);
		return;
	}
	if (res < 0) {
		client_cut(channel, NULL); /* the receive ends too, and with it the client */
		return;
	}
	channel->out_sent += (uint32_t)res;
	if (channel->out_sent == channel->out_bytes)
		channel->out_sent = channel->out_bytes = 0;
	channel_flush_stream(channel);
	stream_send(channel);
	stream_receive(channel);
}

static void stream_send(struct channel *channel)
{
	if (channel->sending || channel->closing || channel->out_sent == channel->out_bytes)
		return;
	channel->sending = true;
	channel->send.done = stream_sent;
	io_send(channel->shard->io, &channel->send, client_socket(channel->client),
		channel->out + channel->out_sent, channel->out_bytes - channel->out_sent);
}

bool stream_put(struct channel *channel, const struct dsec_ring_event *event, const char *payload)
{
	uint32_t bytes = (uint32_t)sizeof *event + event->bytes;

	if (channel->sending && channel->out_bytes + bytes > STREAM_OUT_BYTES)
		return false;
	if (channel->out_bytes + bytes > channel->out_max) {
		uint32_t max = channel->out_bytes + bytes;
		char *out;

		if (channel->sending)
			return false; /* the kernel reads the buffer: it cannot move now */
		if (max < STREAM_OUT_BYTES)
			max = STREAM_OUT_BYTES;
		out = realloc(channel->out, max);
		if (!out)
			return false;
		channel->out = out;
		channel->out_max = max;
	}
	memcpy(channel->out + channel->out_bytes, event, sizeof *event);
	if (event->bytes)
		memcpy(channel->out + channel->out_bytes + sizeof *event, payload, event->bytes);
	channel->out_bytes += bytes;
	stream_send(channel);
	return true;
}

void stream_close(struct channel *channel)
{
	if (channel->receiving)
		io_cancel(channel->shard->io, &channel->receive);
	if (channel->sending)
		io_cancel(channel->shard->io, &channel->send);
	if (channel->watching)
		io_cancel(channel->shard->io, &channel->hangup);
}
