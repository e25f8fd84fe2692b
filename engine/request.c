/*
 * Requests and their parts: checking, spreading over shards, events on their way home, cancelling,
 * deadlines and the one LAST. Called by channels with copies of what clients wrote and by the ops.
 * Exactly one LAST follows every accepted request, whatever happens; a request is freed when all
 * its parts have ended and every cancel that was sent has come back.
 */
#include "engine/request.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/channel.h"
#include "engine/records.h"
#include "engine/sandbox.h"
#include "engine/shard.h"

/* TURNS: all shards, one after the other in order of their numbers. */
enum target { TARGET_HOME, TARGET_SUBJECT, TARGET_ALL, TARGET_TURNS, TARGET_CREATE };

struct op_info {
	const char *name;
	enum target target;
	uint32_t body_bytes; /* of the fixed struct in the payload; 0: no payload */
	void (*run)(struct part *part);
	void (*cancel)(struct part *part); /* NULL: the op ends soon by itself */
};

static void cancel_part(struct part *part);
static void nop_part(struct part *part);

static const struct op_info ops[DSEC_OP_COUNT] = {
	[DSEC_OP_NOP] = { "nop", TARGET_HOME, 0, nop_part, NULL },
	[DSEC_OP_CANCEL] = { "cancel", TARGET_HOME, 0, cancel_part, NULL },
	[DSEC_OP_CAPABILITIES] = { "capabilities", TARGET_HOME, 0, capabilities_part, NULL },
	[DSEC_OP_CREATE] = { "create", TARGET_CREATE, sizeof(struct dsec_wire_create), create_part,
			     create_part_cancel },
	[DSEC_OP_DESTROY] = { "destroy", TARGET_ALL, sizeof(struct dsec_wire_select), destroy_part,
			      NULL },
	[DSEC_OP_EXEC] = { "exec", TARGET_SUBJECT, sizeof(struct dsec_wire_exec), exec_part,
			   exec_part_cancel },
	[DSEC_OP_LIST] = { "list", TARGET_TURNS, sizeof(struct dsec_wire_list), list_part, NULL },
	[DSEC_OP_STATS] = { "stats", TARGET_ALL, sizeof(struct dsec_wire_select), stats_part,
			    NULL },
	[DSEC_OP_CHECK] = { "check", TARGET_ALL, 0, check_part, NULL },
};

struct event_mail {
	struct mail mail;
	struct request *request;
	struct dsec_ring_event event;
	char payload[];
};

static const struct op_info *op_of(const struct request *request)
{
	return request->entry.op < DSEC_OP_COUNT && ops[request->entry.op].run ?
		       &ops[request->entry.op] :
		       NULL;
}

/* ---- events ---- */

static uint32_t emission_bytes(const struct emission *e)
{
	return e->bytes + (e->status.code ? (uint32_t)sizeof(struct dsec_wire_status) : 0);
}

static void emission_write(const struct request *request, const struct emission *e,
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
	if (!m->request->detached)
		channel_post(m->request->channel, &m->event, m->payload);
	free(m); /* the allocator takes memory of other threads back without a lock */
}

void part_emit(struct part *part, const struct emission *e)
{
	struct request *request = part->request;
	uint32_t bytes = emission_bytes(e);
	struct event_mail *m;

	if (request->detached && request->home == part->shard)
		return;
	m = malloc(sizeof *m + bytes);
	if (!m) {
		/* The event is lost, so the request must not end well. */
		struct status s = status_of_errno(-ENOMEM, "request", "event");

		status_merge(&part->status, &s);
		return;
	}
	m->request = request;
	m->mail.deliver = event_deliver;
	emission_write(request, e, &m->event, m->payload);
	if (request->home == part->shard)
		event_deliver(&m->mail, request->home);
	else
		shard_send(part->shard, request->home, &m->mail);
}

/* ---- the end ---- */

