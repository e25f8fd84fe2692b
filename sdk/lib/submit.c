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
#include "sdk/lib/structs.h"

/* A full ring empties without telling: look again after this long. */
#define ROOM_SLICE_NS (1000 * 1000ll)

int dsec__call_take(struct dsec *d, const struct dsec_call *given, struct dsec_call *known)
{
	int r;

	*known = (struct dsec_call){ 0 };
	if (!d)
		return dsec__fail(-EINVAL, "request: no connection");
	if (dsec__forked(d))
		return dsec__fail(-EOWNERDEAD, "request: the connection is the parent process's");
	if (!given)
		return 0;
	r = dsec__struct_take(known, sizeof(*known), given, "call");
	if (r < 0)
		return r;
	if (known->flags)
		return dsec__fail(-EINVAL, "call: unknown flags");
	if (known->queue && known->queue->d != d)
		return dsec__fail(-EINVAL, "call: the queue is another connection's");
	return 0;
}

static int random_take(struct dsec *d, uint8_t *bytes, uint32_t count)
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
 * UUIDv7: 48 bits of the engine's milliseconds, most significant first, then chance; the last byte
 * counts, since creates go to the shards by it: in turn is more even than by chance.
 */
static int request_id_new(struct dsec *d, uint8_t id[16])
{
	uint64_t now_ms = d->welcome.clock_ms;
	int r;

	now_ms += (uint64_t)(dsec__clock_ns() - d->welcomed_ns) / 1000000;
	r = random_take(d, id + 6, 10);
	if (r < 0)
		return r;
	for (int at = 0; at < 6; at++)
		id[at] = (uint8_t)(now_ms >> (40 - 8 * at));
	id[6] = (id[6] & 0x0f) | 0x70;
	id[8] = (id[8] & 0x3f) | 0x80;
	id[15] = d->id_next++;
	return 0;
}

/* To the shard that does the work: a sandbox's own, or the one that an id's create belongs to. */
static uint32_t channel_choose(const struct dsec *d, const struct dsec_ring_request *request)
{
	uint32_t shard = (uint32_t)(request->subject.lo >> DSEC_ID_SHARD_SHIFT);

	if (request->op == DSEC_OP_CREATE)
		shard = request->request_id[15] % d->welcome.shards;
	return shard < d->channel_count ? shard : 0;
}

static int request_fill(struct dsec *d, const struct dsec_call *call,
			const struct submission *submission, struct dsec_ring_request *request)
{
	static const uint8_t none[16];

	*request = (struct dsec_ring_request){
		.subject = { submission->subject.hi, submission->subject.lo },
		.op = submission->op,
		.timeout_ms = call->timeout_ms,
		.payload_bytes = (uint32_t)submission->payload_bytes,
		.number = { submission->number },
	};
	if (submission->internal)
		return 0;
	memcpy(request->request_id, call->request_id, sizeof(request->request_id));
	if (memcmp(call->request_id, none, sizeof(none)) == 0)
		return request_id_new(d, request->request_id);
	return 0;
}

/* One try. On failure there is no ticket. */
static int64_t request_try(struct dsec *d, const struct dsec_call *call,
			   struct submission *submission, struct dsec_ring_request *request)
{
	struct ticket *ticket;
	int r;

	ticket = dsec__ticket_new(d);
	if (!ticket)
		return -ENOMEM;
	ticket->op = submission->op;
	ticket->tag = call->tag;
	ticket->channel = channel_choose(d, request);
	ticket->abandoned = submission->internal;
	request->ticket = (uint64_t)ticket->name;
	r = d->transport->submit(d, ticket, request, submission->payload);
	if (r < 0) {
		dsec__ticket_release(d, ticket);
		return r;
	}
	ticket->capture = submission->capture;
	submission->capture = NULL;
	ticket->queue = call->queue;
	if (ticket->queue)
		ticket->queue->outstanding++;
	return ticket->name;
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
		int64_t now = dsec__clock_ns();

		if (d->lost) {
			result = -ENOTCONN;
			break;
		}
		result = request_try(d, call, submission, request);
		if (result != -EAGAIN || call->queue || now >= deadline_ns)
			break;
		waited = true;
		/* Nothing in time is as good as something: there may be room now. */
		(void)dsec__wait(d, &waiter, deadline_earlier(deadline_ns, now + ROOM_SLICE_NS));
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
	int64_t result;

	result = request_fill(d, call, submission, &request);
	if (result == 0)
		result = request_place(d, call, submission, &request);
	if (result == -EPROTO || result == -ECONNRESET) {
		dsec__lose(d, (int)result);
		dsec__wait_leave(d);
		result = -ENOTCONN;
	}
	return result;
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

int dsec__cancel(struct dsec *d, int64_t name)
{
	struct dsec_call call = { 0 };
	struct submission submission = {
		.op = DSEC_OP_CANCEL,
		.number = (uint64_t)name,
		.internal = true,
	};
	struct ticket *ticket = dsec__ticket_find(d, name);
	int64_t result;

	if (!ticket || ticket->ended)
		return -ENOENT;
	result = submit_locked(d, &call, &submission);
	return result < 0 ? (int)result : 0;
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
