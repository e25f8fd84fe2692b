/*
 * Requests under way, in the order in which they were asked: what it takes to send them again over
 * another connection. Called under the connection's lock.
 *
 * A ticket is in the list from its first sending until its last event, and keeps its payload as
 * long. `sent` means that the engine at the other end has it; d->unsent counts those it has not. A
 * request goes again only as it was, under its own id: whether it runs is the engine's to say.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/lib/connection.h"

enum {
	RETRY_MS = 100,	 /* where the engine does not say when */
	LOSSES_MAX = 16, /* connections that may end under a request: perhaps it is the cause */
};
/* A full ring empties without telling: look again after this long. */
#define ROOM_SLICE_NS (1000 * 1000ll)

/*
 * To the shard that does the work: a sandbox's own, or the one that an id's create belongs to;
 * calls take turns. What names another request goes the way that one went.
 */
static uint32_t channel_choose(struct dsec *d, const struct dsec_ring_request *request)
{
	uint32_t shard = (uint32_t)(request->subject.lo >> DSEC_ID_SHARD_SHIFT);
	struct ticket *named = NULL;

	if (dsec__op_names_ticket(request->op))
		named = dsec__ticket_find(d, (int64_t)request->number[0]);
	if (named)
		return named->channel;

	if (request->op == DSEC_OP_CREATE || request->op == DSEC_OP_INVOKE ||
	    request->op == DSEC_OP_NOP)
		shard = request->request_id[15] % d->welcome.shards;
	return shard < d->channel_count ? shard : 0;
}

int dsec__ticket_send(struct dsec *d, struct ticket *ticket)
{
	struct dsec_ring_request request = ticket->request;
	int64_t left_ms;
	int r;

	if ((ticket->losses || ticket->is_refused) && ticket->deadline_ns != INT64_MAX) {
		left_ms = (ticket->deadline_ns - dsec__clock_ns()) / 1000000;
		request.timeout_ms = left_ms > 0 ? (uint32_t)left_ms : 1;
	}
	ticket->channel = channel_choose(d, &request);
	r = d->transport->submit(d, ticket, &request, ticket->payload);
	if (r == 0) {
		ticket->sent = true;
		ticket->is_refused = false;
	}
	return r;
}

void dsec__ticket_depart(struct dsec *d, struct ticket *ticket)
{
	ticket->keeps_payload = d->reconnect.patience_ns || ticket->is_patient;
	if (ticket->keeps_payload) {
		d->kept_bytes += ticket->request.payload_bytes;
	} else {
		free(ticket->payload);
		ticket->payload = NULL;
	}
	ticket->older = d->newest;
	if (ticket->older)
		ticket->older->newer = ticket;
	else
		d->oldest = ticket;
	d->newest = ticket;
}

static bool is_under_way(const struct dsec *d, const struct ticket *ticket)
{
	return ticket->older || d->oldest == ticket;
}

void dsec__ticket_settle(struct dsec *d, struct ticket *ticket)
{
	if (!is_under_way(d, ticket))
		return;
	if (ticket->newer)
		ticket->newer->older = ticket->older;
	else
		d->newest = ticket->older;
	if (ticket->older)
		ticket->older->newer = ticket->newer;
	else
		d->oldest = ticket->newer;
	ticket->older = ticket->newer = NULL;
	d->unsent -= !ticket->sent;
	if (ticket->keeps_payload)
		d->kept_bytes -= ticket->request.payload_bytes;
	free(ticket->payload);
	ticket->payload = NULL;
	dsec__credit_done(d, ticket);
	dsec__told_done(&ticket->told);
}

/* It waits to be sent again: nothing of it is with an engine, and what half came is forgotten. */
static void ticket_recall(struct dsec *d, struct ticket *ticket, int64_t retry_ns)
{
	if (ticket->sent)
		d->unsent++;
	ticket->sent = false;
	ticket->payload_at = UINT64_MAX;
	ticket->retry_ns = retry_ns;
	ticket->indexes = 0;
	dsec__refusals_forget(ticket);
	dsec__credit_forget(d, ticket);
	dsec__credit_resume(ticket);
	dsec__subscription_resume(ticket);
	if (ticket->capture && !ticket->window_bytes)
		dsec__capture_clear(ticket->capture);
	if (retry_ns < d->resend_due_ns)
		d->resend_due_ns = retry_ns;
}

static void ticket_give_up(struct dsec *d, struct ticket *ticket, int error, const char *detail)
{
	ticket_recall(d, ticket, INT64_MAX);
	dsec__ticket_lose(d, ticket, error, detail);
}

