/*
 * The ring transport: requests, events and result buffers in the engine's memfd, payloads in its
 * arena. Called under the connection's lock, except ring_pending() and ring_sleep_begin(), which
 * the leader calls alone.
 *
 * Sizes and offsets were checked once, by handshake.c, and are ours since. An entry is copied, the
 * copy is checked, the copy is used. A counter of the engine's that is out of range ends the
 * connection. Where payloads and buffers lie is remembered here and never read back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"

enum { BUFFERS_MAX = 32, BUFFERS_MIN = 4, BUFFER_BYTES = 16 << 10 };

static uint32_t load(const uint32_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static void store(uint32_t *counter, uint32_t value)
{
	__atomic_store_n(counter, value, __ATOMIC_RELEASE);
}

/* After a store that the engine may sleep through. */
static void doorbell_ring(const struct channel *channel)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&channel->shared->engine_awake, __ATOMIC_RELAXED))
		return;
	(void)eventfd_write(channel->doorbell_fd, 1); /* full: it rings already */
}

/* Posts pieces as far as their turn has come. True: the engine may have run out before. */
static bool buffers_post(struct dsec *d, struct channel *channel)
{
	uint32_t entries = d->welcome.buffer_entries;
	uint32_t head = load(&channel->shared->buffer_head);
	bool dry = head == channel->buffer_tail;
	uint32_t tail = channel->buffer_tail;

	while (channel->spares && tail - head < entries) {
		struct posted *posted = &channel->posted[tail & (entries - 1)];

		/* The engine holds the one that had this place: wait for it. */
		if (posted->used)
			break;
		*posted = channel->spare[--channel->spares];
		posted->used = true;
		posted->number = tail;
		channel->buffers[tail & (entries - 1)] = (struct dsec_ring_buffer){
			.at = posted->at,
			.bytes = posted->bytes,
		};
		tail++;
	}
	if (tail == channel->buffer_tail)
		return false;
	channel->buffer_tail = tail;
	store(&channel->shared->buffer_tail, tail);
	return dry;
}

static int buffers_init(struct dsec *d, struct channel *channel, uint32_t count, uint32_t bytes,
			uint64_t at)
{
	channel->posted = calloc(d->welcome.buffer_entries, sizeof(*channel->posted));
	channel->spare = calloc(count, sizeof(*channel->spare));
	if (!channel->posted || !channel->spare)
		return -ENOMEM;
	for (uint32_t piece = 0; piece < count; piece++)
		channel->spare[piece] = (struct posted){ .at = at + piece * bytes, .bytes = bytes };
	channel->spares = count;
	(void)buffers_post(d, channel); /* the engine is not waiting yet */
	return 0;
}

/* The arena's upper part becomes result buffers, a fair share for each channel. */
static int arena_divide(struct dsec *d)
{
	const struct dsec_ring_welcome *welcome = &d->welcome;
	uint64_t share = welcome->arena_bytes / 2 / d->channel_count;
	uint64_t bytes = BUFFER_BYTES, count, at;
	int r;

	if (bytes * BUFFERS_MIN > share)
		bytes = share / BUFFERS_MIN & ~63ull;
	if (bytes < welcome->buffer_bytes_min)
		bytes = welcome->buffer_bytes_min;
	count = share / bytes;
	if (count > BUFFERS_MAX)
		count = BUFFERS_MAX;
	if (count > welcome->buffer_entries)
		count = welcome->buffer_entries;
	if (!count)
		return dsec__fail(-ENOBUFS, "open: the arena is too small for its channels");
	at = (welcome->arena_bytes - count * bytes * d->channel_count) & ~4095ull;
	r = dsec__arena_init(&d->arena, at);
	for (uint32_t k = 0; k < d->channel_count && r == 0; k++, at += count * bytes)
		r = buffers_init(d, &d->channels[k], (uint32_t)count, (uint32_t)bytes, at);
	return r < 0 ? dsec__fail(r, "open: no memory") : 0;
}

