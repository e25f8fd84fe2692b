/*
 * The output of an exec with DSEC_EXEC_CAPTURE, collected until its result. Called while
 * dispatching. Head and tail as the engine keeps them; or, where all of it comes as streams, cut to
 * head and tail here.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/lib/event.h"

enum { TAIL_SLACK_BYTES = 64 << 10 };

static int captured_append(unsigned char **data, size_t *data_bytes, const void *more, size_t bytes)
{
	unsigned char *grown = realloc(*data, *data_bytes + bytes);

	if (!grown)
		return -ENOMEM;
	memcpy(grown + *data_bytes, more, bytes);
	*data = grown;
	*data_bytes += bytes;
	return 0;
}

static struct captured *captured_of(struct capture *capture, const struct dsec_ring_event *wire)
{
	return wire->stream == 1 || wire->stream == 2 ? &capture->streams[wire->stream - 1] : NULL;
}

int dsec__capture_add(struct capture *capture, const struct dsec_ring_event *wire,
		      const void *payload)
{
	bool tail = wire->flags & DSEC_EVENT_TAIL;
	uint64_t bytes_max = tail ? capture->tail_bytes_max : capture->head_bytes_max;
	struct captured *captured;
	size_t bytes = wire->bytes, have;

	captured = captured_of(capture, wire);
	if (!captured)
		return -EPROTO;
	have = tail ? captured->tail_bytes : captured->head_bytes;
	if (bytes > bytes_max - have) {
		captured->cut = true;
		bytes = bytes_max - have;
	}
	if (!bytes)
		return 0;
	if (tail)
		return captured_append(&captured->tail, &captured->tail_bytes, payload, bytes);
	return captured_append(&captured->head, &captured->head_bytes, payload, bytes);
}

/* The end is kept twice as long as needed, so that it is moved seldom. */
static int tail_append(struct captured *captured, const unsigned char *bytes, size_t count,
		       uint64_t bytes_max)
{
	size_t over;

	if (captured->tail_bytes + count > 2 * bytes_max + TAIL_SLACK_BYTES) {
		over = captured->tail_bytes < bytes_max ? 0 : captured->tail_bytes - bytes_max;
		captured->tail_bytes -= over;
		memmove(captured->tail, captured->tail + over, captured->tail_bytes);
	}
	return captured_append(&captured->tail, &captured->tail_bytes, bytes, count);
}

int dsec__capture_follow(struct capture *capture, const struct dsec_ring_event *wire,
			 const void *payload)
{
	struct captured *captured = captured_of(capture, wire);
	const unsigned char *bytes = payload;
	size_t count = wire->bytes, head;
	int r = 0;

	if (!captured)
		return -EPROTO;
	if (wire->kind == DSEC_EV_GAP) {
		captured->cut = true; /* and with that the head is over */
		captured->tail_bytes = 0;
		return 0;
	}
	head = capture->head_bytes_max - captured->head_bytes;
	if (captured->cut || captured->tail_bytes)
		head = 0;
	if (head > count)
		head = count;
	if (head)
		r = captured_append(&captured->head, &captured->head_bytes, bytes, head);
	if (r == 0 && count > head)
		r = tail_append(captured, bytes + head, count - head, capture->tail_bytes_max);
	return r;
}

void dsec__capture_show(const struct capture *capture, unsigned int which, struct dsec_output *ret)
{
	const struct captured *captured = &capture->streams[which];
	size_t tail = captured->tail_bytes;

	if (tail > capture->tail_bytes_max)
		tail = capture->tail_bytes_max;
	ret->head = (struct dsec_bytes){ captured->head, captured->head_bytes };
	ret->tail = (struct dsec_bytes){ NULL, tail };
	if (tail)
		ret->tail.data = captured->tail + captured->tail_bytes - tail;
	ret->truncated |= captured->cut || ret->total_bytes > captured->head_bytes + tail;
}

void dsec__capture_clear(struct capture *capture)
{
	for (int at = 0; at < 2; at++) {
		free(capture->streams[at].head);
		free(capture->streams[at].tail);
		capture->streams[at] = (struct captured){ 0 };
	}
}

void dsec__capture_free(struct capture *capture)
{
	if (!capture)
		return;
	dsec__capture_clear(capture);
	free(capture);
}
