/*
 * Credit: how the engine learns what the caller has consumed of the streams of a request. Called
 * under the connection's lock, when events come, when they are freed, and when there may be room.
 *
 * A stream's counts only grow. What was consumed is told when it is half a window: the engine, who
 * sends at most a window beyond what it was told, never waits for somebody who waits for it. A
 * credit is never kept for another connection: there the request itself says where to go on.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/lib/connection.h"

enum { STREAMS_MAX = 16 };

static struct consumption *stream_of(struct ticket *ticket, uint32_t stream)
{
	struct consumption *streams;

	if (stream < ticket->stream_count)
		return &ticket->streams[stream];
	streams = realloc(ticket->streams, (stream + 1) * sizeof(*streams));
	if (!streams)
		return NULL;
	for (uint32_t at = ticket->stream_count; at <= stream; at++)
		streams[at] = (struct consumption){ 0 };
	ticket->streams = streams;
	ticket->stream_count = stream + 1;
	return &streams[stream];
}

/* STATE and GAP of a subscription count one each. */
static int news_received(struct ticket *ticket, struct event *news)
{
	struct consumption *stream = stream_of(ticket, 0);

	if (!stream)
		return -ENOMEM;
	news->ordinal = ++stream->received;
	return 0;
}

int dsec__credit_received(struct ticket *ticket, struct event *received)
{
	const struct dsec_event *event = &received->seen;
	struct consumption *stream;

	if (ticket->op == DSEC_OP_SUBSCRIBE)
		return event->kind == DSEC_EV_STATE || event->kind == DSEC_EV_GAP ?
			       news_received(ticket, received) :
			       0;
	if (!ticket->window_bytes || !dsec__event_is_stream(event))
		return 0;
	if (event->stream >= STREAMS_MAX || event->offset > UINT64_MAX - event->bytes)
		return -EPROTO;
	stream = stream_of(ticket, event->stream);
	if (!stream)
		return -ENOMEM;
	if (event->offset + event->bytes > stream->received)
		stream->received = event->offset + event->bytes;
	return 0;
}

/* With the lock. Never waits. */
static int credit_send(struct dsec *d, struct ticket *ticket, uint32_t number)
{
	struct consumption *stream = &ticket->streams[number];
	struct dsec_call call = { 0 };
	struct submission submission = {
		.op = DSEC_OP_CREDIT,
		.numbers = { (uint64_t)ticket->name, number, stream->consumed - stream->base },
		.internal = true,
	};
	int r;

	r = dsec__submit_now(d, &call, &submission);
	if (r == 0)
		stream->credited = stream->consumed;
	return r;
}

static bool stream_is_due(const struct ticket *ticket, const struct consumption *stream)
{
	return stream->consumed > stream->credited &&
	       stream->consumed - stream->credited >= (ticket->window_bytes + 1) / 2;
}

/* What is due of one ticket. */
static void ticket_credit(struct dsec *d, struct ticket *ticket)
{
	bool due = false;
	int r;

	for (uint32_t at = 0; at < ticket->stream_count; at++) {
		if (!stream_is_due(ticket, &ticket->streams[at]))
			continue;
		r = credit_send(d, ticket, at);
		if (r == -EPROTO || r == -ECONNRESET)
			dsec__link_lose(d, r);
		due |= r < 0;
	}
	if (due == ticket->credit_due)
		return;
	ticket->credit_due = due;
	d->credits_due += due ? 1 : -1;
}

void dsec__credit_consumed(struct dsec *d, struct ticket *ticket, const struct event *consumed)
{
	const struct dsec_event *event = &consumed->seen;
	uint64_t end = consumed->ordinal ? consumed->ordinal : event->offset + event->bytes;
	struct consumption *stream;

	if ((!consumed->ordinal && !dsec__event_is_stream(event)) ||
	    event->stream >= ticket->stream_count)
		return;
	stream = &ticket->streams[event->stream];
	if (end > stream->consumed)
		stream->consumed = end;
	if (ticket->sent && !ticket->ended)
		ticket_credit(d, ticket);
}

void dsec__credits_send(struct dsec *d)
{
	for (struct ticket *ticket = d->oldest; ticket && d->credits_due; ticket = ticket->newer) {
		if (ticket->credit_due && ticket->sent && d->link == LINK_UP)
			ticket_credit(d, ticket);
	}
}

void dsec__credit_refused(struct dsec *d, const struct ticket *credit)
{
	struct ticket *ticket = dsec__ticket_find(d, (int64_t)credit->request.number[0]);
	uint32_t stream = (uint32_t)credit->request.number[1];

	if (!ticket || ticket->ended || stream >= ticket->stream_count)
		return;
	ticket->streams[stream].credited = ticket->streams[stream].base;
	d->credits_due += !ticket->credit_due;
	ticket->credit_due = true;
}

void dsec__credit_forget(struct dsec *d, struct ticket *ticket)
{
	for (uint32_t at = 0; at < ticket->stream_count; at++)
		ticket->streams[at].credited = ticket->streams[at].received;
	if (ticket->op == DSEC_OP_SUBSCRIBE && ticket->stream_count) /* which counts anew */
		ticket->streams[0].base = ticket->streams[0].received;
	d->credits_due -= ticket->credit_due;
	ticket->credit_due = false;
}

void dsec__credit_resume(struct ticket *ticket)
{
	size_t at = 0;

	if (ticket->op == DSEC_OP_EXEC)
		at = offsetof(struct dsec_wire_exec, resume);
	else if (ticket->op == DSEC_OP_ATTACH)
		at = offsetof(struct dsec_wire_attach, at);
	if (!at || !ticket->window_bytes || !ticket->payload)
		return;
	for (uint32_t stream = 1; stream < ticket->stream_count && stream <= 2; stream++) {
		uint64_t received = ticket->streams[stream].received;

		/* Until the first of a stream came it begins where it was to begin. */
		if (received)
			memcpy((char *)ticket->payload + at + (stream - 1) * sizeof(received),
			       &received, sizeof(received));
	}
}

void dsec__credit_done(struct dsec *d, struct ticket *ticket)
{
	d->credits_due -= ticket->credit_due;
	ticket->credit_due = false;
	free(ticket->streams);
	ticket->streams = NULL;
	ticket->stream_count = 0;
}
