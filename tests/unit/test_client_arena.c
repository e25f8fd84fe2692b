/* Where payloads lie. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/lib/arena.h"

enum { PIECES_MAX = 4096 };

struct piece {
	uint64_t at, bytes;
};

static void check_apart(const struct piece *pieces, size_t count, struct piece piece,
			uint64_t arena_bytes)
{
	cr_assert_leq(piece.at + piece.bytes, arena_bytes);
	for (size_t other = 0; other < count; other++) {
		cr_assert(piece.at + piece.bytes <= pieces[other].at ||
				  pieces[other].at + pieces[other].bytes <= piece.at,
			  "%lu+%lu meets %lu+%lu", piece.at, piece.bytes, pieces[other].at,
			  pieces[other].bytes);
	}
}

Test(client_arena, pieces_never_overlap_and_all_come_back)
{
	const uint64_t arena_bytes = 300 * 1000; /* no power of two */
	struct piece *pieces = calloc(PIECES_MAX, sizeof(*pieces));
	struct arena arena;
	size_t count = 0;
	uint64_t at;

	cr_assert(pieces);
	cr_assert_eq(dsec__arena_init(&arena, arena_bytes), 0);
	srandom(4711);
	for (int turn = 0; turn < 50000; turn++) {
		struct piece piece = { 0, (uint64_t)(random() % 9000) };

		if (random() % 2 && count) {
			size_t which = (size_t)random() % count;

			dsec__arena_give(&arena, pieces[which].at);
			pieces[which] = pieces[--count];
		} else if (dsec__arena_take(&arena, piece.bytes, &piece.at) == 0) {
			if (turn % 16 == 0)
				check_apart(pieces, count, piece, arena_bytes);
			pieces[count++] = piece;
		}
	}
	while (count)
		dsec__arena_give(&arena, pieces[--count].at);
	/* The largest piece there ever was is whole again. */
	cr_assert_eq(dsec__arena_take(&arena, 256 << 10, &at), 0);
	cr_assert_eq(dsec__arena_take(&arena, 256 << 10, &at), -EAGAIN);
	dsec__arena_done(&arena);
	free(pieces);
}

Test(client_arena, what_never_fits_is_told_apart_from_what_does_not_fit_now)
{
	struct arena arena;
	uint64_t first, second;

	cr_assert_eq(dsec__arena_init(&arena, 4096), 0);
	cr_assert_eq(dsec__arena_take(&arena, 4097, &first), -EMSGSIZE);
	cr_assert_eq(dsec__arena_take(&arena, UINT64_MAX, &first), -EMSGSIZE);
	cr_assert_eq(dsec__arena_take(&arena, 4096, &first), 0);
	cr_assert_eq(dsec__arena_take(&arena, 1, &second), -EAGAIN);
	dsec__arena_give(&arena, first);
	cr_assert_eq(dsec__arena_take(&arena, 1, &second), 0);
	dsec__arena_done(&arena);
}

Test(client_arena, an_empty_one_has_room_for_nothing)
{
	struct arena arena;
	uint64_t at;

	cr_assert_eq(dsec__arena_init(&arena, 255), 0);
	cr_assert_eq(dsec__arena_take(&arena, 1, &at), -EMSGSIZE);
	dsec__arena_done(&arena);
}

Test(client_arena, freed_neighbours_join_up_in_any_order)
{
	struct arena arena;
	uint64_t at[16], whole;

	for (int first = 0; first < 16; first++) {
		cr_assert_eq(dsec__arena_init(&arena, 4096), 0);
		for (int k = 0; k < 16; k++)
			cr_assert_eq(dsec__arena_take(&arena, 256, &at[k]), 0);
		for (int k = 0; k < 16; k++)
			dsec__arena_give(&arena, at[(k * 5 + first) % 16]);
		cr_assert_eq(dsec__arena_take(&arena, 4096, &whole), 0);
		dsec__arena_done(&arena);
	}
}
