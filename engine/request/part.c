/*
 * A part on its shard: its beginning, when it is its client's turn, and what its op says of it:
 * events on their way home, more work for a later turn, and the end. Called by request.c and the
 * ops. A part's events arrive in order, and before its end.
 */
#include "engine/request/request.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/client/channel.h"
#include "engine/request/request_ops.h"
#include "engine/shard.h"

struct event_mail {
	struct mail mail;
	struct request *request;
	struct dsec_ring_event event;
	char payload[];
};

/* ---- the beginning, on its shard ---- */

static void part_arrived(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);

	(void)owner; /* part->shard */
	if (claim_of_part(part))
		op_of(part->request)->run(part);
}

static void part_takes_turn(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);

	(void)owner; /* part->shard */
	part->mail.deliver = part_arrived;
	part->walk.mail = &part->mail;
	shard_begin(part->shard, &part->walk, part->request->client);
}

void part_send(struct part *part, uint32_t started)
{
	part->started = started;
	part->mail.deliver = part_takes_turn;
	if (part->shard == part->request->home)
		part_takes_turn(&part->mail, part->shard);
	else
		shard_send(part->request->home, part->shard, &part->mail);
}

/* ---- events ---- */

static uint32_t emission_bytes(const struct emission *e)
{
	return e->bytes + (e->status.code ? (uint32_t)sizeof(struct dsec_wire_status) : 0);
}

void emission_write(const struct request *request, const struct emission *e,
		    struct dsec_ring_event *ret, char *ret_payload)
{
	struct dsec_wire_status text;

	*ret = (struct dsec_ring_event){
		.ticket = request->entry.ticket,
		.kind = e->kind,
		.flags = e->flags,
		.code = e->status.code,
		.blame = e->status.blame,
		.error = e->status.error,
		.subject = e->subject,
		.exec = e->exec,
		.offset = e->offset,
		.stream = e->stream,
		.index = e->index,
		.bytes = emission_bytes(e),
	};
	if (e->bytes)
		memcpy(ret_payload, e->body, e->bytes);
	if (e->status.code) {
		ret->flags |= DSEC_EVENT_STATUS;
		status_write(&e->status, &text);
		memcpy(ret_payload + e->bytes, &text, sizeof text);
	}
}

static void event_deliver(struct mail *mail, void *owner)
{
	struct event_mail *m = container_of(mail, struct event_mail, mail);

	(void)owner; /* the request's home */
	claim_note(m->request, &m->event, m->payload);
	if (!m->request->detached)
		channel_post(m->request->channel, &m->event, m->payload);
	free(m); /* the allocator takes memory of other threads back without a lock */
}

/* NULL: nobody hears of it, or there is no memory. */
static struct event_mail *event_new(struct part *part, uint32_t bytes)
{
	struct request *request = part->request;
	struct event_mail *m;

	if (request->detached && request->home == part->shard && !claim_notes(request))
		return NULL;
	m = malloc(sizeof *m + bytes);
	if (!m) {
		/* The event is lost, so the request must not end well. */
		struct status s = status_of_errno(-ENOMEM, "request", "event");

		status_merge(&part->status, &s);
		return NULL;
	}
	m->request = request;
	m->mail.deliver = event_deliver;
	return m;
}

static void event_send(struct part *part, struct event_mail *m)
{
	struct shard *home = part->request->home;

	if (home == part->shard)
		event_deliver(&m->mail, home);
	else
		shard_send(part->shard, home, &m->mail);
}

void part_emit(struct part *part, const struct emission *e)
{
	struct event_mail *m = event_new(part, emission_bytes(e));

	if (!m)
		return;
	emission_write(part->request, e, &m->event, m->payload);
	event_send(part, m);
}

static struct dsec_ring_event event_again(const struct request *request,
					  const struct dsec_ring_event *event)
{
	struct dsec_ring_event again = *event;

	again.ticket = request->entry.ticket;
	again.flags |= DSEC_EVENT_REPLAYED;
	return again;
}

void part_repeat(struct part *part, const struct dsec_ring_event *event, const char *payload)
{
	struct event_mail *m = event_new(part, event->bytes);

	if (!m)
		return;
	m->event = event_again(part->request, event);
	if (event->bytes)
		memcpy(m->payload, payload, event->bytes);
	event_send(part, m);
}

void request_repeat(struct request *request, const struct dsec_ring_event *event,
		    const char *payload)
{
	const struct dsec_ring_event again = event_again(request, event);

	if (!request->detached)
		channel_post(request->channel, &again, payload);
}

void part_again(struct part *part, void (*more)(struct mail *mail, void *owner))
{
	part->mail.deliver = more;
	part->walk.mail = &part->mail;
	shard_walk(part->shard, &part->walk, part->request->client);
}

static void part_walks(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);

	(void)owner; /* part->shard */
	part_again(part, part->more);
}

/* From the request's home, behind all that the part emitted. */
static void part_goes_on(struct part *part)
{
	part->unheard = part->request->detached;
	part->mail.deliver = part_walks;
	shard_send(part->request->home, part->shard, &part->mail);
}

static void part_asks_for_room(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);
	struct channel *channel = part->request->channel;

	(void)owner; /* the request's home */
	if (part->request->detached || !channel_is_full(channel)) {
		part_goes_on(part);
		return;
	}
	mail->next = NULL;
	*channel->held_last = mail;
	channel->held_last = &mail->next;
}

void part_again_with_room(struct part *part, void (*more)(struct mail *mail, void *owner))
{
	part->more = more;
	part->mail.deliver = part_asks_for_room;
	shard_send(part->shard, part->request->home, &part->mail);
}

void requests_have_room(struct channel *channel)
{
	struct mail *mail = channel->held;

	channel->held = NULL;
	channel->held_last = &channel->held;
	while (mail) {
		struct mail *next = mail->next;

		part_goes_on(container_of(mail, struct part, mail));
		mail = next;
	}
}

void part_end(struct part *part, const struct status *status, const struct emission *final)
{
	struct request *request = part->request;

	assert(!part->ended);
	part->ended = true;
	if (status)
		status_merge(&part->status, status);
	if (final) {
		uint32_t bytes = emission_bytes(final);

		part->final_payload = malloc(bytes + 1);
		if (part->final_payload) {
			emission_write(request, final, &part->final, part->final_payload);
			part->has_final = true;
		} else {
			struct status s = status_of_errno(-ENOMEM, "request", "result");

			status_merge(&part->status, &s);
		}
	}
	part->mail.deliver = request_part_home;
	shard_send(part->shard, request->home, &part->mail);
}
