/*
 * Capturing a stream's head and tail. Called by exec.c. Nothing here fails: when memory is short
 * the stream is truncated sooner and says so.
 */
#include "engine/exec/capture.h"

#include <stdlib.h>
#include <string.h>

enum { CAPTURE_FIRST_BYTES = 1024 };

void capture_init(struct capture *capture, size_t head_max, size_t tail_max)
{
	*capture = (struct capture){ .head_max = head_max, .tail_max = tail_max };
}

void capture_done(struct capture *capture)
{
	free(capture->head);
	free(capture->tail);
	*capture = (struct capture){ 0 };
}

/* Room for `wanted` bytes of at most `max`; doubles. What it has when memory is short. */
static size_t grow(char **buffer, size_t room, size_t wanted, size_t max)
{
	size_t next = room ? room : CAPTURE_FIRST_BYTES;
	char *bytes;

	if (wanted > max)
		wanted = max;
	if (wanted <= room)
		return room;
	while (next < wanted)
		next *= 2;
	if (next > max)
		next = max;
	bytes = realloc(*buffer, next);
	if (!bytes)
		return room;
	*buffer = bytes;
	return next;
}

static size_t head_add(struct capture *c, const char *bytes, size_t count)
{
	size_t room;

	c->head_room = grow(&c->head, c->head_room, c->head_bytes + count, c->head_max);
	room = c->head_room - c->head_bytes;
	if (count > room)
		count = room;
	if (count)
		memcpy(c->head + c->head_bytes, bytes, count);
	c->head_bytes += count;
	return count;
}

/* A ring of tail_room bytes; it starts to turn only at its largest size. */
static void tail_add(struct capture *c, const char *bytes, size_t count)
{
	if (c->tail_bytes == c->tail_room || c->tail_at == 0)
		c->tail_room = c->tail_at ? c->tail_room :
					    grow(&c->tail, c->tail_room, c->tail_bytes + count,
						 c->tail_max);
	if (!c->tail_room)
		return;
	if (count > c->tail_room) {
		bytes += count - c->tail_room;
		count = c->tail_room;
	}
	while (count) {
		size_t end = (c->tail_at + c->tail_bytes) % c->tail_room;
		size_t piece = c->tail_room - end;

		if (piece > count)
			piece = count;
		memcpy(c->tail + end, bytes, piece);
		bytes += piece;
		count -= piece;
		c->tail_bytes += piece;
		if (c->tail_bytes > c->tail_room) {
			c->tail_at = (c->tail_at + c->tail_bytes - c->tail_room) % c->tail_room;
			c->tail_bytes = c->tail_room;
		}
	}
}

void capture_add(struct capture *capture, const char *bytes, size_t count)
{
	size_t taken = 0;

	/* Once a byte went past the head, the head is closed, whatever memory comes back. */
	if (capture->total == capture->head_bytes)
		taken = head_add(capture, bytes, count);
	capture->total += count;
	if (taken < count)
		tail_add(capture, bytes + taken, count - taken);
}

/* A ring that turns already is laid out anew from its first byte, so that it can grow. */
void capture_keep(struct capture *c, size_t tail_max)
{
	const char *pieces[2];
	size_t bytes[2];
	char *tail;

	if (tail_max <= c->tail_max)
		return;
	if (c->tail_at) {
		tail = malloc(c->tail_room);
		if (!tail)
			return;
		(void)capture_tail(c, SIZE_MAX, pieces, bytes);
		memcpy(tail, pieces[0], bytes[0]);
		memcpy(tail + bytes[0], pieces[1], bytes[1]);
		free(c->tail);
		c->tail = tail;
		c->tail_at = 0;
	}
	c->tail_max = tail_max;
}

uint64_t capture_tail(const struct capture *c, size_t bytes_max, const char *ret_pieces[2],
		      size_t ret_bytes[2])
{
	size_t bytes = c->tail_bytes < bytes_max ? c->tail_bytes : bytes_max;
	size_t at = c->tail_at + c->tail_bytes - bytes, first = bytes;

	if (c->tail_room && at >= c->tail_room)
		at -= c->tail_room;
	if (c->tail_room && first > c->tail_room - at)
		first = c->tail_room - at;
	ret_pieces[0] = c->tail ? c->tail + at : NULL;
	ret_bytes[0] = first;
	ret_pieces[1] = c->tail;
	ret_bytes[1] = bytes - first;
	return c->total - bytes;
}

uint64_t capture_next(const struct capture *c, uint64_t offset)
{
	uint64_t tail = c->total - c->tail_bytes;

	return offset < c->head_bytes || offset >= tail ? offset : tail;
}

size_t capture_piece(const struct capture *c, uint64_t offset, const char **ret_bytes)
{
	const char *pieces[2];
	size_t bytes[2];

	if (offset < c->head_bytes) {
		*ret_bytes = c->head + offset;
		return c->head_bytes - offset;
	}
	if (offset >= c->total)
		return 0;
	(void)capture_tail(c, c->total - offset, pieces, bytes);
	*ret_bytes = pieces[0];
	return bytes[0];
}