static int channels_init(struct dsec *d, struct handshake *handshake)
{
	const struct dsec_ring_welcome *welcome = &d->welcome;

	d->channels = calloc(welcome->channels, sizeof(*d->channels));
	if (!d->channels)
		return dsec__fail(-ENOMEM, "open: no memory");
	d->channel_count = welcome->channels;
	for (uint32_t k = 0; k < welcome->channels; k++) {
		struct channel *channel = &d->channels[k];
		unsigned char *base = d->memory + welcome->channel_at;

		base += (uint64_t)k * welcome->channel_bytes;
		channel->shared = (struct dsec_ring_channel *)base;
		channel->requests = base + welcome->submission_at;
		channel->events = base + welcome->completion_at;
		channel->buffers = (struct dsec_ring_buffer *)(base + welcome->buffer_at);
		channel->doorbell_fd = handshake->doorbell_fds[k];
		handshake->doorbell_fds[k] = -1;
	}
	handshake->doorbell_count = 0;
	return 0;
}

int dsec__ring_open(struct dsec *d, struct handshake *handshake)
{
	void *memory;
	int r;

	d->transport = &dsec__ring; /* it closes what is half open too */
	memory = mmap(NULL, d->welcome.memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		      handshake->memory_fd, 0);
	if (memory == MAP_FAILED)
		return dsec__fail(-errno, "open: cannot map the engine's memory");
	d->memory = memory;
	d->arena_memory = d->memory + d->welcome.arena_at;
	if (madvise(memory, d->welcome.memory_bytes, MADV_DONTFORK) < 0)
		return dsec__fail(-errno, "open: cannot keep the mapping from children");
	r = channels_init(d, handshake);
	if (r < 0)
		return r;
	d->shared = true;
	return arena_divide(d);
}

static int ring_submit(struct dsec *d, struct ticket *ticket, struct dsec_ring_request *request,
		       const void *payload)
{
	struct channel *channel = &d->channels[ticket->channel];
	uint32_t entries = d->welcome.submission_entries, tail = channel->submission_tail;
	uint32_t used = tail - load(&channel->shared->submission_head);
	unsigned char *entry;
	uint64_t at;
	int r;

	if (used > entries)
		return -EPROTO;
	if (used == entries || dsec__must_wait(d, request->op, channel->running))
		return -EAGAIN;
	if (request->payload_bytes) {
		r = dsec__arena_take(&d->arena, request->payload_bytes, &at);
		if (r < 0)
			return r;
		ticket->payload_at = at;
		request->payload_at = at;
		memcpy(d->arena_memory + at, payload, request->payload_bytes);
	}
	entry = channel->requests + (uint64_t)(tail & (entries - 1)) * d->welcome.request_bytes;
	memset(entry, 0, d->welcome.request_bytes);
	memcpy(entry, request, sizeof(*request));
	channel->submission_tail = tail + 1;
	channel->running++;
	store(&channel->shared->submission_tail, tail + 1);
	doorbell_ring(channel);
	return 0;
}

static void ring_ticket_end(struct dsec *d, struct ticket *ticket)
{
	d->channels[ticket->channel].running--;
	if (ticket->payload_at != UINT64_MAX)
		dsec__arena_give(&d->arena, ticket->payload_at);
	ticket->payload_at = UINT64_MAX;
}

/* The event's bytes, if it names a buffer that the engine has; NULL if it has none. */
static int event_payload(struct dsec *d, struct channel *channel,
			 const struct dsec_ring_event *event, struct posted **ret)
{
	uint32_t mask = d->welcome.buffer_entries - 1;
	struct posted *posted = &channel->posted[event->buffer & mask];

	*ret = NULL;
	if (!event->bytes)
		return 0;
	if (!posted->used || posted->number != event->buffer)
		return -EPROTO;
	if (event->bytes > posted->bytes)
		return -EPROTO;
	*ret = posted;
	return 0;
}

