/*
 * Channels of the ring transport, and what both transports share: the list of awake channels, the
 * backlog and the end. Called by the shard's loop and by request.c. Every byte of the client's
 * memory is hostile: entries are copied once and checked as copies, sizes and masks are our own,
 * and a client that breaks the rules is cut without touching anybody else.
 */
#include "engine/client/channel.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/client/client.h"
#include "engine/request/request.h"
#include "engine/shard.h"
#include "engine/client/stream.h"

struct pending_event {
	struct pending_event *next;
	struct dsec_ring_event event;
	char payload[];
};

/* Rings for nothing: so many at once and a second, then a rest. */
enum { IDLE_RINGS_MAX = 64, IDLE_RINGS_PER_S = 1000, DOORBELL_REST_NS = 1000000 };

/* Of a turn, for taking requests: of the channels that are left the next turn takes first. */
enum { DRAIN_NS = 100000 };

static void channel_wake_up(struct channel *channel);
static void doorbell_rang(struct io_op *op, int res);

int channel_new(const struct channel_options *o, struct channel **ret)
{
	struct channel *channel = calloc(1, sizeof *channel);

	if (!channel)
		return -ENOMEM;
	channel->client = o->client;
	channel->client_id = o->client_id;
	channel->tenant = o->tenant;
	channel->is_own = o->is_own;
	channel->number = o->number;
	channel->is_stream = o->is_stream;
	channel->doorbell_fd = o->doorbell_fd;
	channel->idle_rings = bucket_of(IDLE_RINGS_PER_S, 1);
	channel->idle_rings.burst = IDLE_RINGS_MAX;
	channel->backlog_last = &channel->backlog;
	channel->held_last = &channel->held;
	if (o->memory) {
		const struct dsec_ring_welcome *w = o->layout;
		char *base = o->memory + w->channel_at + (size_t)o->number * w->channel_bytes;

		channel->shared = (struct dsec_ring_channel *)base;
		channel->submissions = base + w->submission_at;
		channel->completions = base + w->completion_at;
		channel->buffers = base + w->buffer_at;
		channel->arena = o->memory + w->arena_at;
		channel->arena_bytes = w->arena_bytes;
		channel->submission_mask = w->submission_entries - 1;
		channel->completion_mask = w->completion_entries - 1;
		channel->buffer_mask = w->buffer_entries - 1;
	}
	*ret = channel;
	return 0;
}

void channel_free(struct channel *channel)
{
	if (!channel)
		return;
	cleanup_close(&channel->doorbell_fd);
	free(channel->in);
	free(channel->out);
	free(channel);
}

static void doorbell_arm(struct channel *channel)
{
	channel->doorbell_armed = true;
	channel->doorbell.done = doorbell_rang;
	io_read(channel->shard->io, &channel->doorbell, channel->doorbell_fd,
		&channel->doorbell_count, sizeof channel->doorbell_count);
}

void channel_open(struct channel *channel, struct shard *shard)
{
	channel->shard = shard;
	if (channel->is_stream)
		stream_open(channel);
	else
		doorbell_arm(channel);
	channel_wake_up(channel);
}

/* ---- the ring: requests ---- */

static void channel_wake_up(struct channel *channel)
{
	struct shard *shard = channel->shard;

	if (channel->is_awake || channel->closing || channel->is_stream)
		return;
	channel->is_awake = true;
	channel->next_awake = shard->awake;
	shard->awake = channel;
	__atomic_store_n(&channel->shared->engine_awake, 1, __ATOMIC_RELAXED);
}

static bool ring_has_requests(const struct channel *channel)
{
	return __atomic_load_n(&channel->shared->submission_tail, __ATOMIC_ACQUIRE) !=
	       channel->submission_head;
}

static bool channel_may_take(const struct channel *channel, uint16_t op)
{
	return channel->in_flight < requests_in_flight_max(op, channel->submission_mask + 1);
}

static const char *ring_head(const struct channel *channel)
{
	uint32_t at = channel->submission_head & channel->submission_mask;

	return channel->submissions + (size_t)at * sizeof(struct dsec_ring_request);
}

/* A client that does not read its events is not served more of them. */
static bool ring_can_take(const struct channel *channel)
{
	uint16_t op;

	if (channel->broken || channel_is_full(channel) || !request_has_place(channel) ||
	    !ring_has_requests(channel))
		return false;
	/* Only a look: the copy that is used is checked again. */
	memcpy(&op, ring_head(channel) + offsetof(struct dsec_ring_request, op), sizeof op);
	return channel_may_take(channel, op);
}

