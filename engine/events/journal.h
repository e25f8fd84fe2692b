/*
 * What happened, in order: records of any length in memory of a fixed size, numbered from 1, the
 * oldest overwritten by the newest. Readers have a cursor each, which costs the journal nothing.
 */
#pragma once

#include <stdint.h>

struct journal {
	char *bytes;
	uint64_t size;	      /* a multiple of 8 */
	uint64_t oldest, end; /* positions, which only grow */
	uint64_t oldest_seq;  /* of the record there; next_seq where there is none */
	uint64_t next_seq;
};

/* Of the record that comes next. */
struct journal_cursor {
	uint64_t at, seq;
};

struct journal_item {
	const char *data; /* until the next record is added */
	uint32_t bytes;
	uint64_t seq;
	uint64_t lost; /* not 0: no record, but so many from seq on that never got here */
};

/* -ENOMEM. */
int journal_init(struct journal *journal, uint64_t bytes);
void journal_done(struct journal *journal);
/* The longest record that may be added. */
uint32_t journal_record_max(const struct journal *journal);
void journal_add(struct journal *journal, const void *data, uint32_t bytes);
/* So many got lost on their way here: they are counted all the same. */
void journal_add_lost(struct journal *journal, uint64_t count);

struct journal_cursor journal_oldest(const struct journal *journal);
struct journal_cursor journal_end(const struct journal *journal);
/*
 * The next record, and the cursor behind it. 0: there is none yet. *ret_missed: how many were
 * overwritten before that, so that the cursor had to move on.
 */
int journal_next(const struct journal *journal, struct journal_cursor *cursor,
		 struct journal_item *ret, uint64_t *ret_missed);
/* How much of the journal is between the cursor and the end, in per mille; more than 1000: lost. */
uint32_t journal_lag_permille(const struct journal *journal, const struct journal_cursor *cursor);
