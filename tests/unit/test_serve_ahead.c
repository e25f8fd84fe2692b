/*
 * What is fetched ahead, counted in round trips to a remote: a round is the time in which all that
 * was asked for comes. No clock, no ring: fetches are the test's.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "engine/base/cleanup.h"
#include "engine/serve/server.h"

enum { READ_CHUNKS = ASK_READ_BYTES_MAX / SEGMENT_CHUNK_BYTES, SEGMENTS = 3 };

/* Fetches under way, in the order in which they began. */
static struct {
	uint32_t count, chunks;
	struct {
		struct served *served;
		uint32_t chunk, count;
	} flights[FETCHES];
} air;

bool __wrap_fill_begin(struct server *server, struct served *served, uint32_t chunk,
		       uint32_t count);
uint32_t __wrap_fill_free(const struct server *server);
void __wrap_table_want(struct server *server, struct served *served);

bool __wrap_fill_begin(struct server *server, struct served *served, uint32_t chunk, uint32_t count)
{
	(void)server;
	if (air.count == FETCHES)
		return false;
	cr_assert_leq(count, (uint32_t)FETCH_CHUNKS);
	cr_assert_leq(chunk + count, served->chunk_count);
	for (uint32_t i = 0; i < count; i++) {
		cr_assert_eq(served->states[chunk + i], CHUNK_ABSENT, "chunk %u", chunk + i);
		served->states[chunk + i] = CHUNK_COMING;
	}
	air.flights[air.count].served = served;
	air.flights[air.count].chunk = chunk;
	air.flights[air.count++].count = count;
	air.chunks += count;
	return true;
}

uint32_t __wrap_fill_free(const struct server *server)
{
	(void)server;
	return FETCHES - air.count;
}

void __wrap_table_want(struct server *server, struct served *served)
{
	(void)server;
	(void)served;
	cr_assert_fail("all tables are here");
}

static void come(void)
{
	for (uint32_t i = 0; i < air.count; i++)
		for (uint32_t k = 0; k < air.flights[i].count; k++)
			air.flights[i].served->states[air.flights[i].chunk + k] = CHUNK_GOOD;
	air.count = 0;
}

/* ---- segments ---- */

static struct served *served_add(struct server *server, uint32_t chunks)
{
	struct served *served = calloc(1, sizeof *served);
	struct served **bucket;

	cr_assert(served);
	served->node = server->served_count++;
	served->chunk_count = chunks;
	served->states = calloc(chunks, 1);
	served->is_touched = calloc(bits_bytes(chunks), 1);
	served->touched = calloc(chunks, sizeof *served->touched);
	served->list = calloc(chunks, sizeof *served->list);
	served->table = calloc(1, DIGEST_BYTES);
	cr_assert(served->states && served->is_touched && served->touched && served->list &&
		  served->table);
	bucket = &server->buckets[served->node];
	served->next = *bucket;
	*bucket = served;
	return served;
}

static void world_free(struct server *server)
{
	for (uint32_t i = 0; i < server->served_count; i++) {
		struct served *served = server->buckets[i];

		free(served->states);
		free(served->is_touched);
		free(served->touched);
		free(served->list);
		free(served->table);
		free(served);
	}
	free(server);
	air.count = air.chunks = 0;
}

/* In order, as the kernel asks for a file: rounds of waiting. */
static uint32_t read_in_order(struct server *server, struct served *served, uint32_t from,
			      uint32_t to)
{
	uint32_t rounds = 0;

	for (uint32_t at = from; at < to; at += READ_CHUNKS) {
		const uint32_t end = at + READ_CHUNKS < to ? at + READ_CHUNKS : to;

		if (served->states[at] == CHUNK_ABSENT)
			cr_assert(__wrap_fill_begin(server, served, at, end - at));
		ahead_note(server, served, at, end);
		for (uint32_t i = at; i < end; i++)
			if (served->states[i] == CHUNK_COMING) {
				come();
				rounds++;
			}
	}
	return rounds;
}

Test(serve_ahead, a_large_file_in_order_waits_for_few_round_trips)
{
	static const struct {
		uint32_t chunks, rounds_max;
	} rows[] = {
		{ 16, 4 },    /* 1 MiB */
		{ 64, 6 },    /* 4 MiB */
		{ 960, 20 },  /* 60 MiB: 4 MiB each time, once there is so much ahead */
		{ 1600, 30 }, /* 100 MiB */
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct server *server = calloc(1, sizeof *server);
		struct served *served;
		uint32_t rounds;

		cr_assert(server);
		served = served_add(server, rows[i].chunks);
		rounds = read_in_order(server, served, 0, rows[i].chunks);
		cr_expect_leq(rounds, rows[i].rounds_max, "%u chunks: %u", rows[i].chunks, rounds);
		cr_assert_eq(air.chunks, rows[i].chunks, "each once, none beyond the end");
		world_free(server);
	}
}

Test(serve_ahead, small_files_bring_nothing_of_what_lies_behind_them)
{
	struct server *server = calloc(1, sizeof *server);
	struct served *served;
	uint32_t wanted = 0;

	cr_assert(server);
	served = served_add(server, 4000);
	/* Up to 384 KiB each, and as much between them. */
	for (uint32_t size = 1; size <= 6; size++)
		for (uint32_t i = 0; i < 20; i++) {
			const uint32_t at = size * 500 + i * 2 * size;

			(void)read_in_order(server, served, at, at + size);
			wanted += size;
		}
	cr_assert_eq(air.chunks, wanted);
	world_free(server);
}

Test(serve_ahead, what_is_ahead_of_a_large_file_is_at_most_as_much_as_was_read)
{
	for (uint32_t chunks = 8; chunks <= 400; chunks += 14) {
		struct server *server = calloc(1, sizeof *server);
		struct served *served;

		cr_assert(server);
		served = served_add(server, 4000);
		(void)read_in_order(server, served, 1000, 1000 + chunks);
		cr_assert_leq(air.chunks, chunks < 64 ? 2 * chunks : chunks + 64);
		world_free(server);
	}
}

Test(serve_ahead, lists_of_several_segments_take_turns_and_leave_fetches_to_who_waits)
{
	struct server *server = calloc(1, sizeof *server);
	struct served *all[SEGMENTS];
	uint32_t rounds = 0;

	cr_assert(server);
	for (uint32_t i = 0; i < SEGMENTS; i++) {
		all[i] = served_add(server, 400);
		/* No two in a row: a fetch each. */
		for (uint32_t k = 0; k < 200; k++)
			all[i]->list[k] = 2 * (k * 77 % 200);
		all[i]->list_count = 200;
	}
	for (; air.chunks < SEGMENTS * 200; rounds++) {
		const uint32_t before = air.chunks;

		/* One ends, one begins: the turn goes on where it was. */
		if (rounds % 2) {
			come();
		} else if (air.count) {
			air.count--;
			air.flights[air.count].served->states[air.flights[air.count].chunk] =
				CHUNK_GOOD;
		}
		ahead_go_on(server);
		cr_assert_leq(air.count, (uint32_t)(FETCHES - FETCHES_SPARE));
		cr_assert_gt(air.chunks, before);
		for (uint32_t i = 1; i < SEGMENTS; i++) {
			const uint32_t first = all[i - 1]->list_at, second = all[i]->list_at;

			cr_assert_leq(first > second ? first - second : second - first, 1u);
		}
	}
	ahead_go_on(server);
	cr_assert_eq(air.chunks, SEGMENTS * 200u);
	world_free(server);
}