static void doorbell_rested(struct timer *timer)
{
	doorbell_arm(container_of(timer, struct channel, doorbell_rest));
}

/*
 * No request came since the last ring, and none can be taken. Whoever does that more often than
 * a mistake explains is not heard for a while: it would keep the shard awake for nothing. What it
 * rings meanwhile is seen after that, and requests that end look at its ring as ever.
 */
static bool rings_for_nothing(struct channel *channel)
{
	const uint32_t taken = channel->submission_head - channel->rung_head;
	uint32_t retry_ms;

	channel->rung_head = channel->submission_head;
	if (taken || ring_can_take(channel))
		return false;
	return !bucket_take(&channel->idle_rings, io_now_ns(channel->shard->io), 1, &retry_ms);
}

static void doorbell_rang(struct io_op *op, int res)
{
	struct channel *channel = container_of(op, struct channel, doorbell);

	channel->doorbell_armed = false;
	if (channel->closing) {
		client_channel_settled(channel);
		return;
	}
	channel_wake_up(channel);
	if (res < 0 && res != -EAGAIN && res != -EINTR)
		return;
	channel->doorbell_rest.expired = doorbell_rested;
	if (!rings_for_nothing(channel) ||
	    timer_set(&channel->shard->timers, &channel->doorbell_rest,
		      io_now_ns(channel->shard->io) + DOORBELL_REST_NS) < 0)
		doorbell_arm(channel);
}

/*
 * One request out of the ring; its payload adds to *bytes. False: none there, no room for it, or
 * the client broke the rules.
 */
static bool ring_take(struct channel *channel, uint32_t *bytes)
{
	uint32_t tail = __atomic_load_n(&channel->shared->submission_tail, __ATOMIC_ACQUIRE);
	uint32_t waiting = tail - channel->submission_head;
	struct dsec_ring_request entry;
	auto_free char *payload = NULL;

	if (!ring_can_take(channel))
		return false;
	if (waiting > channel->submission_mask + 1) {
		client_cut(channel, "submission tail runs ahead of the ring");
		return false;
	}
	memcpy(&entry, ring_head(channel), sizeof entry);
	if (!channel_may_take(channel, entry.op))
		return false;
	if (entry.payload_bytes) {
		if (entry.payload_bytes > DSEC_PAYLOAD_BYTES_MAX ||
		    entry.payload_at > channel->arena_bytes ||
		    entry.payload_bytes > channel->arena_bytes - entry.payload_at) {
			client_cut(channel, "payload outside the arena");
			return false;
		}
		payload = malloc(entry.payload_bytes);
		if (!payload)
			return false; /* later: memory is short now */
		memcpy(payload, channel->arena + entry.payload_at, entry.payload_bytes);
		*bytes += entry.payload_bytes;
	}
	channel->submission_head++;
	__atomic_store_n(&channel->shared->submission_head, channel->submission_head,
			 __ATOMIC_RELEASE);
	request_begin(channel, &entry, take_ptr(payload));
	return true;
}

static void channel_flush(struct channel *channel);

/* Those before this one were looked at, and come after it in the next turn. */
static void awake_from(struct shard *shard, struct channel *next)
{
	struct channel **link = &shard->awake, *last = next;

	while (*link != next)
		link = &(*link)->next_awake;
	*link = NULL;
	while (last->next_awake)
		last = last->next_awake;
	last->next_awake = shard->awake;
	shard->awake = next;
}

bool channels_drain(struct shard *shard)
{
	const uint64_t until_ns = io_clock_ns(shard->io) + DRAIN_NS;
	uint64_t now_ns = 0;
	bool more = false;

	for (struct channel *channel = shard->awake; channel; channel = channel->next_awake) {
		uint32_t taken = 0, bytes = 0;

		if (now_ns > until_ns) {
			awake_from(shard, channel);
			return true;
		}

		if (channel->is_backlogged)
			channel_flush(channel);
		while (!channel->closing && taken < CHANNEL_DRAIN_MAX &&
		       bytes < CHANNEL_DRAIN_BYTES_MAX && ring_take(channel, &bytes))
			taken++;
		if (taken)
			now_ns = io_account(shard->io, (uintptr_t)channels_drain);
		more |= taken == CHANNEL_DRAIN_MAX || bytes >= CHANNEL_DRAIN_BYTES_MAX;
	}
	return more;
}

/* A ring that cannot be drained now (all its requests in flight) is looked at when one is over. */
static bool channel_must_stay(struct channel *channel)
{
	return channel->is_backlogged ||
	       (ring_has_requests(channel) &&
		(channel_may_take(channel, DSEC_OP_NOP) || ring_can_take(channel)));
}

