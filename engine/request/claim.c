/*
 * Claims of request ids. Called by request.c around every request, by part.c for rows, and by
 * exec.c. Must hold: what has an id and changes something begins only after its record did, on the
 * one shard that has it; nothing that was refused is remembered as done.
 */
#include "engine/request/claim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/request/records.h"
#include "engine/request/request.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

enum { ROWS_MAX = 1024 /* of a change */ };

/* ---- what has to be claimed ---- */

static bool has_effects(const struct request *request)
{
	uint32_t verb;

	switch (request->entry.op) {
	case DSEC_OP_CREATE:
	case DSEC_OP_DESTROY:
	case DSEC_OP_CHANGE:
	case DSEC_OP_EXEC:
	case DSEC_OP_SIGNAL:
	case DSEC_OP_RESIZE:
	case DSEC_OP_PORT:
	case DSEC_OP_INVOKE:
	case DSEC_OP_PHASE:
	case DSEC_OP_FORK:
	case DSEC_OP_FETCHED:
		return true;
	case DSEC_OP_FILE:
		verb = request->body.file.verb;
		return verb == DSEC_FILE_WRITE || verb == DSEC_FILE_MKDIR ||
		       verb == DSEC_FILE_REMOVE || verb == DSEC_FILE_RENAME;
	case DSEC_OP_IMAGE:
		verb = request->body.image.verb;
		return verb != DSEC_IMAGE_LIST && verb != DSEC_IMAGE_INSPECT &&
		       verb != DSEC_IMAGE_VERIFY && verb != DSEC_IMAGE_HOTSET;
	case DSEC_OP_POLICY:
		verb = request->body.policy.verb;
		return verb == DSEC_POLICY_LOAD || verb == DSEC_POLICY_REMOVE;
	case DSEC_OP_FUNCTION:
		return request->body.function.verb != DSEC_FUNCTION_LIST;
	default:
		return false;
	}
}

/* What is named by ids is gone afterwards, however often it is asked for. */
static bool may_be_repeated(const struct request *request)
{
	return request->entry.op == DSEC_OP_DESTROY && !request->body.select.labels.count;
}

/* ---- what it asks for, in short ---- */

static uint64_t hash_add(uint64_t hash, const uint64_t keys[2], const void *bytes, size_t count)
{
	const char *at = bytes;

	for (; count; count -= count < 8 ? count : 8, at += 8) {
		uint64_t word = 0;
		unsigned __int128 product;

		memcpy(&word, at, count < 8 ? count : 8);
		product = (unsigned __int128)(hash ^ word ^ keys[0]) * (keys[1] | 1);
		hash = (uint64_t)product ^ (uint64_t)(product >> 64);
	}
	return hash;
}

/* Not what differs between two tries: the ticket, the time that is left, how far streams came. */
static uint64_t body_hash(const struct request *request)
{
	const struct dsec_ring_request *entry = &request->entry;
	const uint64_t *keys = request->home->node->claim_keys;
	const struct {
		struct dsec_wire_id subject;
		uint64_t exec, offset, number[4], op_bytes;
	} head = {
		.subject = entry->subject,
		.exec = entry->exec,
		.offset = entry->offset,
		.number = { entry->number[0], entry->number[1], entry->number[2],
			    entry->number[3] },
		.op_bytes = (uint64_t)entry->op << 32 | entry->payload_bytes,
	};
	const size_t resume_at = offsetof(struct dsec_wire_exec, resume);
	uint64_t resume[2];
	size_t at = request->payload.bytes, skip = 0;
	uint64_t hash = hash_add(0, keys, &head, sizeof head);

	if (entry->op == DSEC_OP_EXEC && request->body.exec.size >= resume_at + sizeof resume) {
		at = resume_at;
		skip = sizeof resume;
	}
	if (at)
		hash = hash_add(hash, keys, request->payload.payload, at);
	at += skip;
	if (at < request->payload.bytes)
		hash = hash_add(hash, keys, request->payload.payload + at,
				request->payload.bytes - at);
	return hash;
}

/* ---- on the shard that has the record ---- */

