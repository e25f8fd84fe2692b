/*
 * Capturing a stream's head and tail. Called by exec.c. Nothing here fails: when memory is short
 * the stream is truncated sooner and says so.
 */
#include "engine/capture.h"

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

uint64_t capture_tail(const struct capture *capture, const char *ret_pieces[2], size_t ret_bytes[2])
{
	size_t first = capture->tail_bytes;

	if (capture->tail_room && first > capture->tail_room - capture->tail_at)
		first = capture->tail_room - capture->tail_at;
	ret_pieces[0] = capture->tail ? capture->tail + capture->tail_at : NULL;
	ret_bytes[0] = first;
	ret_pieces[1] = capture->tail;
	ret_bytes[1] = capture->tail_bytes - first;
	return capture->total - capture->tail_bytes;
}
