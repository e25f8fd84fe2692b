/* The journal of events: numbers, overwriting and what readers are told that they missed. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/events/journal.h"

enum { BYTES = 4096 };

/* A record of `bytes` whose content follows from its number. */
static void add(struct journal *journal, uint32_t bytes)
{
	unsigned char data[BYTES];

	memset(data, (int)(journal->next_seq % 251), bytes);
	journal_add(journal, data, bytes);
}

static struct journal journal_of(uint32_t count, uint32_t bytes)
{
	struct journal journal;

	cr_assert_eq(journal_init(&journal, BYTES), 0);
	for (uint32_t i = 0; i < count; i++)
		add(&journal, bytes);
	return journal;
}

static void item_check(const struct journal_item *item)
{
	for (uint32_t i = 0; !item->lost && i < item->bytes; i++)
		cr_assert_eq((unsigned char)item->data[i], item->seq % 251);
}

Test(journal, records_come_in_order_with_their_numbers)
{
	struct journal journal = journal_of(5, 13);
	struct journal_cursor cursor = journal_oldest(&journal);
	struct journal_item item;
	uint64_t missed;

	for (uint64_t seq = 1; seq <= 5; seq++) {
		cr_assert_eq(journal_next(&journal, &cursor, &item, &missed), 1);
		cr_expect_eq(item.seq, seq);
		cr_expect_eq(item.bytes, 13);
		cr_expect_eq(missed, 0);
		item_check(&item);
	}
	cr_expect_eq(journal_next(&journal, &cursor, &item, &missed), 0);
	add(&journal, 1);
	cr_expect_eq(journal_next(&journal, &cursor, &item, &missed), 1);
	cr_expect_eq(item.seq, 6);
	journal_done(&journal);
}

Test(journal, the_end_is_behind_all_there_is)
{
	struct journal journal = journal_of(9, 100);
	struct journal_cursor cursor = journal_end(&journal);
	struct journal_item item;
	uint64_t missed;

	cr_expect_eq(journal_next(&journal, &cursor, &item, &missed), 0);
	add(&journal, 7);
	cr_expect_eq(journal_next(&journal, &cursor, &item, &missed), 1);
	cr_expect_eq(item.seq, 10);
	journal_done(&journal);
}

/* Readers of any pace, records of all sizes: read + missed is what was added. */
Test(journal, what_is_read_and_what_is_missed_is_all_of_it)
{
	struct reader {
		struct journal_cursor cursor;
		uint64_t read, missed;
	} readers[6];
	struct journal journal = journal_of(0, 0);
	struct journal_item item;
	uint64_t missed;

	for (int i = 0; i < 6; i++)
		readers[i] = (struct reader){ .cursor = journal_oldest(&journal) };
	srand(7);
	for (int turn = 0; turn < 200000; turn++) {
		struct reader *reader = &readers[rand() % 6];

		if (rand() % 3 == 0) {
			if (rand() % 50 == 0)
				journal_add_lost(&journal, 1 + (uint64_t)rand() % 9);
			else
				add(&journal,
				    (uint32_t)rand() % (journal_record_max(&journal) + 1));
			continue;
		}
		/* The last ones hardly ever look. */
		if (reader - readers > 3 && rand() % 500)
			continue;
		if (!journal_next(&journal, &reader->cursor, &item, &missed))
			continue;
		reader->missed += missed + item.lost;
		reader->read += !item.lost;
		item_check(&item);
		cr_assert_eq(reader->read + reader->missed,
			     item.seq - 1 + (item.lost ? item.lost : 1));
		cr_assert_eq(reader->cursor.seq, item.seq + (item.lost ? item.lost : 1));
	}
	cr_expect_gt(readers[5].missed, 1000);
	cr_expect_gt(readers[5].read, 0);
	journal_done(&journal);
}

Test(journal, what_got_lost_on_its_way_is_counted_in_its_place)
{
	struct journal journal = journal_of(2, 8);
	struct journal_cursor cursor = journal_oldest(&journal);
	const uint64_t seqs[] = { 1, 2, 3, 10 }, lost[] = { 0, 0, 7, 0 };
	struct journal_item item;
	uint64_t missed;

	journal_add_lost(&journal, 7);
	journal_add_lost(&journal, 0);
	add(&journal, 8);
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(journal_next(&journal, &cursor, &item, &missed), 1);
		cr_expect_eq(item.seq, seqs[i]);
		cr_expect_eq(item.lost, lost[i]);
	}
	cr_expect_eq(journal_next(&journal, &cursor, &item, &missed), 0);
	journal_done(&journal);
}

Test(journal, how_far_a_reader_is_behind_is_known)
{
	struct journal journal = journal_of(0, 0);
	struct journal_cursor cursor = journal_end(&journal);
	uint32_t lag = 0;

	while (lag <= 1000) {
		uint32_t before = lag;

		add(&journal, 40);
		lag = journal_lag_permille(&journal, &cursor);
		cr_assert_geq(lag, before);
	}
	/* It was told before anything was overwritten. */
	cr_expect_geq(cursor.seq, 1);
	cursor = journal_end(&journal);
	cr_expect_eq(journal_lag_permille(&journal, &cursor), 0);
	journal_done(&journal);
}
