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
		.deadline_ns = INT64_MAX,
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

bool dsec__ticket_is_under_way(struct dsec *d, int64_t name)
{
	const struct ticket *ticket = dsec__ticket_find(d, name);

	return ticket && !ticket->ended && !ticket->abandoned;
}

static void events_discard(struct ticket *ticket)
{
	while (ticket->first)
		dsec__event_discard(dsec__ticket_take(ticket));
	dsec__refusals_forget(ticket);
}

void dsec__ticket_release(struct dsec *d, struct ticket *ticket)
{
	assert(ticket->used);
	assert(!ticket->ready);
	events_discard(ticket);
	dsec__event_discard(ticket->spare);
	dsec__capture_free(ticket->capture);
	dsec__ticket_settle(d, ticket);
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
		if (ticket->sent)
			d->transport->ticket_end(d, ticket);
		dsec__ticket_settle(d, ticket);
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

/* Asked again, a list may have other rows: its limit holds for both times together. */
static bool rows_are_full(const struct ticket *ticket)
{
	struct dsec_wire_list list;

	memcpy(&list, ticket->payload, sizeof(list));
	return list.limit && ticket->told.count >= list.limit;
}

/* 1: the caller knows nothing of it yet; 0: the engine, asked again, repeats itself. */
static int event_is_news(struct ticket *ticket, const struct event *event)
{
	const struct dsec_row *row = event->seen.body;
	const struct dsec_usage *usage = event->seen.body;
	uint64_t exec = event->seen.exec;
	bool creates = ticket->op == DSEC_OP_CREATE || ticket->op == DSEC_OP_FORK, news;

	if (event->seen.kind == DSEC_EV_CREATED && creates)
		return dsec__told_add(&ticket->told, (struct dsec_id){ 1, event->seen.index });
	if (event->seen.kind == DSEC_EV_ROW && ticket->op == DSEC_OP_LIST && event->seen.body)
		return rows_are_full(ticket) ? 0 :
		       exec ? dsec__told_add(&ticket->told, (struct dsec_id){ 1, exec }) :
			      dsec__told_add(&ticket->told, row->id);
	if (event->seen.kind == DSEC_EV_ROW && ticket->op == DSEC_OP_STATS && event->seen.body)
		return dsec__told_add(&ticket->told, usage->id);
	if (event->seen.kind == DSEC_EV_ROW && ticket->op == DSEC_OP_CHANGE)
		return dsec__told_add(&ticket->told, event->seen.subject);
	news = event->seen.kind != DSEC_EV_STARTED || !ticket->started;
	ticket->started |= event->seen.kind == DSEC_EV_STARTED;
	return news;
}

static int ticket_tell(struct dsec *d, struct ticket *ticket, struct event *event)
{
	int r = d->reconnect.patience_ns ? event_is_news(ticket, event) : 1;

	if (r > 0)
		ticket_deliver(d, ticket, event);
	else
		dsec__event_discard(event);
	return r < 0 ? r : 0;
}

/* It is not asked again: what was kept back for that is told. */
static int refusals_tell(struct dsec *d, struct ticket *ticket)
{
	struct event *event;
	int r = 0;

	while (r == 0 && (event = dsec__refusal_take(ticket)))
		r = ticket_tell(d, ticket, event);
	return r;
}

/* What is not the last event. */
static int ticket_progress(struct dsec *d, struct ticket *ticket, struct event *event)
{
	int r;

	if (dsec__refusal_keep(ticket, event))
		return 0;
	r = refusals_tell(d, ticket);
	if (r < 0) {
		dsec__event_discard(event);
		return r;
	}
	ticket->is_partial = ticket->op == DSEC_OP_FILE || ticket->op == DSEC_OP_INVOKE;
	dsec__subscribed_event(ticket, &event->seen);
	r = dsec__credit_received(ticket, event);
	if (r == 0)
		return ticket_tell(d, ticket, event);
	dsec__event_discard(event);
	return r;
}

int dsec__dispatch(struct dsec *d, const struct dsec_ring_event *wire, const void *payload)
{
	bool last = wire->flags & DSEC_EVENT_LAST;
	struct ticket *ticket;
	struct event *event;
	int r;

	ticket = dsec__ticket_find(d, (int64_t)wire->ticket);
	if (!ticket || ticket->ended || !ticket->sent)
		return -EPROTO;
	if (!last) {
		if (wire->kind >= DSEC_EV_RECONNECTED || ticket->abandoned)
			return 0;
		if (wire->kind == DSEC_EV_DATA && ticket->capture && !ticket->window_bytes)
			return dsec__capture_add(ticket->capture, wire, payload);
	}
	if (!last && ticket->op == DSEC_OP_SUBSCRIBE)
		ticket->seq_epoch = d->welcome.epoch;
	r = dsec__event_new(ticket, wire, payload, &event);
	if (r < 0)
		return r;
	if (!last && ticket->capture && dsec__event_is_stream(&event->seen)) {
		r = dsec__capture_follow(ticket->capture, wire, event->seen.data);
		if (r < 0) {
			dsec__event_discard(event);
			return r;
		}
	}
	if (!last)
		return ticket_progress(d, ticket, event);
	if (ticket->op == DSEC_OP_CREDIT && wire->code == DSEC_REFUSED)
		dsec__credit_refused(d, ticket);
	if (dsec__ticket_postpone(d, ticket, event))
		return 0;
	r = refusals_tell(d, ticket);
	if (r == 0)
		ticket_deliver(d, ticket, event);
	else
		dsec__event_discard(event);
	return r;
}

/* What is known of a request whose engine does not say it. */
static enum dsec_code code_of_loss(const struct ticket *ticket, int error)
{
	if (!ticket->is_refused)
		return DSEC_LOST;
	return error == -ECANCELED ? DSEC_CANCELLED : DSEC_REFUSED;
}

/* With the spare event: there may be no memory. */
static void ticket_end(struct dsec *d, struct ticket *ticket, const struct dsec_status *status)
{
	struct event *event = ticket->spare;

	ticket->spare = NULL;
	event->seen = (struct dsec_event){
		.size = sizeof(event->seen),
		.kind = DSEC_EV_DONE,
		.flags = DSEC_LAST,
		.ticket = ticket->name,
		.tag = ticket->tag,
		.status = *status,
	};
	ticket_deliver(d, ticket, event);
}

void dsec__ticket_lose(struct dsec *d, struct ticket *ticket, int error, const char *detail)
{
	struct dsec_status status = {
		.code = code_of_loss(ticket, error),
		.blame = error == -ECANCELED && ticket->is_refused ? DSEC_BLAME_CALLER :
								     DSEC_BLAME_PLATFORM,
		.error = -error,
		.step = "connection",
	};

	(void)snprintf(status.detail, sizeof(status.detail), "%s", detail); /* fits */
	ticket_end(d, ticket, &status);
}

void dsec__refusal_note(struct ticket *ticket, const struct dsec_status *status)
{
	ticket->spare->seen.status = *status;
}

void dsec__ticket_refuse(struct dsec *d, struct ticket *ticket)
{
	const struct dsec_status refusal = ticket->spare->seen.status;
	struct dsec_status status = refusal;

	/* What does not fit is cut: `step` has the limit in any case. */
	(void)snprintf(status.detail, sizeof(status.detail), "no time to ask again: %.31s%s%.24s",
		       refusal.step, *refusal.detail ? ": " : "", refusal.detail);
	ticket_end(d, ticket, &status);
}

void dsec__lose(struct dsec *d, int error, const char *detail)
{
	if (d->lost)
		return;
	d->lost = error;
	d->lost_detail = detail;
	for (uint32_t place = 0; place < d->ticket_count; place++) {
		struct ticket *ticket = d->tickets[place];

		if (ticket->used && !ticket->ended)
			dsec__ticket_lose(d, ticket, error, detail);
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
			dsec__ticket_settle(d, ticket);
		}
		free(ticket);
	}
	free(d->tickets);
	d->tickets = NULL;
	d->ticket_count = 0;
	d->free_tickets = NULL;
}