bool channels_rest(struct shard *shard)
{
	struct channel **at = &shard->awake;
	bool stay = false;

	for (struct channel *c = shard->awake; c; c = c->next_awake)
		if (!c->closing)
			__atomic_store_n(&c->shared->engine_awake, 0, __ATOMIC_RELAXED);
	atomic_thread_fence(memory_order_seq_cst);
	while (*at) {
		struct channel *channel = *at;

		if (!channel->closing && channel_must_stay(channel)) {
			__atomic_store_n(&channel->shared->engine_awake, 1, __ATOMIC_RELAXED);
			stay |= ring_can_take(channel);
			at = &channel->next_awake;
			continue;
		}
		*at = channel->next_awake;
		channel->is_awake = false;
		if (channel->closing)
			client_channel_settled(channel);
	}
	return stay;
}

/* ---- the ring: events ---- */

/* The next result buffer, checked: false when the client posted none, or posted nonsense. */
static bool buffer_peek(struct channel *channel, struct dsec_ring_buffer *ret)
{
	uint32_t tail = __atomic_load_n(&channel->shared->buffer_tail, __ATOMIC_ACQUIRE);
	uint32_t posted = tail - channel->buffer_head;

	if (!posted)
		return false;
	memcpy(ret,
	       channel->buffers +
		       (size_t)(channel->buffer_head & channel->buffer_mask) * sizeof *ret,
	       sizeof *ret);
	if (posted > channel->buffer_mask + 1 || ret->bytes < DSEC_BUFFER_BYTES_MIN ||
	    ret->at > channel->arena_bytes || ret->bytes > channel->arena_bytes - ret->at) {
		client_cut(channel, "result buffer outside the arena");
		return false;
	}
	return true;
}

/* Free completion slots; LAST may use all of them, everything else leaves one per request. */
static bool completion_has_room(const struct channel *channel, const struct dsec_ring_event *event)
{
	uint32_t head = __atomic_load_n(&channel->shared->completion_head, __ATOMIC_ACQUIRE);
	uint32_t used = channel->completion_tail - head;
	uint32_t size = channel->completion_mask + 1;
	uint32_t reserved = event->flags & DSEC_EVENT_LAST ? 0 : channel->in_flight;

	return used < size && size - used > reserved;
}

static void announce(struct channel *channel)
{
	struct shard *shard = channel->shard;

	if (channel->is_announced)
		return;
	channel->is_announced = true;
	channel->next_announce = shard->announce;
	shard->announce = channel;
}

/* Put out as much as there is room for: the bytes of payload that went, or -EAGAIN. */
static int ring_put(struct channel *channel, const struct dsec_ring_event *event,
		    const char *payload, uint32_t bytes, bool may_cut)
{
	struct dsec_ring_event copy = *event;
	struct dsec_ring_buffer buffer;

	if (!completion_has_room(channel, event))
		return -EAGAIN;
	if (bytes) {
		if (!buffer_peek(channel, &buffer))
			return -EAGAIN;
		if (bytes > buffer.bytes && !may_cut) {
			client_cut(channel, "result buffer too small");
			return -EAGAIN;
		}
		copy.bytes = bytes < buffer.bytes ? bytes : buffer.bytes;
		memcpy(channel->arena + buffer.at, payload, copy.bytes);
		copy.buffer = channel->buffer_head++;
		__atomic_store_n(&channel->shared->buffer_head, channel->buffer_head,
				 __ATOMIC_RELEASE);
	}
	memcpy(channel->completions +
		       (size_t)(channel->completion_tail & channel->completion_mask) * sizeof copy,
	       &copy, sizeof copy);
	channel->completion_tail++;
	__atomic_store_n(&channel->shared->completion_tail, channel->completion_tail,
			 __ATOMIC_RELEASE);
	announce(channel);
	return (int)copy.bytes;
}

/* All of an event, DATA in pieces. *done counts what went already. */
static bool channel_put(struct channel *channel, struct dsec_ring_event *event, const char *payload)
{
	bool may_cut = event->kind == DSEC_EV_DATA;

	if (channel->is_stream)
		return stream_put(channel, event, payload);
	for (;;) {
		int sent = ring_put(channel, event, payload, event->bytes, may_cut);

		if (sent < 0)
			return false;
		if ((uint32_t)sent == event->bytes)
			return true;
		payload += sent;
		event->offset += (uint32_t)sent;
		event->bytes -= (uint32_t)sent;
	}
}

