/*
 * One captured stream of an exec: the first head_max bytes and the last tail_max bytes, with the
 * total. Memory grows with what comes, up to that.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct capture {
	char *head, *tail; /* tail is a ring once it is full */
	size_t head_bytes, head_room, head_max;
	size_t tail_bytes, tail_room, tail_at, tail_max;
	uint64_t total;
};

void capture_init(struct capture *capture, size_t head_max, size_t tail_max);
void capture_done(struct capture *capture);
void capture_add(struct capture *capture, const char *bytes, size_t count);
/* The tail in order, without what is in the head: up to two pieces. Its offset in the stream. */
uint64_t capture_tail(const struct capture *capture, const char *ret_pieces[2],
		      size_t ret_bytes[2]);
static inline bool capture_is_truncated(const struct capture *capture)
{
	return capture->total > capture->head_bytes + capture->tail_bytes;
}
