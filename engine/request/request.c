/*
 * Requests and their parts: checking, spreading over shards, events on their way home, cancelling,
 * deadlines and the one LAST. Called by channels with copies of what clients wrote and by the ops.
 * Exactly one LAST follows every accepted request, whatever happens; a request is freed when all
 * its parts have ended and nothing that names it is under way: cancels, and its streams' INPUT and
 * CREDIT.
 */
#include "engine/request/request.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/client/channel.h"
#include "engine/request/records.h"
#include "engine/request/request_ops.h"
#include "engine/sandbox/sandbox.h"
#include "engine/request/selection.h"
#include "engine/shard.h"
#include "engine/events/subscribe.h"
#include "engine/tenant/tenancy.h"

static struct tenancy *home_tenancy(const struct request *request)
{
	return &request->home->tenancies[request->tenant->index];
}

/* ---- the end ---- */

static void request_settle(struct request *request);

/* Until as many releases it is not freed: something that names it is under way. */
static void request_hold(struct request *request)
{
	request->holds++;
}

static void request_release(struct request *request)
{
	request->holds--;
	request_settle(request);
}

static void request_free(struct request *request)
{
	struct shard *home = request->home;
	struct channel *channel = request->channel;
	struct request *target = request->target;

	timer_clear(&home->timers, &request->deadline);
	channel_request_over(channel, request);
	if (request->parts != &request->only)
		free(request->parts);
	claim_free(&request->claim);
	free((void *)request->payload.payload);
	quota_give(home_tenancy(request), QUOTA_REQUESTS, 1);
	pool_put(&home->requests, request);
	if (target)
		request_release(target);
	shard_check_stopped(home);
}

/* Some that were named are on no shard. */
static bool names_are_missing(const struct request *request)
{
	uint32_t found = 0;

	if (request->entry.op != DSEC_OP_CHANGE && request->entry.op != DSEC_OP_FETCHED)
		return false;
	for (uint32_t i = 0; i < request->part_count; i++)
		found += request->parts[i].count;
	return found < selection_names(request);
}

/* The code stands in the event, and in the text at the end of its payload. */
static void part_final_late(struct part *part)
{
	const uint32_t code = DSEC_DEADLINE;

	part->final.code = DSEC_DEADLINE;
	memcpy(part->final_payload + part->final.bytes - sizeof(struct dsec_wire_status), &code,
	       sizeof code);
}

/* What it says last, of all its parts. */
static void last_write(struct request *request, struct dsec_ring_event *ret, char *ret_payload)
{
	struct dsec_wire_check sum = { .size = sizeof sum };
	struct emission e = { .kind = DSEC_EV_DONE,
			      .flags = DSEC_EVENT_LAST,
			      .subject = request->entry.subject };

	for (uint32_t i = 0; i < request->part_count; i++) {
		status_merge(&e.status, &request->parts[i].status);
		check_add(&sum, &request->parts[i].check);
	}
	if (!e.status.code && names_are_missing(request))
		e.status = status_absent();
	if (request->entry.op == DSEC_OP_CHECK) {
		check_narrow(request, &sum);
		e.body = &sum;
		e.bytes = sizeof sum;
	}
	if (request->late && e.status.code == DSEC_CANCELLED)
		e.status.code = DSEC_DEADLINE;
	for (uint32_t i = 0; i < request->part_count; i++)
		e.flags |= request->parts[i].replayed ? DSEC_EVENT_REPLAYED : 0;
	emission_write(request, &e, ret, ret_payload);
}

/* Recorded before it is told. */
static void request_last(struct request *request)
{
	struct part *part = &request->parts[0];
	struct dsec_ring_event event;
	char text[sizeof(struct dsec_wire_check) + sizeof(struct dsec_wire_status)];
	const char *payload = text;

	if (request->part_count == 1 && part->has_final) {
		part->final.flags |= DSEC_EVENT_LAST;
		if (request->late && part->final.code == DSEC_CANCELLED)
			part_final_late(part);
		event = part->final;
		payload = part->final_payload;
	} else {
		last_write(request, &event, text);
	}
	claim_end(request, &event, payload);
	if (!request->detached)
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
	if (request->parts_ended < request->part_count || request->holds)
		return;
	request_last(request);
	if (request->detached && request_is_disposable(request) && !request->home->stopping)
		sandboxes_disconnect(request->home, request->client); /* made since it went */
	for (uint32_t i = 0; i < request->part_count; i++)
		free(request->parts[i].final_payload);
	request_free(request);
}

void request_part_home(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);

	(void)owner;
	part->request->parts_ended++;
	if (op_of(part->request) && op_of(part->request)->target == TARGET_TURNS &&
	    part->request->parts_ended < part->request->part_count)
		part_send(&part->request->parts[part->request->parts_ended], part->started);
	request_settle(part->request);
}

