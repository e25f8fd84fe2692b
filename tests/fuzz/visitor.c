/*
 * Clients of fuzz runs. Called by the fuzz targets. Nothing here waits: the engine runs on the same
 * thread, and only when it is turned.
 */
#include "tests/fuzz/visitor.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

void visitor_connect(struct visitor *v, struct fuzz_node *node, struct known_ids *known)
{
	*v = (struct visitor){ .known = known };
	v->raw = (struct raw){ .fd = node_connect(node), .memory_fd = -1, .memory = MAP_FAILED };
	for (uint32_t i = 0; i < FUZZ_SHARDS; i++)
		node_turn(node, i);
}

bool visitor_is_silent(const struct visitor *v)
{
	struct pollfd at = { .fd = v->raw.fd, .events = POLLIN };

	return poll(&at, 1, 0) <= 0;
}

bool visitor_open(struct visitor *v, struct fuzz_node *node, const struct dsec_ring_hello *hello)
{
	struct raw *raw = &v->raw;

	raw->hello = *hello;
	if (raw_send(raw, hello, sizeof *hello) < 0)
		return false;
	node_settle(node);
	if (visitor_is_silent(v) || raw_receive_welcome(raw) < 0 || raw->welcome.code)
		return false;
	if (hello->transport == DSEC_TRANSPORT_RING) {
		if (raw_map(raw) < 0 || raw_step_mapped(raw) < 0)
			return false;
		node_settle(node);
		if (visitor_is_silent(v) || raw_step_go(raw) < 0)
			return false;
		raw_buffers_post(raw, 4);
	}
	v->open = true;
	return true;
}

void visitor_ask(struct visitor *v, struct dsec_ring_request *entry, const void *payload,
		 uint32_t bytes)
{
	struct raw *raw = &v->raw;

	if (v->tickets == TICKETS_MAX)
		return;
	if (raw->hello.transport == DSEC_TRANSPORT_RING &&
	    raw->submitted - __atomic_load_n(&raw->channel->submission_head, __ATOMIC_ACQUIRE) >=
		    raw->welcome.submission_entries)
		return; /* no room in the ring */
	entry->ticket = v->tickets++;
	if (raw_ask(raw, entry, payload, bytes) < 0)
		v->wild = true; /* it was cut meanwhile */
}

/* ---- events ---- */

static void end_keep(struct visitor *v, const struct dsec_ring_event *event, const char *payload)
{
	struct end *end = &v->ends[event->ticket];
	struct dsec_wire_result result;
	size_t bytes = event->bytes;

	end->code = event->code;
	if (event->flags & DSEC_EVENT_STATUS) {
		bytes -= sizeof end->status;
		memcpy(&end->status, payload + bytes, sizeof end->status);
	}
	if (event->kind != DSEC_EV_DONE || bytes != sizeof result)
		return;
	memcpy(&result, payload, sizeof result);
	end->reason = result.reason;
}

static void event_check(struct visitor *v, const struct dsec_ring_event *event, const char *payload)
{
	struct dsec_wire_status status;
	bool last = event->flags & DSEC_EVENT_LAST;

	assert(event->kind <= DSEC_EV_RECONNECTED);
	assert(event->code <= DSEC_LOST);
	if (event->code) {
		assert(event->flags & DSEC_EVENT_STATUS);
		assert(event->bytes >= sizeof status);
		memcpy(&status, payload + event->bytes - sizeof status, sizeof status);
		assert(status.code == event->code);
		assert(!status.step[sizeof status.step - 1]);
		assert(!status.detail[sizeof status.detail - 1]);
	}
	/* A function: they are of the last shard there can be. */
	if (!event->code && event->kind == DSEC_EV_DONE && last && event->subject.lo >> 52 == 0xfff)
		v->known->function = event->subject;
	if (event->kind == DSEC_EV_CREATED && !event->code)
		v->known->ids[v->known->count++ % IDS_MAX] = event->subject;
	if (v->wild)
		return;
	assert(event->ticket < v->tickets);
	assert(v->lasts[event->ticket] == 0); /* nothing comes after a LAST, and no other LAST */
	v->lasts[event->ticket] = last;
	if (last)
		end_keep(v, event, payload);
}

static void stream_receive(struct visitor *v)
{
	char bytes[8192];
	ssize_t got = recv(v->raw.fd, bytes, sizeof bytes, MSG_DONTWAIT);

	if (got <= 0)
		return;
	v->in = realloc(v->in, v->in_bytes + (size_t)got);
	assert(v->in);
	memcpy(v->in + v->in_bytes, bytes, (size_t)got);
	v->in_bytes += (size_t)got;
}

static bool stream_read(struct visitor *v)
{
	struct dsec_ring_event event;
	size_t whole;

	if (v->in_bytes < sizeof event)
		stream_receive(v);
	if (v->in_bytes < sizeof event)
		return false;
	memcpy(&event, v->in, sizeof event);
	whole = sizeof event + event.bytes;
	if (v->in_bytes < whole)
		stream_receive(v);
	if (v->in_bytes < whole)
		return false;
	event_check(v, &event, v->in + sizeof event);
	v->in_bytes -= whole;
	memmove(v->in, v->in + whole, v->in_bytes);
	return true;
}

static bool ring_read(struct visitor *v)
{
	const struct dsec_ring_welcome *w = &v->raw.welcome;
	struct dsec_ring_event event;
	const char *payload = NULL;
	uint32_t tail = __atomic_load_n(&v->raw.channel->completion_tail, __ATOMIC_ACQUIRE);
	const struct dsec_ring_event *next =
		&v->raw.events[v->raw.completed & (w->completion_entries - 1)];
	const struct dsec_ring_buffer *buffer =
		&v->raw.buffers[next->buffer & (w->buffer_entries - 1)];

	if (tail == v->raw.completed)
		return false;
	/* Who wrote over its own memory reads what it wrote: only account for what can be. */
	if (v->wild && (tail - v->raw.completed > w->completion_entries ||
			buffer->at > w->arena_bytes || next->bytes > w->arena_bytes - buffer->at))
		return false;
	if (raw_next(&v->raw, 0, &event, &payload) < 0)
		return false;
	if (!v->wild)
		event_check(v, &event, payload);
	return true;
}

uint32_t visitor_read(struct visitor *v, uint32_t count)
{
	bool is_ring = v->raw.hello.transport == DSEC_TRANSPORT_RING;
	uint32_t read = 0;

	while (v->open && read < count && (is_ring ? ring_read(v) : stream_read(v)))
		read++;
	return read;
}

bool visitor_is_cut(struct visitor *v)
{
	char byte;
	ssize_t got;

	/* A ring's socket carries bytes that only wake; a stream's are events. */
	if (v->raw.hello.transport == DSEC_TRANSPORT_STREAM)
		got = recv(v->raw.fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
	else
		while ((got = recv(v->raw.fd, &byte, 1, MSG_DONTWAIT)) > 0)
			continue;
	return got == 0 || (got < 0 && errno == ECONNRESET);
}

bool visitor_is_answered(const struct visitor *v)
{
	for (uint32_t i = 0; i < v->tickets; i++)
		if (!v->lasts[i])
			return false;
	return true;
}

void visitor_close(struct visitor *v)
{
	raw_close(&v->raw);
	free(v->in);
	v->in = NULL;
	v->in_bytes = 0;
	v->open = false;
}