static void request_free(struct request *request)
{
	struct shard *home = request->home;
	struct channel *channel = request->channel;

	timer_clear(&home->timers, &request->deadline);
	channel_request_over(channel, request);
	if (request->parts != &request->only)
		free(request->parts);
	free((void *)request->payload.payload);
	pool_put(&home->requests, request);
	shard_check_stopped(home);
}

/* The gathered answer of all shards becomes the body of the LAST. */
static void check_sum(struct dsec_wire_check *sum, const struct dsec_wire_check *part)
{
	sum->clients += part->clients;
	sum->sandboxes += part->sandboxes;
	sum->execs += part->execs;
	sum->slots += part->slots;
	sum->slots_free += part->slots_free;
	sum->slots_rebuilding += part->slots_rebuilding;
	sum->launchers += part->launchers;
	sum->callbacks += part->callbacks;
	sum->callbacks_over_1ms += part->callbacks_over_1ms;
	if (sum->callback_max_ns < part->callback_max_ns)
		sum->callback_max_ns = part->callback_max_ns;
	sum->created_total += part->created_total;
	sum->reused_total += part->reused_total;
	sum->destroyed_total += part->destroyed_total;
	sum->refused_total += part->refused_total;
	sum->failed_total += part->failed_total;
	sum->launchers_lost += part->launchers_lost;
}

static void request_last(struct request *request)
{
	struct part *part = &request->parts[0];
	struct dsec_wire_check sum = { .size = sizeof sum };
	struct emission e = { .kind = DSEC_EV_DONE,
			      .flags = DSEC_EVENT_LAST,
			      .subject = request->entry.subject };
	struct dsec_ring_event event;
	char payload[sizeof sum + sizeof(struct dsec_wire_status)];

	if (request->part_count == 1 && part->has_final) {
		part->final.flags |= DSEC_EVENT_LAST;
		if (request->late && part->final.code == DSEC_CANCELLED)
			part->final.code = DSEC_DEADLINE;
		channel_post(request->channel, &part->final, part->final_payload);
		return;
	}
	for (uint32_t i = 0; i < request->part_count; i++) {
		status_merge(&e.status, &request->parts[i].status);
		check_sum(&sum, &request->parts[i].check);
	}
	if (request->entry.op == DSEC_OP_CHECK) {
		e.body = &sum;
		e.bytes = sizeof sum;
	}
	if (request->late && e.status.code == DSEC_CANCELLED)
		e.status.code = DSEC_DEADLINE;
	emission_write(request, &e, &event, payload);
	channel_post(request->channel, &event, payload);
}

/* A create whose sandboxes end with their connection. */
static bool request_is_disposable(const struct request *request)
{
	return request->entry.op == DSEC_OP_CREATE &&
	       request->body.create.on_disconnect == DSEC_DISCONNECT_DESTROY;
}

static void request_settle(struct request *request)
{
	if (request->parts_ended < request->part_count || request->cancels_out)
		return;
	if (!request->detached)
		request_last(request);
	else if (request_is_disposable(request) && !request->home->stopping)
		sandboxes_disconnect(request->home, request->client); /* made since it went */
	for (uint32_t i = 0; i < request->part_count; i++)
		free(request->parts[i].final_payload);
	request_free(request);
}

static void part_arrived(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);

	(void)owner; /* part->shard */
	op_of(part->request)->run(part);
}

/* `started`: what the parts before it did, where they take turns. */
static void part_send(struct part *part, uint32_t started)
{
	part->started = started;
	part->mail.deliver = part_arrived;
	shard_send(part->request->home, part->shard, &part->mail);
}

static void part_came_home(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);

	(void)owner;
	part->request->parts_ended++;
	if (op_of(part->request) && op_of(part->request)->target == TARGET_TURNS &&
	    part->request->parts_ended < part->request->part_count)
		part_send(&part->request->parts[part->request->parts_ended], part->started);
	request_settle(part->request);
}

void part_again(struct part *part, void (*more)(struct mail *mail, void *owner))
{
	part->mail.deliver = more;
	shard_walk(part->shard, &part->mail);
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
	part->mail.deliver = part_came_home;
	shard_send(part->shard, request->home, &part->mail);
}

