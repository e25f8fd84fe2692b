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
/* From here on at least so much of the end is kept; no more than before when memory is short. */
void capture_keep(struct capture *capture, size_t tail_max);
/*
 * At most the last `bytes_max` of the tail in order, without what is in the head: up to two pieces.
 * Its offset in the stream.
 */
uint64_t capture_tail(const struct capture *capture, size_t bytes_max, const char *ret_pieces[2],
		      size_t ret_bytes[2]);
/* The first byte at `offset` or behind that is kept; the total where none is. */
uint64_t capture_next(const struct capture *capture, uint64_t offset);
/* The bytes at such an offset, as far as they lie together. */
size_t capture_piece(const struct capture *capture, uint64_t offset, const char **ret_bytes);