static struct status status_invalid(const char *field, int error)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "request",
				.step = field };
}

/* ---- cancelling ---- */

static void cancel_came_home(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, cancel_mail);

	(void)owner;
	request_release(part->request);
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

/* Behind the beginning, which takes its turn too. */
static void cancel_takes_turn(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, cancel_mail);

	(void)owner; /* part->shard */
	part->cancel_mail.deliver = cancel_arrived;
	part->cancel_walk.mail = &part->cancel_mail;
	shard_begin(part->shard, &part->cancel_walk, part->request->client);
}

static void request_cancel(struct request *request)
{
	const struct op_info *op = op_of(request);

	if (request->cancelled || !op || !op->cancel)
		return;
	request->cancelled = true;
	if (request->is_unbegun)
		return; /* request_cancel_again() */
	for (uint32_t i = 0; i < request->part_count; i++) {
		struct part *part = &request->parts[i];

		request_hold(request);
		part->cancel_mail.deliver = cancel_takes_turn;
		if (part->shard == request->home)
			cancel_takes_turn(&part->cancel_mail, part->shard);
		else
			shard_send(request->home, part->shard, &part->cancel_mail);
	}
}

/* What came too early is told now, behind the beginning. */
void request_cancel_again(struct request *request)
{
	if (!request->cancelled)
		return;
	request->cancelled = false;
	request_cancel(request);
}

void request_detach(struct request *request)
{
	const struct op_info *op = op_of(request);

	request->detached = true;
	if (request_is_disposable(request) || (op && op->needs_client))
		request_cancel(request);
}

static void request_late(struct timer *timer)
{
	struct request *request = container_of(timer, struct request, deadline);

	request->late = true;
	request_cancel(request);
}

/* The other request that one names by its ticket, or NULL. */
static struct request *request_target(const struct request *request)
{
	struct request *target = request->channel->requests;

	while (target && (target == request || target->entry.ticket != request->entry.number[0]))
		target = target->next;
	return target;
}

static struct status status_no_ticket(void)
{
	return (struct status){ .code = DSEC_ABSENT,
				.blame = DSEC_BLAME_CALLER,
				.table = "request",
				.step = "ticket",
				.detail = "no such ticket in flight on this channel" };
}

void cancel_part(struct part *part)
{
	struct request *target = request_target(part->request);
	struct status status = STATUS_OK;

	if (target)
		request_cancel(target);
	else
		status = status_no_ticket();
	part_end(part, &status, NULL);
}

/* ---- streams of another request: on the shard of its part ---- */

void input_part(struct part *part)
{
	struct part *target = &part->request->target->parts[0];
	struct status status = status_no_ticket();

	if (target->ended)
		part_end(part, &status, NULL);
	else
		op_of(target->request)->input(target, part);
}

void credit_part(struct part *part)
{
	const struct dsec_ring_request *entry = &part->request->entry;
	struct part *target = &part->request->target->parts[0];
	struct status status = STATUS_OK;
	int r = 0;

	if (!target->ended && entry->number[1] <= UINT32_MAX)
		r = op_of(target->request)
			    ->credit(target, (uint32_t)entry->number[1], entry->number[2]);
	if (r < 0 || entry->number[1] > UINT32_MAX)
		status = status_invalid("credit", -EINVAL);
	part_end(part, &status, NULL); /* one that comes too late is of no use and no harm */
}

/* What names a ticket holds that request from here on. */
static struct status request_take_target(struct request *request)
{
	struct request *target = request_target(request);
	const struct op_info *op = target ? op_of(target) : NULL;

	if (!target || target->parts_ended == target->part_count)
		return status_no_ticket();
	if (!op || !(request->entry.op == DSEC_OP_INPUT ? (void *)op->input : (void *)op->credit))
		return (struct status){ .code = DSEC_INVALID,
					.blame = DSEC_BLAME_CALLER,
					.error = EINVAL,
					.table = "request",
					.step = "ticket",
					.detail = "that request has no such stream" };
	request->target = target;
	request_hold(target);
	return STATUS_OK;
}

void nop_part(struct part *part)
{
	part_end(part, NULL, NULL);
}

/* ---- the beginning ---- */

static struct status request_check_body(struct request *request, const struct op_info *op)
{
	int r;