void dsec__tickets_recall(struct dsec *d)
{
	struct ticket *ticket, *newer;

	for (ticket = d->oldest; ticket; ticket = newer) {
		newer = ticket->newer;
		ticket->losses += ticket->sent;
		if (ticket->abandoned) {
			ticket_recall(d, ticket, INT64_MAX);
			dsec__ticket_release(d, ticket);
		} else if (ticket->cancelled) {
			ticket_give_up(d, ticket, -ECONNRESET,
				       "the engine went before it could be cancelled");
		} else if (ticket->sent && (ticket->is_stream || ticket->is_partial)) {
			/* A file may be another by now, and what was written is gone. */
			ticket_give_up(d, ticket, -ECONNRESET,
				       "the connection went in the middle of its answer");
		} else if (ticket->losses > LOSSES_MAX) {
			ticket_give_up(d, ticket, -ECONNRESET,
				       "the engine went too often while it had this request");
		} else {
			ticket_recall(d, ticket, 0);
			ticket->patience_ns = 0;
		}
	}
	d->resend_blocked = false;
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* 1: it ended; 0: it was sent, or waits on; *due: until when. */
static int ticket_resend(struct dsec *d, struct ticket *ticket, int64_t now, int64_t *due)
{
	int r;

	if (ticket->deadline_ns <= now) {
		if (ticket->is_refused)
			dsec__ticket_refuse(d, ticket);
		else
			dsec__ticket_lose(
				d, ticket, -ETIMEDOUT,
				"its time passed while the engine was away or still had it");
		return 1;
	}
	if (d->link != LINK_UP || ticket->retry_ns > now) {
		*due = earlier(*due, ticket->deadline_ns);
		if (d->link == LINK_UP)
			*due = earlier(*due, ticket->retry_ns);
		return 0;
	}
	r = d->resend_blocked ? -EAGAIN : dsec__ticket_send(d, ticket);
	if (r == 0) {
		d->unsent--;
	} else if (r == -EAGAIN) {
		d->resend_blocked = true;
		*due = earlier(*due, now + ROOM_SLICE_NS);
	} else if (r == -EMSGSIZE) {
		dsec__ticket_lose(d, ticket, r, "the engine that came has no room for it");
		return 1;
	} else {
		dsec__link_lose(d, r);
	}
	return 0;
}

int dsec__tickets_resend(struct dsec *d)
{
	int64_t now = dsec__clock_ns(), due = INT64_MAX;
	struct ticket *ticket, *newer;
	int ended = 0;

	if (!d->unsent || now < d->resend_due_ns)
		return 0;
	d->resend_blocked = false;
	for (ticket = d->oldest; ticket && !d->lost; ticket = newer) {
		newer = ticket->newer;
		if (!ticket->sent)
			ended += ticket_resend(d, ticket, now, &due);
	}
	d->resend_due_ns = due;
	return ended;
}

/* ---- answers that mean "later" ---- */

bool dsec__refusal_keep(struct ticket *ticket, struct event *event)
{
	struct event **end = &ticket->refusals;

	if (event->seen.kind != DSEC_EV_CREATED || !ticket->is_patient)
		return false;
	if (event->seen.status.code != DSEC_REFUSED) {
		ticket->is_patient = false; /* one is made: the others are told as they are */
		return false;
	}
	while (*end)
		end = &(*end)->next;
	event->next = NULL;
	*end = event;
	return true;
}

struct event *dsec__refusal_take(struct ticket *ticket)
{
	struct event *event = ticket->refusals;

	if (event)
		ticket->refusals = event->next;
	return event;
}

void dsec__refusals_forget(struct ticket *ticket)
{
	struct event *event;

	while ((event = dsec__refusal_take(ticket)))
		dsec__event_discard(event);
}

/* When to ask again: not all that were refused at once shall come at once. */
static int64_t retry_at(struct dsec *d, int64_t now, int64_t wait_ms)
{
	int64_t wait_ns = (wait_ms ? wait_ms : RETRY_MS) * 1000000;
	uint8_t chance = 0;

	(void)dsec__random(d, &chance, 1); /* without it: as the engine said */
	return now + wait_ns + wait_ns * chance / 512;
}

/* A create says of each what became of it, and is well itself. */
static const struct dsec_status *answer_of(const struct ticket *ticket, const struct event *last)
{
	bool is_refused = ticket->refusals && last->seen.status.code == DSEC_OK;

	return is_refused ? &ticket->refusals->seen.status : &last->seen.status;
}

/* Nothing was done, nothing of it was told, and there is time. */
static bool asks_again(const struct ticket *ticket, const struct dsec_status *answer,
		       int64_t retry_ns)
{
	return answer->code == DSEC_REFUSED && ticket->is_patient && !ticket->cancelled &&
	       !ticket->is_partial && !ticket->started && retry_ns < ticket->deadline_ns;
}

/*
 * REFUSED: nothing was done, and there may be room later. Of a request that a connection was lost
 * under it says less: the engine did not even look whether it knows it. CONFLICT with a time, of
 * such a one: the same engine still does what was asked first.
 */
bool dsec__ticket_postpone(struct dsec *d, struct ticket *ticket, struct event *last)
{
	const struct dsec_status *status = answer_of(ticket, last);
	int64_t now, retry_ns, wait_ms = status->retry_after_ms;
	bool again;

	if (ticket->abandoned || (last->seen.flags & DSEC_REPLAYED))
		return false;
	if (status->code != DSEC_REFUSED && (status->code != DSEC_CONFLICT || !wait_ms))
		return false;
	now = dsec__clock_ns();
	retry_ns = retry_at(d, now, wait_ms);
	again = !ticket->losses && asks_again(ticket, status, retry_ns);
	if (!again && !ticket->losses)
		return false;
	if (!ticket->patience_ns)
		ticket->patience_ns = ticket->deadline_ns != INT64_MAX ?
					      ticket->deadline_ns :
					      now + d->reconnect.patience_ns;
	ticket->capture = last->capture;
	last->capture = NULL;
	if (again)
		dsec__refusal_note(ticket, status);
	dsec__event_discard(last);
	d->transport->ticket_end(d, ticket);
	if (ticket->cancelled) {
		ticket_give_up(d, ticket, -ECANCELED, "cancelled, but an earlier connection's too");
	} else if (now >= ticket->patience_ns) {
		ticket_give_up(d, ticket, -ETIMEDOUT,
			       "still under way, as an earlier connection's");
	} else {
		ticket_recall(d, ticket, retry_ns);
		ticket->is_refused = again;
		if (d->leader)
			dsec__leader_kick(d); /* it sleeps for too long */
	}
	return true;
}