static int again(struct claim *claim, const struct record *record)
{
	uint32_t bytes = record->last.bytes + record->log_bytes;

	claim->state = CLAIM_AGAIN;
	claim->is_running = record->state == RECORD_RUNNING;
	claim->last = record->last;
	claim->log_bytes = record->log_bytes;
	claim->payload = malloc(bytes + 1);
	if (!claim->payload)
		return -ENOMEM;
	if (bytes)
		memcpy(claim->payload, record->payload, bytes);
	return 0;
}

/* The rest of it is done now: what was told so far is the beginning of its log. */
static int resume(struct claim *claim, struct record *record)
{
	claim->log.bytes = malloc(record->log_bytes);
	claim->called = calloc(1, DSEC_INVOKE_INPUTS_MAX / 8);
	if (!claim->log.bytes || !claim->called)
		return -ENOMEM;
	memcpy(claim->log.bytes, record->payload + record->last.bytes, record->log_bytes);
	claim->log_bytes = record->log_bytes;
	record->state = RECORD_RUNNING;
	return 0;
}

static void claim_look(struct request *request, struct shard *at)
{
	struct records *records = &at->tenancies[request->tenant->index].records;
	struct claim *claim = &request->claim;
	struct record *record;
	int r = record_begin(records, request->entry.request_id, claim->body, &record);

	claim->state = CLAIM_NEW;
	if (r == -ESTALE && may_be_repeated(request))
		claim->state = CLAIM_NONE;
	else if (r == -EEXIST && record->state == RECORD_PARTIAL)
		r = resume(claim, record);
	else if (r == -EEXIST &&
		 (record->state == RECORD_ENDED || request->entry.op == DSEC_OP_EXEC))
		r = again(claim, record);
	if (r >= 0 || claim->state == CLAIM_NONE)
		return;
	claim->state = CLAIM_REFUSED;
	claim->status = r == -ENOMEM ? status_of_errno(r, "request", "record") : record_refusal(r);
}

/* Execs, and creates and forks that went well, tell what there is now: their ops know. */
static bool op_replays(const struct request *request)
{
	const struct claim *claim = &request->claim;

	return request->entry.op == DSEC_OP_EXEC ||
	       ((request->entry.op == DSEC_OP_CREATE || request->entry.op == DSEC_OP_FORK) &&
		!claim->last.code);
}

void claim_answer(struct part *part)
{
	struct claim *claim = &part->request->claim;
	struct dsec_ring_event event;
	const char *payload;

	for (uint32_t at = 0; claim_log_next(claim->payload + claim->last.bytes, claim->log_bytes,
					     &at, &event, &payload);)
		part_repeat(part, &event, payload);
	part->final = claim->last;
	part->final.ticket = part->request->entry.ticket;
	part->final.flags =
		(uint16_t)((claim->last.flags & ~DSEC_EVENT_LAST) | DSEC_EVENT_REPLAYED);
	part->final_payload = take_ptr(claim->payload);
	part->has_final = true;
	part_end(part, NULL, NULL);
}

bool claim_of_part(struct part *part)
{
	struct request *request = part->request;

	if (request->claim.state != CLAIM_PART)
		return true;
	claim_look(request, part->shard);
	if (request->claim.state == CLAIM_REFUSED)
		part_end(part, &request->claim.status, NULL);
	else if (request->claim.state == CLAIM_AGAIN && !op_replays(request))
		claim_answer(part);
	else
		return true;
	return false;
}

/* ---- at home ---- */

uint32_t claim_shard(const uint8_t id[16], uint32_t shards)
{
	return id[15] % shards;
}

/* What goes on: its log is made anew from what there is of it, and that is told. */
static void log_resume(struct request *request)
{
	struct claim *claim = &request->claim;
	struct claim_log before = claim->log;
	struct dsec_ring_event event;
	const char *payload;

	claim->log = (struct claim_log){ 0 };
	for (uint32_t at = 0;
	     claim_log_next(before.bytes, claim->log_bytes, &at, &event, &payload);) {
		claim_log_add(&claim->log, &event, payload);
		request_repeat(request, &event, payload);
		if (event.kind == DSEC_EV_DONE)
			claim->called[event.index / 8] |= (uint8_t)(1 << event.index % 8);
	}
	free(before.bytes);
}