/* ---- cancelling ---- */

static void cancel_came_home(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, cancel_mail);

	(void)owner;
	part->request->cancels_out--;
	request_settle(part->request);
}

static void cancel_arrived(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, cancel_mail);
	const struct op_info *op = op_of(part->request);

	(void)owner;
	part->cancelled = true;
	part->cancel_mail.deliver = cancel_came_home;
	if (!part->ended && op->cancel)
		op->cancel(part);
	shard_send(part->shard, part->request->home, &part->cancel_mail);
}

static void request_cancel(struct request *request)
{
	const struct op_info *op = op_of(request);

	if (request->cancelled || !op || !op->cancel)
		return;
	request->cancelled = true;
	for (uint32_t i = 0; i < request->part_count; i++) {
		struct part *part = &request->parts[i];

		part->cancel_mail.deliver = cancel_arrived;
		request->cancels_out++;
		shard_send(request->home, part->shard, &part->cancel_mail);
	}
}

void request_detach(struct request *request)
{
	request->detached = true;
	if (request_is_disposable(request))
		request_cancel(request);
}

static void request_late(struct timer *timer)
{
	struct request *request = container_of(timer, struct request, deadline);

	request->late = true;
	request_cancel(request);
}

static void cancel_part(struct part *part)
{
	struct request *request = part->request, *target = request->channel->requests;
	struct status status = STATUS_OK;

	while (target && (target == request || target->entry.ticket != request->entry.number[0]))
		target = target->next;
	if (target)
		request_cancel(target);
	else
		status = (struct status){ .code = DSEC_ABSENT,
					  .blame = DSEC_BLAME_CALLER,
					  .detail = "no such ticket in flight on this channel" };
	part_end(part, &status, NULL);
}

static void nop_part(struct part *part)
{
	part_end(part, NULL, NULL);
}

/* ---- the beginning ---- */

static struct status status_invalid(const char *field, int error)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "request",
				.step = field };
}

static struct status request_check_body(struct request *request, const struct op_info *op)
{
	int r;

	if (!op->body_bytes) {
		if (request->payload.bytes)
			return status_invalid("payload", -EINVAL);
		return STATUS_OK;
	}
	/* A subject instead of a payload: the one object of a verb that takes a selection. */
	if ((op->target == TARGET_ALL || op->target == TARGET_TURNS) && !request->payload.bytes) {
		memset(&request->body, 0, sizeof request->body);
		request->body.select.size = op->body_bytes;
		return STATUS_OK;
	}
	r = wire_struct(&request->payload, &request->body, op->body_bytes);
	return r < 0 ? status_invalid("payload", r) : STATUS_OK;
}

static struct status request_check(struct request *request)
{
	const struct dsec_ring_request *entry = &request->entry;
	const struct op_info *op = op_of(request);

	if (!op)
		return (struct status){ .code = DSEC_UNSUPPORTED,
					.blame = DSEC_BLAME_CALLER,
					.table = "request",
					.step = "op",
					.detail = "this engine does not know the operation" };
	if (entry->flags & ~DSEC_REQUEST_FLAGS_KNOWN)
		return status_invalid("flags", -EINVAL);
	if (entry->reserved0 || !wire_is_zero(entry->reserved1, sizeof entry->reserved1))
		return status_invalid("reserved", -EINVAL);
	if (op->target == TARGET_SUBJECT &&
	    (entry->subject.hi != request->home->node->id ||
	     entry->subject.lo >> DSEC_ID_SHARD_SHIFT >= request->home->node->shard_count))
		/* Of another engine: what an id from before this one may have run is unknown. */
		return record_is_stale(request->home->records, entry->request_id) ?
			       record_refusal(-ESTALE, NULL) :
			       status_absent();
	return request_check_body(request, op);
}