	if (op->body_bytes == BODY_BYTES)
		return STATUS_OK;
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
	if (request->tenant->is_everyone && !op->for_everyone)
		return (struct status){ .code = DSEC_DENIED,
					.blame = DSEC_BLAME_CALLER,
					.table = "request",
					.step = "tenant",
					.detail = "for everyone one can look and destroy: name a "
						  "tenant" };
	if (entry->flags & ~DSEC_REQUEST_FLAGS_KNOWN)
		return status_invalid("flags", -EINVAL);
	if (entry->reserved0 || !wire_is_zero(entry->reserved1, sizeof entry->reserved1))
		return status_invalid("reserved", -EINVAL);
	if (op->target == TARGET_SUBJECT &&
	    (entry->subject.hi != request->home->node->id ||
	     entry->subject.lo >> DSEC_ID_SHARD_SHIFT >= request->home->node->shard_count))
		/* Of another engine: what an id from before this one may have run is unknown. */
		return record_is_stale(&home_tenancy(request)->records, entry->request_id) ?
			       record_refusal(-ESTALE) :
			       status_absent();
	if (op->target == TARGET_TICKET) {
		struct status status = request_take_target(request);

		if (status.code)
			return status;
	}
	return request_check_body(request, op);
}

/* How many sandboxes to create, or calls to make. */
static uint32_t request_count(const struct request *request)
{
	uint32_t count = request->body.create.count;

	if (request->entry.op == DSEC_OP_INVOKE)
		count = request->body.invoke.inputs.count;
	return count ? count : 1;
}

/* Always in the same way, so that each shard finds its record of the request when it is retried. */
static void parts_share_count(struct request *request)
{
	uint32_t count = request_count(request), first = 0;

	for (uint32_t i = 0; i < request->part_count; i++) {
		uint32_t share = (count - first) / (request->part_count - i);

		request->parts[i].first = first;
		request->parts[i].count = share;
		first += share;
	}
}

/* A pack is done where its sandbox lives; one that cannot be here is absent anywhere. */
static bool is_pack(const struct request *request)
{
	const struct dsec_wire_image *image = &request->body.image;

	return request->entry.op == DSEC_OP_IMAGE && image->verb == DSEC_IMAGE_PACK &&
	       image->sandbox.hi == request->home->node->id &&
	       image->sandbox.lo >> DSEC_ID_SHARD_SHIFT < request->home->node->shard_count;
}

/* Where its record is; without an id in turn. */
static uint32_t shard_of_id(struct request *request)
{
	const uint8_t *id = request->entry.request_id;
	uint32_t shards = request->home->node->shard_count;

	if (request->entry.op == DSEC_OP_CREATE && request->body.create.count > 1)
		return 0;
	if (is_pack(request))
		return (uint32_t)(request->body.image.sandbox.lo >> DSEC_ID_SHARD_SHIFT);
	if (wire_is_zero(id, sizeof request->entry.request_id))
		return ++request->home->rotation % shards;
	return claim_shard(id, shards);
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
	case TARGET_SHARED:
	case TARGET_ID:
		return shard_of_id(request);
	case TARGET_JOURNAL:
		return SUBSCRIPTIONS_SHARD;
	case TARGET_TICKET:
		return request->target->parts[0].shard->number;
	}
	return 0;
}

static int request_spread(struct request *request, const struct op_info *op)
{
	struct node *node = request->home->node;
	uint32_t first = request_first_shard(request, op->target);
	const bool is_shared = op->target == TARGET_SHARED;

	request->parts = &request->only;
	request->part_count = 1;
	if (op->target == TARGET_ALL || op->target == TARGET_TURNS ||
	    (is_shared && request_count(request) > 1))
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
	if (is_shared)
		parts_share_count(request);
	return 0;
}

void request_stand_alone(struct request *request)
{
	if (request->parts != &request->only)
		free(request->parts);
	request->parts = &request->only;
	request->part_count = 1;
	request->only = (struct part){ .request = request, .shard = request->home };
}

/* Ends before its parts begin. */
void request_refuse(struct request *request, const struct status *status)
{
	request_stand_alone(request);
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
	channel->shard->tenancies[channel->tenant->index].stats.refused++;
	channel_post(channel, &event, payload);
}

void request_go(struct request *request)
{
	const bool turns = op_of(request)->target == TARGET_TURNS;

	for (uint32_t i = 0; i < (turns ? 1 : request->part_count); i++)
		part_send(&request->parts[i], 0);
}

bool request_has_place(const struct channel *channel)
{
	const struct shard *shard = channel->shard;
	const struct tenancy *tenancy = &shard->tenancies[channel->tenant->index];

	return shard->requests.free_count &&
	       tenancy->used[QUOTA_REQUESTS] < tenancy->max[QUOTA_REQUESTS];
}

static struct request *request_take(struct channel *channel)
{
	struct shard *shard = channel->shard;

	if (!request_has_place(channel))
		return NULL;
	shard->tenancies[channel->tenant->index].used[QUOTA_REQUESTS]++;
	return pool_take(&shard->requests);
}

void request_begin(struct channel *channel, const struct dsec_ring_request *entry, char *payload)
{
	struct shard *home = channel->shard;
	struct request *request = request_take(channel);
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
	request->tenant = channel->tenant;
	request->is_own = channel->is_own;
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
	if (!claim_holds(request) && !claim_begin(request))
		request_go(request);
}
