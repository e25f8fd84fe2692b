/*
 * The journal of events. Called by subscribe.c on the one shard that keeps it. Must hold: numbers
 * have no gap but those that are told, and adding takes the time of a copy, however many read.
 *
 * A record is a head and its bytes, and never wraps: what is left at the end of the memory is
 * passed over, by a head without a number where one fits.
 */
#include "engine/events/journal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct head {
	uint32_t bytes; /* of the data */
	uint32_t reserved;
	uint64_t seq; /* 0: nothing, up to the end of the memory */
	uint64_t lost;
};

static uint64_t record_bytes(uint32_t bytes)
{
	return (sizeof(struct head) + bytes + 7) & ~7ull;
}

int journal_init(struct journal *journal, uint64_t bytes)
{
	*journal = (struct journal){ .size = bytes & ~7ull, .oldest_seq = 1, .next_seq = 1 };
	journal->bytes = malloc(journal->size);
	return journal->bytes ? 0 : -ENOMEM;
}

void journal_done(struct journal *journal)
{
	free(journal->bytes);
	*journal = (struct journal){ 0 };
}

uint32_t journal_record_max(const struct journal *journal)
{
	uint64_t most = journal->size / 4;

	return most < UINT32_MAX ? (uint32_t)(most - sizeof(struct head)) : UINT32_MAX / 2;
}

/* The head at a position, or where the next lap begins: *position moves on to it. */
static struct head head_at(const struct journal *journal, uint64_t *position)
{
	struct head head = { 0 };
	uint64_t left = journal->size - *position % journal->size;

	if (left >= sizeof head)
		memcpy(&head, journal->bytes + *position % journal->size, sizeof head);
	if (head.seq)
		return head;
	*position += left;
	memcpy(&head, journal->bytes, sizeof head);
	return head;
}

static void oldest_drop(struct journal *journal)
{
	struct head head = head_at(journal, &journal->oldest);

	journal->oldest += record_bytes(head.bytes);
	journal->oldest_seq = head.seq + (head.lost ? head.lost : 1);
}

/* Room for so many bytes in one piece, at journal->end. */
static void room_make(struct journal *journal, uint64_t bytes)
{
	const struct head nothing = { 0 };
	uint64_t left = journal->size - journal->end % journal->size;
	uint64_t skipped = left < bytes ? left : 0;

	while (journal->oldest < journal->end &&
	       journal->end + skipped + bytes - journal->oldest > journal->size)
		oldest_drop(journal);
	if (skipped >= sizeof nothing)
		memcpy(journal->bytes + journal->end % journal->size, &nothing, sizeof nothing);
	journal->end += skipped;
}

static void record_add(struct journal *journal, struct head head, const void *data)
{
	uint64_t bytes = record_bytes(head.bytes);
	char *at;

	assert(head.bytes <= journal_record_max(journal));
	room_make(journal, bytes);
	at = journal->bytes + journal->end % journal->size;
	memcpy(at, &head, sizeof head);
	if (head.bytes)
		memcpy(at + sizeof head, data, head.bytes);
	journal->end += bytes;
	journal->next_seq += head.lost ? head.lost : 1;
}

void journal_add(struct journal *journal, const void *data, uint32_t bytes)
{
	record_add(journal, (struct head){ .bytes = bytes, .seq = journal->next_seq }, data);
}

void journal_add_lost(struct journal *journal, uint64_t count)
{
	if (count)
		record_add(journal, (struct head){ .seq = journal->next_seq, .lost = count }, NULL);
}

struct journal_cursor journal_oldest(const struct journal *journal)
{
	return (struct journal_cursor){ journal->oldest, journal->oldest_seq };
}

struct journal_cursor journal_end(const struct journal *journal)
{
	return (struct journal_cursor){ journal->end, journal->next_seq };
}

int journal_next(const struct journal *journal, struct journal_cursor *cursor,
		 struct journal_item *ret, uint64_t *ret_missed)
{
	struct head head;

	*ret_missed = 0;
	if (cursor->seq <= journal->oldest_seq) {
		*ret_missed = journal->oldest_seq - cursor->seq;
		*cursor = journal_oldest(journal);
	}
	if (cursor->seq == journal->next_seq)
		return 0;
	head = head_at(journal, &cursor->at);
	*ret = (struct journal_item){
		.data = journal->bytes + cursor->at % journal->size + sizeof head,
		.bytes = head.bytes,
		.seq = head.seq,
		.lost = head.lost,
	};
	cursor->at += record_bytes(head.bytes);
	cursor->seq = head.seq + (head.lost ? head.lost : 1);
	return 1;
}

uint32_t journal_lag_permille(const struct journal *journal, const struct journal_cursor *cursor)
{
	uint64_t behind = journal->end > cursor->at ? journal->end - cursor->at : 0;

	if (cursor->seq < journal->oldest_seq)
		return 1001;
	return (uint32_t)(behind * 1000 / journal->size);
}