/* Always in the same way, so that each shard finds its record of the request when it is retried. */
static void parts_share_count(struct request *request)
{
	uint32_t count = request->body.create.count ? request->body.create.count : 1;
	uint32_t first = 0;

	for (uint32_t i = 0; i < request->part_count; i++) {
		uint32_t share = (count - first) / (request->part_count - i);

		request->parts[i].first = first;
		request->parts[i].count = share;
		first += share;
	}
}

static uint32_t create_shard(struct request *request)
{
	const uint8_t *id = request->entry.request_id;
	uint32_t shards = request->home->node->shard_count;

	if (request->body.create.count > 1)
		return 0;
	if (wire_is_zero(id, sizeof request->entry.request_id))
		return ++request->home->rotation % shards;
	return id[15] % shards;
}

static uint32_t request_first_shard(struct request *request, enum target target)
{
	switch (target) {
	case TARGET_HOME:
	case TARGET_ALL:
		return request->home->number;
	case TARGET_SUBJECT:
		return (uint32_t)(request->entry.subject.lo >> DSEC_ID_SHARD_SHIFT);
	case TARGET_TURNS:
		return 0;
	case TARGET_CREATE:
		return create_shard(request);
	}
	return 0;
}

static int request_spread(struct request *request, const struct op_info *op)
{
	struct node *node = request->home->node;
	uint32_t first = request_first_shard(request, op->target);

	request->parts = &request->only;
	request->part_count = 1;
	if (op->target == TARGET_ALL || op->target == TARGET_TURNS ||
	    (op->target == TARGET_CREATE && request->body.create.count > 1))
		request->part_count = node->shard_count;
	if (request->part_count > 1) {
		request->parts = calloc(request->part_count, sizeof *request->parts);
		if (!request->parts)
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < request->part_count; i++)
		request->parts[i] = (struct part){
			.request = request,
			.shard = node->shards[(first + i) % node->shard_count],
		};
	if (op->target == TARGET_CREATE)
		parts_share_count(request);
	return 0;
}

/* Ends before it has parts. */
static void request_refuse(struct request *request, const struct status *status)
{
	request->parts = &request->only;
	request->part_count = 1;
	request->only = (struct part){ .request = request, .shard = request->home };
	part_end(&request->only, status, NULL);
}

/* More requests in flight than the shard holds: refused without becoming one. */
static void request_overflow(struct channel *channel, const struct dsec_ring_request *entry)
{
	const struct request stand_in = { .entry = *entry };
	struct emission e = { .kind = DSEC_EV_DONE,
			      .flags = DSEC_EVENT_LAST,
			      .status = status_of_errno(-EAGAIN, "request", "requests_max") };
	struct dsec_ring_event event;
	char payload[sizeof(struct dsec_wire_status)];

	emission_write(&stand_in, &e, &event, payload);
	channel->shard->stats.refused++;
	channel_post(channel, &event, payload);
}

void request_begin(struct channel *channel, const struct dsec_ring_request *entry, char *payload)
{
	struct shard *home = channel->shard;
	struct request *request = pool_take(&home->requests);
	const struct op_info *op;
	struct status status;

	if (!request) {
		free(payload);
		request_overflow(channel, entry);
		return;
	}
	request->entry = *entry;
	request->payload = (struct wire){ payload, entry->payload_bytes };
	request->channel = channel;
	request->client = channel->client_id;
	request->home = home;
	request->next = channel->requests;
	if (request->next)
		request->next->previous = request;
	channel->requests = request;
	channel->in_flight++;
	status = request_check(request);
	op = op_of(request);
	if (!status.code && request_spread(request, op) < 0)
		status = status_of_errno(-ENOMEM, "request", "parts");
	if (status.code) {
		request_refuse(request, &status);
		return;
	}
	request->deadline.expired = request_late;
	if (entry->timeout_ms && op->cancel)
		(void)timer_set(&home->timers, &request->deadline, /* full: no deadline, as 0 */
				io_now_ns(home->io) + entry->timeout_ms * 1000000ull);
	for (uint32_t i = 0; i < (op->target == TARGET_TURNS ? 1 : request->part_count); i++)
		part_send(&request->parts[i], 0);
}
