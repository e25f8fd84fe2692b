/*
 * From a request to a ticket: the steps that all requests share. Called by request.c and by queues
 * that end. A ticket exists for the engine once a transport took its request, and only then may an
 * event name it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/pack.h"
#include "sdk/lib/structs.h"

/* A full ring empties without telling: look again after this long. */
#define ROOM_SLICE_NS (1000 * 1000ll)
/* A leader comes back when a link is up, a follower that waits for room only by time. */
#define AWAY_SLICE_NS (10 * 1000 * 1000ll)

int dsec__call_take(struct dsec *d, const struct dsec_call *given, struct dsec_call *known)
{
	int r;

	*known = (struct dsec_call){ 0 };
	r = dsec__owned(d, "request");
	if (r < 0 || !given)
		return r;
	r = dsec__struct_take(known, sizeof(*known), given, "call");
	if (r < 0)
		return r;
	if (known->flags & ~(uint64_t)DSEC_CALL_ONCE)
		return dsec__fail(-EINVAL, "call: unknown flags");
	if (known->queue && known->queue->d != d)
		return dsec__fail(-EINVAL, "call: the queue is another connection's");
	return 0;
}

int dsec__random(struct dsec *d, uint8_t *bytes, uint32_t count)
{
	if (d->random_left < count) {
		if (getrandom(d->random, sizeof(d->random), 0) != sizeof(d->random))
			return -EIO;
		d->random_left = sizeof(d->random);
	}
	d->random_left -= count;
	memcpy(bytes, d->random + d->random_left, count);
	return 0;
}

/*
 * A byte for the shard that shall have the record: the one that is asked anyway. Creates and
 * calls go to the shards by it: in turn is more even than by chance.
 */
static uint32_t record_shard(const struct dsec *d, const struct dsec_ring_request *request,
			     uint32_t chance)
{
	uint32_t shard = (uint32_t)(request->subject.lo >> DSEC_ID_SHARD_SHIFT);

	if (request->op == DSEC_OP_CREATE || request->op == DSEC_OP_INVOKE)
		return d->id_next;
	if (!request->subject.lo && d->welcome.home_shard)
		shard = d->welcome.home_shard - 1;
	return shard < d->welcome.shards && shard <= UINT8_MAX ? shard : chance;
}

/*
 * UUIDv7: 48 bits of the engine's milliseconds, most significant first, then chance; the last byte
 * says where the record is.
 */
static int request_id_new(struct dsec *d, const struct dsec_ring_request *request, uint8_t id[16])
{
	uint64_t now_ms = d->welcome.clock_ms;
	int r;

	now_ms += (uint64_t)(dsec__clock_ns() - d->welcomed_ns) / 1000000;
	r = dsec__random(d, id + 6, 10);
	if (r < 0)
		return r;
	for (int at = 0; at < 6; at++)
		id[at] = (uint8_t)(now_ms >> (40 - 8 * at));
	id[6] = (id[6] & 0x0f) | 0x70;
	id[8] = (id[8] & 0x3f) | 0x80;
	id[15] = (uint8_t)record_shard(d, request, id[15]);
	return 0;
}

static void request_fill(const struct dsec_call *call, const struct submission *submission,
			 struct dsec_ring_request *request)
{
	*request = (struct dsec_ring_request){
		.subject = { submission->subject.hi, submission->subject.lo },
		.op = submission->op,
		.timeout_ms = call->timeout_ms,
		.payload_bytes = (uint32_t)submission->payload_bytes,
		.exec = submission->exec,
		.offset = submission->offset,
		.number = { submission->numbers[0], submission->numbers[1],
			    submission->numbers[2] },
	};
	memcpy(request->request_id, call->request_id, sizeof(request->request_id));
}

