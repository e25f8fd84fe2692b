/*
 * Requests under way, and where their events go. Called by the transports (what came) and by the
 * calls (what is asked and taken), always under the connection's lock.
 *
 * A ticket's table entry is never moved or freed before the connection is; its name holds a
 * generation, so that a stale one finds nothing. Exactly one event with LAST is delivered for each.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/lib/connection.h"

enum { TICKET_PLACE_BITS = 20 };

_Static_assert(TICKETS_MAX == 1 << TICKET_PLACE_BITS, "names hold every place");

static struct ticket *ticket_grow(struct dsec *d)
{
	struct ticket **tickets = d->tickets, *ticket;
	uint32_t capacity = d->ticket_capacity;

	if (d->ticket_count == TICKETS_MAX)
		return NULL;
	if (d->ticket_count == capacity) {
		capacity = capacity ? 2 * capacity : 64;
		tickets = realloc(tickets, capacity * sizeof(struct ticket *));
		if (!tickets)
			return NULL;
		d->tickets = tickets;
		d->ticket_capacity = capacity;
	}
	ticket = calloc(1, sizeof(*ticket));
	if (!ticket)
		return NULL;
	ticket->name = d->ticket_count;
	d->tickets[d->ticket_count++] = ticket;
	return ticket;
}

struct ticket *dsec__ticket_new(struct dsec *d)
{
	struct ticket *ticket = d->free_tickets;
	struct event *spare;
	int64_t name;

	spare = calloc(1, sizeof(*spare));
	if (!spare)
		return NULL;
	if (ticket)
		d->free_tickets = ticket->next;
	else
		ticket = ticket_grow(d);
	if (!ticket) {
		free(spare);
		return NULL;
	}
	name = ticket->name;
	*ticket = (struct ticket){
		.name = name,
		.used = true,
		.payload_at = UINT64_MAX,
		.spare = spare,
	};
	ticket->last = &ticket->first;
	return ticket;
}

struct ticket *dsec__ticket_find(struct dsec *d, int64_t name)
{
	uint32_t place = (uint32_t)(name & (TICKETS_MAX - 1));

	if (name < 0 || place >= d->ticket_count)
		return NULL;
	if (!d->tickets[place]->used || d->tickets[place]->name != name)
		return NULL;
	return d->tickets[place];
}

static void events_discard(struct ticket *ticket)
{
	while (ticket->first)
		dsec__event_discard(dsec__ticket_take(ticket));
}

void dsec__ticket_release(struct dsec *d, struct ticket *ticket)
{
	assert(ticket->used);
	assert(!ticket->ready);
	events_discard(ticket);
	dsec__event_discard(ticket->spare);
	dsec__capture_free(ticket->capture);
	if (ticket->queue)
		ticket->queue->outstanding--;
	ticket->used = false;
	/* 43 bits of generation: a million a second for ninety days in one place, then again. */
	ticket->name = (int64_t)((uint64_t)(ticket->name + TICKETS_MAX) & INT64_MAX);
	ticket->next = d->free_tickets;
	d->free_tickets = ticket;
}

struct event *dsec__ticket_take(struct ticket *ticket)
{
	struct event *event = ticket->first;

	ticket->first = event->next;
	if (!ticket->first)
		ticket->last = &ticket->first;
	event->next = NULL;
	return event;
}

/* Hands an event over; with LAST the ticket has ended. */
static void ticket_deliver(struct dsec *d, struct ticket *ticket, struct event *event)
{
	if (event->seen.flags & DSEC_LAST) {
		ticket->ended = true;
		d->transport->ticket_end(d, ticket);
	}
	if (ticket->abandoned) {
		dsec__event_discard(event);
		if (ticket->ended)
			dsec__ticket_release(d, ticket);
		return;
	}
	*ticket->last = event;
	ticket->last = &event->next;
	if (ticket->queue)
		dsec__queue_link(ticket);
	dsec__ticket_notify(d, ticket);
}

int dsec__dispatch(struct dsec *d, const struct dsec_ring_event *wire, const void *payload)
{
	struct ticket *ticket;
	struct event *event;
	int r;

	ticket = dsec__ticket_find(d, (int64_t)wire->ticket);
	if (!ticket || ticket->ended)
		return -EPROTO;
	if (!(wire->flags & DSEC_EVENT_LAST)) {
		if (wire->kind > DSEC_EV_RECONNECTED || ticket->abandoned)
			return 0;
		if (wire->kind == DSEC_EV_DATA && ticket->capture)
			return dsec__capture_add(ticket->capture, wire, payload);
	}
	r = dsec__event_new(ticket, wire, payload, &event);
	if (r < 0)
		return r;
	ticket_deliver(d, ticket, event);
	return 0;
}

static const char *lost_detail(const struct dsec *d)
{
	switch (d->lost) {
	case -EPROTO:
		return "the engine sent what makes no sense";
	case -ENOMEM:
		return "no memory for what the engine sent";
	default:
		return "the engine closed the connection";
	}
}

static void ticket_lose(struct dsec *d, struct ticket *ticket)
{
	struct event *event = ticket->spare;
	struct dsec_status *status = &event->seen.status;

	ticket->spare = NULL;
	event->seen = (struct dsec_event){
		.size = sizeof(event->seen),
		.kind = DSEC_EV_DONE,
		.flags = DSEC_LAST,
		.ticket = ticket->name,
		.tag = ticket->tag,
		.status = {
			.code = DSEC_LOST,
			.blame = DSEC_BLAME_PLATFORM,
			.error = -d->lost,
			.step = "connection",
		},
	};
	(void)snprintf(status->detail, sizeof(status->detail), "%s", lost_detail(d)); /* fits */
	ticket_deliver(d, ticket, event);
}

void dsec__lose(struct dsec *d, int error)
{
	if (d->lost)
		return;
	d->lost = error;
	for (uint32_t place = 0; place < d->ticket_count; place++) {
		struct ticket *ticket = d->tickets[place];

		if (ticket->used && !ticket->ended)
			ticket_lose(d, ticket);
	}
	/* Those who wait for room, or on queues with nothing outstanding, must hear of it too. */
	for (struct dsec_queue *q = d->queues; q; q = q->next)
		dsec__queue_notify(q);
}

void dsec__tickets_done(struct dsec *d)
{
	for (uint32_t place = 0; place < d->ticket_count; place++) {
		struct ticket *ticket = d->tickets[place];

		if (ticket->used) {
			events_discard(ticket);
			dsec__event_discard(ticket->spare);
			dsec__capture_free(ticket->capture);
		}
		free(ticket);
	}
	free(d->tickets);
	d->tickets = NULL;
	d->ticket_count = 0;
	d->free_tickets = NULL;
}
