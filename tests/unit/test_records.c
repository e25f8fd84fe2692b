/*
 * Tests of engine/request/records.c: no request runs twice by its id, whatever is remembered.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "engine/request/records.h"

enum { RECORDS = 131072 };

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

enum { BODY = 5, BYTES_MAX = 1 << 20 };

static int records_start(struct records *records, uint64_t epoch_ms, uint64_t epoch_ns)
{
	const struct records_options options = {
		.count = RECORDS, .bytes_max = BYTES_MAX, .epoch_ms = epoch_ms, .epoch_ns = epoch_ns
	};

	return records_init(records, &options);
}

static struct dsec_ring_request entry_at(uint64_t ms, uint64_t chance)
{
	struct dsec_ring_request entry = { .op = DSEC_OP_EXEC };

	for (int i = 0; i < 6; i++)
		entry.request_id[i] = (uint8_t)(ms >> (40 - 8 * i));
	memcpy(entry.request_id + 8, &chance, sizeof chance);
	return entry;
}

Test(records, an_id_begins_once)
{
	struct dsec_ring_request entry;
	struct records records;
	struct record *record;

	cr_assert_eq(records_start(&records, now_ms(), records_clock_ns()), 0);
	entry = entry_at(now_ms() + 1, 7);
	cr_assert_eq(record_begin(&records, entry.request_id, BODY, &record), 0);
	cr_assert_eq(record->state, RECORD_RUNNING);
	cr_assert_eq(record_begin(&records, entry.request_id, BODY, &record), -EEXIST);
	cr_assert_eq(record_refusal(-EEXIST).code, DSEC_CONFLICT);
	records_done(&records);
}

Test(records, what_is_forgotten_may_begin_again)
{
	struct dsec_ring_request entry, other;
	struct records records;
	struct record *record;

	cr_assert_eq(records_start(&records, now_ms(), records_clock_ns()), 0);
	entry = entry_at(now_ms() + 1, 7);
	other = entry_at(now_ms() + 1, 8);
	cr_assert_eq(record_begin(&records, entry.request_id, BODY, &record), 0);
	cr_assert_eq(record_begin(&records, other.request_id, BODY, &record), 0);
	record_forget(&records, entry.request_id);
	record_forget(&records, entry.request_id); /* in vain */
	cr_assert_eq(record_begin(&records, entry.request_id, BODY, &record), 0);
	cr_assert_eq(record->state, RECORD_RUNNING);
	cr_assert_eq(record_begin(&records, other.request_id, BODY, &record), -EEXIST);
	records_done(&records);
}

Test(records, the_end_is_remembered_with_its_result)
{
	const char result[] = "result";
	const struct dsec_ring_event last = { .code = 3, .exec = 9, .bytes = sizeof result };
	struct dsec_ring_request entry;
	struct records records;
	struct record *record;

	cr_assert_eq(records_start(&records, now_ms(), records_clock_ns()), 0);
	entry = entry_at(now_ms() + 1, 7);
	cr_assert_eq(record_begin(&records, entry.request_id, BODY, &record), 0);
	record_end(&records, entry.request_id, &(struct record_end){ &last, result, 0, false });
	cr_assert_eq(record_begin(&records, entry.request_id, BODY, &record), -EEXIST);
	cr_assert_eq(record->state, RECORD_ENDED);
	cr_assert_eq(record->last.exec, 9);
	cr_assert_str_eq(record->payload, result);
	records_done(&records);
}

/* It is found again until all of it was done, and its log lies behind its result. */
Test(records, what_ended_in_part_is_remembered_as_such)
{
	const char result[] = "result and log";
	const struct dsec_ring_event last = { .bytes = 6 };
	struct record_end end = { &last, result, sizeof result - 6, true };
	struct dsec_ring_request entry;
	struct records records;
	struct record *record;

	cr_assert_eq(records_start(&records, now_ms(), records_clock_ns()), 0);
	entry = entry_at(now_ms() + 1, 7);
	cr_assert_eq(record_begin(&records, entry.request_id, BODY, &record), 0);
	record_end(&records, entry.request_id, &end);
	cr_assert_eq(record_begin(&records, entry.request_id, BODY, &record), -EEXIST);
	cr_assert_eq(record->state, RECORD_PARTIAL);
	cr_assert_str_eq(record->payload + record->last.bytes, " and log");
	cr_assert_eq(record_begin(&records, entry.request_id, BODY + 1, &record), -EBADE);
	end.is_partial = false;
	record_end(&records, entry.request_id, &end);
	cr_assert_eq(record_begin(&records, entry.request_id, BODY, &record), -EEXIST);
	cr_assert_eq(record->state, RECORD_ENDED);
	cr_assert_eq(records.bytes, sizeof result);
	records_done(&records);
}

Test(records, another_request_under_the_same_id_is_none)
{
	const struct dsec_ring_event last = { .code = 0 };
	struct dsec_ring_request entry;
	struct records records;
	struct record *record;

	cr_assert_eq(records_start(&records, now_ms(), records_clock_ns()), 0);
	entry = entry_at(now_ms() + 1, 7);
	cr_assert_eq(record_begin(&records, entry.request_id, BODY, &record), 0);
	cr_assert_eq(record_begin(&records, entry.request_id, BODY + 1, &record), -EBADE);
	record_end(&records, entry.request_id, &(struct record_end){ .last = &last });
	cr_assert_eq(record_begin(&records, entry.request_id, BODY + 1, &record), -EBADE);
	cr_assert_eq(record_refusal(-EBADE).code, DSEC_CONFLICT);
	cr_assert_eq(record_refusal(-EBADE).retry_after_ms, 0);
	records_done(&records);
}