/* An id of ours is as old as the try: engines know nothing of what was before them. */
static int request_identify(struct dsec *d, const struct dsec_call *call,
			    const struct submission *submission, struct dsec_ring_request *request)
{
	static const uint8_t none[16];

	if (submission->internal || memcmp(call->request_id, none, sizeof(none)))
		return 0;
	return request_id_new(d, request, request->request_id);
}

/* One try. On failure there is no ticket. */
static int64_t request_try(struct dsec *d, const struct dsec_call *call,
			   struct submission *submission, struct dsec_ring_request *request)
{
	struct ticket *ticket;
	int r;

	r = request_identify(d, call, submission, request);
	if (r < 0)
		return r;
	ticket = dsec__ticket_new(d);
	if (!ticket)
		return -ENOMEM;
	ticket->op = submission->op;
	ticket->tag = call->tag;
	ticket->abandoned = submission->internal;
	if (call->timeout_ms)
		ticket->deadline_ns = dsec__clock_ns() + call->timeout_ms * 1000000ll;
	ticket->request = *request;
	ticket->request.ticket = (uint64_t)ticket->name;
	ticket->payload = submission->payload;
	ticket->window_bytes = submission->window_bytes;
	ticket->is_stream = submission->is_stream;
	/* What belongs to another request, or feeds one, keeps its place among its like. */
	ticket->is_patient = call->timeout_ms && !(call->flags & DSEC_CALL_ONCE) &&
			     !submission->is_stream && !dsec__op_names_ticket(submission->op);
	r = dsec__ticket_send(d, ticket);
	if (r < 0) {
		ticket->payload = NULL;
		dsec__ticket_release(d, ticket);
		return r;
	}
	d->id_next += submission->op == DSEC_OP_CREATE || submission->op == DSEC_OP_INVOKE;
	submission->payload = NULL;
	dsec__ticket_depart(d, ticket);
	ticket->capture = submission->capture;
	submission->capture = NULL;
	ticket->queue = call->queue;
	if (ticket->queue)
		ticket->queue->outstanding++;
	return ticket->name;
}

/*
 * There may be room now: what waited for longer goes first. -ENOTCONN: for good. Where nobody saw
 * the engine for a while it may be gone: what is written to its memory then may, for all that the
 * next one knows, have run. *reaped: others may have to be told.
 */
static int request_admit(struct dsec *d, const struct submission *submission, bool *reaped)
{
	*reaped |= dsec__link_look(d);
	*reaped |= dsec__link_drive(d) > 0 || d->link != LINK_UP;
	if (d->lost)
		return -ENOTCONN;
	if (d->link != LINK_UP)
		return submission->internal ? -ENOTCONN : -EAGAIN;
	if (d->resend_blocked || d->kept_bytes + submission->payload_bytes > KEPT_BYTES_MAX)
		return -EAGAIN;
	return 0;
}

static int64_t deadline_earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Tries until there is room, if the caller has no queue that it should empty meanwhile. */
static int64_t request_place(struct dsec *d, const struct dsec_call *call,
			     struct submission *submission, struct dsec_ring_request *request)
{
	int64_t deadline_ns =
		call->timeout_ms ? dsec__deadline((int)(call->timeout_ms & INT32_MAX)) : INT64_MAX;
	uint32_t word = 0, waiters = 0;
	struct waiter waiter = { .word = &word, .waiters = &waiters };
	bool waited = false;
	int64_t result;

	for (;;) {
		int64_t now = dsec__clock_ns(), slice_ns;

		result = request_admit(d, submission, &waited);
		if (result == 0)
			result = request_try(d, call, submission, request);
		if (result == -EPROTO || result == -ECONNRESET) {
			if (result == -ECONNRESET)
				dsec__link_end(d);
			else
				dsec__link_lose(d, (int)result);
			waited = true;
			continue;
		}
		if (result != -EAGAIN || call->queue || now >= deadline_ns)
			break;
		waited = true;
		slice_ns = d->link == LINK_UP ? ROOM_SLICE_NS : AWAY_SLICE_NS;
		/* Nothing in time is as good as something: there may be room now. */
		(void)dsec__wait(d, &waiter, deadline_earlier(deadline_ns, now + slice_ns));
	}
	if (waited)
		dsec__wait_leave(d);
	return result;
}