static int event_reap(struct dsec *d, struct channel *channel, const struct dsec_ring_event *event)
{
	struct posted *posted;
	int r;

	r = event_payload(d, channel, event, &posted);
	if (r < 0)
		return r;
	if (!posted)
		return dsec__dispatch(d, event, NULL);
	r = dsec__dispatch(d, event, d->arena_memory + posted->at);
	posted->used = false;
	channel->spare[channel->spares++] = *posted;
	return r;
}

static int channel_reap(struct dsec *d, struct channel *channel)
{
	uint32_t entries = d->welcome.completion_entries, head = channel->completion_head;
	uint32_t used = load(&channel->shared->completion_tail) - head, count = used;
	/* Only LASTs have their place for sure: with this many the engine held others back. */
	bool full = used + channel->running >= entries, dry;
	int r = 0;

	if (used > entries)
		return -EPROTO;
	if (!used)
		return 0;
	if (count > REAP_EVENTS_MAX)
		count = REAP_EVENTS_MAX;
	for (uint32_t turn = 0; turn < count && r == 0; turn++, head++) {
		struct dsec_ring_event event;
		uint64_t at = (uint64_t)(head & (entries - 1)) * d->welcome.event_bytes;

		memcpy(&event, channel->events + at, sizeof(event));
		r = event_reap(d, channel, &event);
	}
	if (r < 0)
		return r;
	__atomic_store_n(&channel->completion_head, head, __ATOMIC_RELAXED);
	store(&channel->shared->completion_head, head);
	dry = buffers_post(d, channel);
	if (full || dry)
		doorbell_ring(channel);
	return (int)count;
}

/* Takes the bytes that woke us. True: there is no engine at the other end. */
static bool socket_drain(int fd)
{
	char bytes[64];
	ssize_t n;

	do {
		n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	} while (n == sizeof(bytes) || (n < 0 && errno == EINTR));
	return n == 0 || (n < 0 && errno != EAGAIN);
}

static int ring_reap(struct dsec *d, bool socket)
{
	bool gone = socket && socket_drain(d->socket_fd);
	int count = 0, r;

	for (uint32_t k = 0; k < d->channel_count; k++) {
		r = channel_reap(d, &d->channels[k]);
		if (r < 0)
			return r;
		count += r;
	}
	/* What it wrote before it went still counts; the next look finds it gone again. */
	return gone && !count ? -ECONNRESET : count;
}

static bool ring_pending(struct dsec *d)
{
	for (uint32_t k = 0; k < d->channel_count; k++) {
		struct channel *channel = &d->channels[k];
		uint32_t head = __atomic_load_n(&channel->completion_head, __ATOMIC_RELAXED);

		if (load(&channel->shared->completion_tail) != head)
			return true;
	}
	return false;
}

static void need_wakeup_set(struct dsec *d, enum dsec_sleep mode)
{
	for (uint32_t k = 0; k < d->channel_count; k++) {
		uint32_t *word = &d->channels[k].shared->need_wakeup;

		__atomic_store_n(word, (uint32_t)mode, __ATOMIC_SEQ_CST);
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static bool ring_sleep_begin(struct dsec *d, enum dsec_sleep mode)
{
	need_wakeup_set(d, mode);
	return ring_pending(d);
}

static void ring_sleep_end(struct dsec *d)
{
	need_wakeup_set(d, DSEC_AWAKE);
}

static void ring_close(struct dsec *d)
{
	for (uint32_t k = 0; k < d->channel_count; k++) {
		free(d->channels[k].posted);
		free(d->channels[k].spare);
		(void)close(d->channels[k].doorbell_fd); /* nothing to do about a failing close */
	}
	free(d->channels);
	d->channels = NULL;
	d->channel_count = 0;
	dsec__arena_done(&d->arena);
	if (d->memory)
		(void)munmap(d->memory, d->welcome.memory_bytes); /* it was mapped so */
	d->memory = NULL;
}

const struct transport dsec__ring = {
	.submit = ring_submit,
	.reap = ring_reap,
	.pending = ring_pending,
	.sleep_begin = ring_sleep_begin,
	.sleep_end = ring_sleep_end,
	.ticket_end = ring_ticket_end,
	.close = ring_close,
};