static void backlog_add(struct channel *channel, const struct dsec_ring_event *event,
			const char *payload)
{
	struct pending_event *pending = malloc(sizeof *pending + event->bytes);

	if (!pending) {
		client_cut(channel, "no memory for its events");
		return;
	}
	pending->next = NULL;
	pending->event = *event;
	if (event->bytes)
		memcpy(pending->payload, payload, event->bytes);
	*channel->backlog_last = pending;
	channel->backlog_last = &pending->next;
	channel->backlog_bytes += event->bytes;
	if (channel->is_backlogged)
		return;
	channel->is_backlogged = true;
	channel->shard->backlogged += !channel->is_stream;
	channel_wake_up(channel);
}

static void backlog_drop(struct channel *channel)
{
	while (channel->backlog) {
		struct pending_event *pending = channel->backlog;

		channel->backlog = pending->next;
		free(pending);
	}
	channel->backlog_last = &channel->backlog;
	channel->backlog_bytes = 0;
	if (channel->is_backlogged)
		channel->shard->backlogged -= !channel->is_stream;
	channel->is_backlogged = false;
	requests_have_room(channel);
}

/* What is left of a DATA event that went in part moves to the front of its copy. */
static void channel_flush(struct channel *channel)
{
	while (channel->backlog && !channel->closing) {
		struct pending_event *pending = channel->backlog;
		uint32_t bytes = pending->event.bytes;

		if (!channel_put(channel, &pending->event, pending->payload)) {
			memmove(pending->payload, pending->payload + bytes - pending->event.bytes,
				pending->event.bytes);
			return;
		}
		channel->backlog_bytes -= bytes;
		channel->backlog = pending->next;
		if (!channel->backlog)
			channel->backlog_last = &channel->backlog;
		free(pending);
	}
	if (!channel->closing)
		backlog_drop(channel);
}

void channel_flush_stream(struct channel *channel)
{
	channel_flush(channel);
}

void channel_post(struct channel *channel, const struct dsec_ring_event *event, const void *payload)
{
	struct dsec_ring_event rest = *event;
	const char *bytes = payload;

	if (channel->closing)
		return;
	if (channel->backlog || !channel_put(channel, &rest, bytes))
		if (!channel->closing)
			backlog_add(channel, &rest,
				    bytes ? bytes + (event->bytes - rest.bytes) : NULL);
}

static void channel_wake_client(struct channel *channel)
{
	uint32_t *word = &channel->shared->need_wakeup;
	uint32_t mode;

	if (!__atomic_load_n(word, __ATOMIC_RELAXED))
		return;
	mode = __atomic_exchange_n(word, DSEC_AWAKE, __ATOMIC_SEQ_CST);
	if (mode == DSEC_SLEEP_FUTEX)
		(void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	else if (mode == DSEC_SLEEP_FD)
		/* EAGAIN: bytes wait there already, the socket is readable. */
		(void)send(client_socket(channel->client), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void channels_announce(struct shard *shard)
{
	struct channel *channel = shard->announce;

	shard->announce = NULL;
	if (!channel)
		return;
	atomic_thread_fence(memory_order_seq_cst); /* events before the look at need_wakeup */
	while (channel) {
		struct channel *next = channel->next_announce;

		channel->is_announced = false;
		if (channel->closing)
			client_channel_settled(channel);
		else
			channel_wake_client(channel);
		channel = next;
	}
}

/* ---- the end ---- */

void channel_close(struct channel *channel)
{
	if (channel->closing)
		return;
	channel->closing = true;
	for (struct request *request = channel->requests; request; request = request->next)
		request_detach(request);
	backlog_drop(channel);
	timer_clear(&channel->shard->timers, &channel->doorbell_rest);
	if (channel->doorbell_armed)
		io_cancel(channel->shard->io, &channel->doorbell);
	if (channel->is_stream)
		stream_close(channel);
	client_channel_settled(channel);
}

bool channel_is_settled(const struct channel *channel)
{
	return channel->closing && !channel->in_flight && !channel->doorbell_armed &&
	       !channel->receiving && !channel->sending && !channel->watching &&
	       !channel->is_awake && !channel->is_announced;
}

void channel_request_over(struct channel *channel, struct request *request)
{
	if (request->previous)
		request->previous->next = request->next;
	else
		channel->requests = request->next;
	if (request->next)
		request->next->previous = request->previous;
	channel->in_flight--;
	if (channel->closing)
		client_channel_settled(channel);
	else if (channel->is_stream)
		stream_resume(channel);
	else
		channel_wake_up(channel); /* the ring may hold one that had no room */
}
