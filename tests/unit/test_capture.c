/*
 * Tests of engine/exec/capture.c: head, tail and total of a stream, however it is cut into writes.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/exec/capture.h"

enum { STREAM_BYTES = 4000 };

static char byte_at(uint64_t offset)
{
	return (char)(offset * 131 % 251);
}

/* From every offset on: each byte that is kept is what was written, and the others are skipped. */
static void check_pieces(const struct capture *capture, const char *stream)
{
	uint64_t tail = capture->total - capture->tail_bytes;
	const char *piece = NULL;

	for (uint64_t at = 0; at < capture->total; at++) {
		uint64_t next = capture_next(capture, at);
		size_t bytes = capture_piece(capture, next, &piece);

		cr_assert_eq(next, at < capture->head_bytes || at > tail ? at : tail);
		cr_assert(bytes || next == capture->total);
		cr_assert_leq(next + bytes, capture->total);
		cr_assert(!bytes || !memcmp(piece, stream + next, bytes));
	}
	cr_assert_eq(capture_piece(capture, capture->total, &piece), 0);
}

/* Feeds a stream in pieces of changing size and compares what is kept with what was written. */
static void check_stream(size_t bytes, size_t head_max, size_t tail_max, unsigned int seed)
{
	char stream[STREAM_BYTES];
	struct capture capture;
	const char *pieces[2];
	size_t piece_bytes[2], at = 0;
	uint64_t offset;

	for (size_t i = 0; i < bytes; i++)
		stream[i] = byte_at(i);
	capture_init(&capture, head_max, tail_max);
	while (at < bytes) {
		size_t piece = 1 + (size_t)rand_r(&seed) % 97;

		if (piece > bytes - at)
			piece = bytes - at;
		capture_add(&capture, stream + at, piece);
		at += piece;
	}
	cr_assert_eq(capture.total, bytes);
	cr_assert_eq(capture.head_bytes, bytes < head_max ? bytes : head_max);
	cr_assert_eq(memcmp(capture.head ? capture.head : "", stream, capture.head_bytes), 0);
	offset = capture_tail(&capture, SIZE_MAX, pieces, piece_bytes);
	cr_assert_eq(offset + piece_bytes[0] + piece_bytes[1], bytes);
	for (int i = 0; i < 2; i++) {
		cr_assert(!piece_bytes[i] || !memcmp(pieces[i], stream + offset, piece_bytes[i]));
		offset += piece_bytes[i];
	}
	cr_assert_eq(offset, bytes);
	check_pieces(&capture, stream);
	capture_done(&capture);
}

Test(capture, every_byte_is_kept_up_to_the_limits)
{
	check_stream(0, 100, 100, 1);
	check_stream(1, 100, 100, 1);
	check_stream(100, 100, 100, 1);
	check_stream(101, 100, 100, 1);
	check_stream(200, 100, 100, 1);
}

Test(capture, beyond_them_the_middle_is_missing)
{
	for (unsigned int seed = 1; seed < 200; seed++)
		check_stream(seed * 20, 1 + seed % 150, 1 + seed % 170, seed);
}

Test(capture, growing_buffers_keep_what_they_held)
{
	check_stream(STREAM_BYTES, 3000, 2000, 3);
	check_stream(STREAM_BYTES, 1025, 2049, 4);
	check_stream(STREAM_BYTES, 1, STREAM_BYTES, 5);
}

Test(capture, one_write_larger_than_both)
{
	char stream[STREAM_BYTES];
	struct capture capture;
	const char *pieces[2];
	size_t bytes[2];

	for (size_t i = 0; i < sizeof stream; i++)
		stream[i] = byte_at(i);
	capture_init(&capture, 10, 20);
	capture_add(&capture, stream, sizeof stream);
	cr_assert_eq(capture_tail(&capture, SIZE_MAX, pieces, bytes), STREAM_BYTES - 20);
	cr_assert_eq(bytes[0] + bytes[1], 20);
	cr_assert_eq(pieces[0][0], byte_at(STREAM_BYTES - 20));
	capture_done(&capture);
}

Test(capture, a_tail_that_turns_already_can_be_made_longer)
{
	char stream[STREAM_BYTES];
	struct capture capture;

	for (size_t i = 0; i < STREAM_BYTES; i++)
		stream[i] = byte_at(i);
	capture_init(&capture, 10, 100);
	capture_add(&capture, stream, 333);
	cr_assert_eq(capture_next(&capture, 10), 233);
	capture_keep(&capture, 500);
	check_pieces(&capture, stream);
	capture_add(&capture, stream + 333, 300);
	cr_assert_eq(capture_next(&capture, 10), 233);
	capture_add(&capture, stream + 633, 300);
	cr_assert_eq(capture_next(&capture, 10), 433);
	check_pieces(&capture, stream);
	capture_keep(&capture, 20); /* never shorter */
	cr_assert_eq(capture_next(&capture, 10), 433);
	capture_done(&capture);
}