bool claim_has_called(const struct request *request, uint32_t index)
{
	const uint8_t *called = request->claim.called;

	return called && index < DSEC_INVOKE_INPUTS_MAX && called[index / 8] & 1 << index % 8;
}

/* What has been held back goes on, whatever became of the request that it names. */
static void waiting_send(struct request *request)
{
	struct request *next;

	for (struct request *one = request->claim.waiting; one; one = next) {
		next = one->claim.next_waiting;
		one->parts[0].shard = request->parts[0].shard;
		request_go(one);
	}
	request->claim.waiting = NULL;
}

static void claim_heard(struct request *request)
{
	struct claim *claim = &request->claim;

	if (claim->state == CLAIM_REFUSED) {
		request_refuse(request, &claim->status);
	} else if (claim->state == CLAIM_AGAIN && !op_replays(request)) {
		request_stand_alone(request);
		claim_answer(&request->only);
	} else {
		if (claim->called)
			log_resume(request);
		request_go(request);
		request_cancel_again(request);
	}
	waiting_send(request);
}

static void claim_came_home(struct mail *mail, void *owner)
{
	struct claim *claim = container_of(mail, struct claim, mail);
	struct request *request = container_of(claim, struct request, claim);

	(void)owner; /* the request's home */
	request->is_unbegun = false;
	claim_heard(request);
}

static void claim_arrived(struct mail *mail, void *owner)
{
	struct claim *claim = container_of(mail, struct claim, mail);
	struct request *request = container_of(claim, struct request, claim);
	struct shard *shard = owner;

	claim_look(request, shard);
	mail->deliver = claim_came_home;
	shard_send(shard, request->home, mail);
}

bool claim_begin(struct request *request)
{
	const uint8_t *id = request->entry.request_id;
	struct claim *claim = &request->claim;
	struct node *node = request->home->node;
	struct shard *at = node->shards[claim_shard(id, node->shard_count)];

	if (wire_is_zero(id, sizeof request->entry.request_id) || !has_effects(request))
		return false;
	claim->body = body_hash(request);
	if (request->part_count == 1 && request->parts[0].shard == at) {
		claim->state = CLAIM_PART;
		return false;
	}
	if (at == request->home) {
		claim_look(request, at);
		claim_heard(request);
		return true;
	}
	claim->state = CLAIM_ASKED;
	request->is_unbegun = true;
	claim->waiting_last = &claim->waiting;
	claim->mail.deliver = claim_arrived;
	shard_send(request->home, at, &claim->mail);
	return true;
}

bool claim_holds(struct request *request)
{
	struct claim *claim = request->target ? &request->target->claim : NULL;

	if (!claim || !request->target->is_unbegun)
		return false;
	request->claim.next_waiting = NULL;
	*claim->waiting_last = request;
	claim->waiting_last = &request->claim.next_waiting;
	return true;
}

bool claim_notes(const struct request *request)
{
	const uint16_t op = request->entry.op;

	return request->claim.state == CLAIM_NEW &&
	       (op == DSEC_OP_CHANGE || op == DSEC_OP_FETCHED || op == DSEC_OP_INVOKE);
}

/* A call that was not made may be asked again: it has no place in the log. */
static bool is_no_answer(const struct request *request, const struct dsec_ring_event *event)
{
	return event->code == DSEC_REFUSED || (request->detached && event->code == DSEC_CANCELLED);
}

void claim_note(struct request *request, const struct dsec_ring_event *event, const char *payload)
{
	struct claim_log *log = &request->claim.log;

	if (!claim_notes(request) || is_no_answer(request, event))
		return;
	if (request->entry.op == DSEC_OP_CHANGE && log->count >= ROWS_MAX)
		log->is_lost = true;
	claim_log_add(log, event, payload);
}

void claim_free(struct claim *claim)
{
	free(claim->payload);
	free(claim->log.bytes);
	free(claim->called);
}

/* ---- the end ---- */

struct record_mail {
	struct mail mail;
	uint32_t tenant, log_bytes;
	bool is_partial;
	uint8_t id[16];
	struct dsec_ring_event last;
	char payload[];
};