/* Results that take too much go with their records, the oldest first. */
Test(records, results_have_a_limit_of_bytes)
{
	enum { BYTES = 1 << 16, MANY = 40 };
	static char result[BYTES];
	const struct dsec_ring_event last = { .bytes = BYTES };
	uint64_t epoch_ms = now_ms() - 10 * 1000;
	struct dsec_ring_request first = { 0 }, newest = { 0 };
	struct records records;
	struct record *record;

	cr_assert_eq(records_start(&records, epoch_ms, records_clock_ns() - 10000000000ull), 0);
	for (int i = 0; i < MANY; i++) {
		newest = entry_at(epoch_ms + 1000 + (uint64_t)i, 7);
		if (i == 0)
			first = newest;
		cr_assert_eq(record_begin(&records, newest.request_id, BODY, &record), 0);
		record_end(&records, newest.request_id,
			   &(struct record_end){ &last, result, 0, false });
		cr_assert_leq(records.bytes, BYTES_MAX);
	}
	cr_assert_eq(record_begin(&records, first.request_id, BODY, &record), -ESTALE);
	cr_assert_eq(record_begin(&records, newest.request_id, BODY, &record), -EEXIST);
	records_done(&records);
}

Test(records, ids_from_before_the_engine_and_from_the_future_are_refused)
{
	uint64_t epoch_ms = now_ms();
	struct dsec_ring_request old = entry_at(epoch_ms - 1, 1);
	struct dsec_ring_request future = entry_at(epoch_ms + 3600 * 1000, 1);
	struct records records;
	struct record *record;

	cr_assert_eq(records_start(&records, epoch_ms, records_clock_ns()), 0);
	cr_assert(record_is_stale(&records, old.request_id));
	cr_assert_not(record_is_stale(&records, future.request_id));
	cr_assert_eq(record_begin(&records, old.request_id, BODY, &record), -ESTALE);
	cr_assert_null(record);
	cr_assert_eq(record_refusal(-ESTALE).code, DSEC_UNKNOWN);
	cr_assert_eq(record_begin(&records, future.request_id, BODY, &record), -ERANGE);
	cr_assert_eq(record_refusal(-ERANGE).code, DSEC_INVALID);
	records_done(&records);
}

Test(records, what_was_evicted_is_unknown_and_never_new)
{
	uint64_t epoch_ms = now_ms() - 10 * 1000;
	uint64_t epoch_ns = records_clock_ns() - 10 * 1000000000ull;
	struct dsec_ring_request first = entry_at(epoch_ms + 1000, 42);
	struct dsec_ring_request older = entry_at(epoch_ms + 500, 43);
	struct records records;
	struct record *record;

	cr_assert_eq(records_start(&records, epoch_ms, epoch_ns), 0);
	cr_assert_eq(record_begin(&records, first.request_id, BODY, &record), 0);
	for (uint64_t i = 0; i < RECORDS; i++) {
		struct dsec_ring_request entry = entry_at(epoch_ms + 2000, 1000 + i);

		cr_assert_eq(record_begin(&records, entry.request_id, BODY, &record), 0);
	}
	/* Of two that began in the same millisecond one may be gone: both are unknown then. */
	cr_assert_neq(record_begin(&records, first.request_id, BODY, &record), 0);
	cr_assert_eq(record_begin(&records, older.request_id, BODY, &record), -ESTALE);
	records_done(&records);
}

/* A second ahead is room for clocks that differ; a minute would let one client spoil it for all. */
Test(records, ids_are_hardly_ahead_of_the_engines_clock)
{
	uint64_t epoch_ms = now_ms();
	struct dsec_ring_request near = entry_at(epoch_ms + 500, 1);
	struct dsec_ring_request ahead = entry_at(epoch_ms + 5000, 1);
	struct records records;
	struct record *record;

	cr_assert_eq(records_start(&records, epoch_ms, records_clock_ns()), 0);
	cr_assert_eq(record_begin(&records, near.request_id, BODY, &record), 0);
	cr_assert_eq(record_begin(&records, ahead.request_id, BODY, &record), -ERANGE);
	records_done(&records);
}

/* Ids that differ in their highest bits only, which a mere product would not carry downwards. */
Test(records, chosen_ids_do_not_share_a_bucket)
{
	uint64_t epoch_ms = now_ms() - 10 * 1000;
	struct records records;
	struct record *record;

	cr_assert_eq(records_start(&records, epoch_ms, records_clock_ns() - 10 * 1000000000ull), 0);
	for (int word = 2; word < 4; word++) {
		for (uint32_t i = 1; i <= 4096; i++) {
			struct dsec_ring_request entry = entry_at(epoch_ms + 2000, word);

			uint32_t chosen = i << 17;

			memcpy(entry.request_id + 4 * word, &chosen, sizeof chosen);
			cr_assert_eq(record_begin(&records, entry.request_id, BODY, &record), 0);
		}
	}
	for (uint32_t i = 0; i < records.at; i++) {
		uint32_t length = 0;

		for (uint32_t at = i + 1; at; at = records.all[at - 1].next)
			length++;
		cr_assert_lt(length, 24);
	}
	records_done(&records);
}