/* With the lock. */
static int64_t submit_locked(struct dsec *d, const struct dsec_call *call,
			     struct submission *submission)
{
	struct dsec_ring_request request;

	request_fill(call, submission, &request);
	return request_place(d, call, submission, &request);
}

static int64_t submit_failed(int64_t result)
{
	static const struct {
		int error;
		const char *text;
	} texts[] = {
		{ -EAGAIN, "request: no room now: fetch events, then ask again" },
		{ -EMSGSIZE, "request: larger than the shared memory can ever hold" },
		{ -ENOTCONN, "request: the connection was lost" },
		{ -ENOMEM, "request: no memory, or too many requests under way" },
	};

	for (size_t at = 0; at < sizeof(texts) / sizeof(texts[0]); at++) {
		if (texts[at].error == result)
			return dsec__fail((int)result, "%s", texts[at].text);
	}
	return dsec__fail((int)result, "request: %s", strerror((int)-result));
}

int64_t dsec__submit(struct dsec *d, const struct dsec_call *call, struct submission *submission)
{
	int64_t result;

	pthread_mutex_lock(&d->lock);
	result = submit_locked(d, call, submission);
	pthread_mutex_unlock(&d->lock);
	free(submission->payload);
	dsec__capture_free(submission->capture);
	return result < 0 ? submit_failed(result) : result;
}

int dsec__pack_end(struct pack *pack, const void *content, size_t bytes,
		   struct submission *submission)
{
	int r;

	r = dsec__pack_finish(pack, content, bytes);
	if (r < 0) {
		free(pack->data);
		return dsec__fail(r, "request: %s",
				  r == -EMSGSIZE ? "larger than any may be" :
				  r == -EINVAL	 ? "a pointer is NULL whose length is not 0" :
						   "no memory");
	}
	submission->payload = pack->data;
	submission->payload_bytes = pack->bytes;
	return 0;
}

int dsec__submit_now(struct dsec *d, const struct dsec_call *call, struct submission *submission)
{
	struct dsec_ring_request request;
	int64_t result;

	if (d->lost || d->link != LINK_UP)
		return -EAGAIN;
	request_fill(call, submission, &request);
	result = request_try(d, call, submission, &request);
	return result < 0 ? (int)result : 0;
}

int dsec__cancel(struct dsec *d, int64_t name)
{
	struct dsec_call call = { 0 };
	struct submission submission = {
		.op = DSEC_OP_CANCEL,
		.numbers = { (uint64_t)name },
		.internal = true,
	};
	struct ticket *ticket = dsec__ticket_find(d, name);
	int64_t result;

	if (!ticket || ticket->ended)
		return -ENOENT;
	ticket->cancelled = true;
	if (d->link == LINK_UP && ticket->sent) {
		result = submit_locked(d, &call, &submission);
		if (result != -ENOTCONN)
			return result < 0 ? (int)result : 0;
		/* It may have ended meanwhile, as good as any cancel. */
		ticket = dsec__ticket_find(d, name);
		if (!ticket || ticket->ended)
			return 0;
	}
	dsec__ticket_lose(d, ticket, -ECANCELED, "cancelled before it was sent again");
	return 0;
}

int dsec_cancel(struct dsec *d, int64_t name)
{
	struct dsec_call known;
	int r;

	r = dsec__call_take(d, NULL, &known);
	if (r < 0)
		return r;
	pthread_mutex_lock(&d->lock);
	r = dsec__cancel(d, name);
	pthread_mutex_unlock(&d->lock);
	if (r == -ENOENT)
		return dsec__fail(r, "cancel: no such ticket under way");
	return r < 0 ? (int)submit_failed(r) : 0;
}