static void record_write(struct shard *shard, const struct record_mail *m)
{
	struct records *records = &shard->tenancies[m->tenant].records;
	const struct record_end end = { .last = &m->last,
					.payload = m->payload,
					.log_bytes = m->log_bytes,
					.is_partial = m->is_partial };

	if (m->last.code == DSEC_REFUSED && !m->is_partial)
		record_forget(records, m->id);
	else
		record_end(records, m->id, &end);
}

static void record_arrived(struct mail *mail, void *owner)
{
	struct record_mail *m = container_of(mail, struct record_mail, mail);

	record_write(owner, m);
	free(m); /* the allocator takes memory of other threads back without a lock */
}

static void record_send(struct tenancy *tenancy, const uint8_t id[16], const struct record_end *end,
			const struct claim_log *log)
{
	struct shard *from = tenancy->shard;
	struct shard *to = from->node->shards[claim_shard(id, from->node->shard_count)];
	uint32_t bytes = end->last->bytes;
	struct record_mail *m;

	if (wire_is_zero(id, 16))
		return;
	m = malloc(sizeof *m + bytes + log->used);
	if (!m) {
		/* It stays as if it were under way: never told as done, never run again. */
		log_error("record of a request lost err=ENOMEM, continuing");
		return;
	}
	*m = (struct record_mail){ .tenant = tenancy->tenant->index,
				   .log_bytes = log->used,
				   .is_partial = end->is_partial,
				   .last = *end->last };
	memcpy(m->id, id, sizeof m->id);
	if (bytes)
		memcpy(m->payload, end->payload, bytes);
	if (log->used)
		memcpy(m->payload + bytes, log->bytes, log->used);
	m->mail.deliver = record_arrived;
	if (from == to)
		record_arrived(&m->mail, to);
	else
		shard_send(from, to, &m->mail);
}

void claim_record(struct tenancy *tenancy, const uint8_t id[16], const struct dsec_ring_event *last,
		  const char *payload)
{
	static const struct claim_log none;

	record_send(tenancy, id, &(struct record_end){ .last = last, .payload = payload }, &none);
}

/* Nothing of it happened: it may be asked again. */
static bool is_undone(const struct request *request, const struct dsec_ring_event *last)
{
	bool undone = true;

	for (uint32_t i = 0; i < request->part_count; i++)
		undone &= request->parts[i].undone;
	return undone || is_no_answer(request, last);
}

/* It happened, and what came of it is not kept. */
static void unknown_record(struct request *request)
{
	struct tenancy *tenancy = &request->home->tenancies[request->tenant->index];
	struct emission e = { .kind = DSEC_EV_DONE,
			      .status = { .code = DSEC_UNKNOWN,
					  .blame = DSEC_BLAME_PLATFORM,
					  .table = "request",
					  .step = "request_id",
					  .detail = "it ran; what came of it is not kept" } };
	struct dsec_ring_event unknown;
	char text[sizeof(struct dsec_wire_status)];

	emission_write(request, &e, &unknown, text);
	claim_record(tenancy, request->entry.request_id, &unknown, text);
}

/* Of several calls some were not made, and it was not the caller who gave them up. */
static bool is_partly_called(const struct request *request, const struct dsec_ring_event *event)
{
	return request->entry.op == DSEC_OP_INVOKE && request->body.invoke.inputs.count > 1 &&
	       request->claim.log.ends < request->body.invoke.inputs.count &&
	       (event->code == DSEC_OK || event->code == DSEC_REFUSED);
}

void claim_end(struct request *request, const struct dsec_ring_event *last, const char *payload)
{
	struct dsec_ring_event event = *last;
	struct tenancy *tenancy = &request->home->tenancies[request->tenant->index];
	struct claim_log *log = &request->claim.log;
	struct record_end end = { .last = &event, .payload = payload };

	if (request->claim.state != CLAIM_NEW || request->entry.op == DSEC_OP_EXEC)
		return;
	if (is_undone(request, last))
		event.code = DSEC_REFUSED;
	if (request->entry.op == DSEC_OP_INVOKE && request->body.invoke.inputs.count == 1)
		claim_log_end(log, last, payload);
	end.is_partial = is_partly_called(request, &event) && log->ends;
	if (is_partly_called(request, &event) && !log->ends)
		event.code = DSEC_REFUSED;
	if (log->is_lost)
		unknown_record(request);
	else
		record_send(tenancy, request->entry.request_id, &end, log);
}
