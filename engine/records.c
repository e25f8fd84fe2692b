/*
 * At most once, by request id. Called by the create and exec ops on the shard that does the work. A
 * table of fixed size: begin, find and evict take constant time and allocate nothing.
 */
#include "engine/records.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static uint64_t id_ms(const uint8_t id[16])
{
	uint64_t ms = 0;

	for (int i = 0; i < 6; i++)
		ms = ms << 8 | id[i];
	return ms;
}

/* Each half of the id times the other, both moved by what only this table knows. */
static uint32_t *bucket_of(const struct records *records, const uint8_t id[16])
{
	const uint32_t *keys = records->keys;
	uint32_t words[4];
	uint64_t sum;

	memcpy(words, id, sizeof words);
	sum = (uint64_t)(words[0] + keys[0]) * (words[1] + keys[1]) +
	      (uint64_t)(words[2] + keys[2]) * (words[3] + keys[3]);
	return &records->buckets[(sum ^ sum >> 32) * 0x9e3779b97f4a7c15ull >> records->shift];
}

uint64_t records_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t records_clock_ms(uint64_t epoch_ms, uint64_t epoch_ns)
{
	return epoch_ms + (records_clock_ns() - epoch_ns) / 1000000;
}

int records_init(struct records *records, uint32_t count, uint64_t epoch_ms, uint64_t epoch_ns)
{
	*records = (struct records){ .count = count,
				     .shift = 63,
				     .floor_ms = epoch_ms,
				     .epoch_ms = epoch_ms,
				     .epoch_ns = epoch_ns };
	if (getrandom(records->keys, sizeof records->keys, 0) != sizeof records->keys)
		return -EIO;
	while (1ull << (64 - records->shift) < count)
		records->shift--;
	records->all = calloc(count, sizeof *records->all);
	records->buckets = calloc(1ull << (64 - records->shift), sizeof *records->buckets);
	if (records->all && records->buckets)
		return 0;
	records_done(records);
	return -ENOMEM;
}

void records_done(struct records *records)
{
	free(records->all);
	free(records->buckets);
	*records = (struct records){ 0 };
}

static struct record *record_find(struct records *records, const uint8_t id[16])
{
	for (uint32_t at = *bucket_of(records, id); at; at = records->all[at - 1].next) {
		struct record *record = &records->all[at - 1];

		if (!memcmp(record->id, id, sizeof record->id))
			return record;
	}
	return NULL;
}

static void record_unlink(struct records *records, const struct record *record)
{
	uint32_t *at = bucket_of(records, record->id);

	while (*at != record - records->all + 1)
		at = &records->all[*at - 1].next;
	*at = record->next;
}

static void record_evict(struct records *records, struct record *record)
{
	record_unlink(records, record);
	if (record->at_ms > records->floor_ms)
		records->floor_ms = record->at_ms;
}

bool record_is_stale(const struct records *records, const uint8_t id[16])
{
	return !wire_is_zero(id, 16) && id_ms(id) <= records->floor_ms;
}

int record_begin(struct records *records, const struct dsec_ring_request *entry,
		 struct record **ret)
{
	uint64_t at_ms = id_ms(entry->request_id);
	struct record *record;
	uint32_t *bucket;

	*ret = NULL;
	if (wire_is_zero(entry->request_id, sizeof entry->request_id))
		return 0;
	*ret = record_find(records, entry->request_id);
	if (*ret)
		return -EEXIST;
	if (at_ms > records_clock_ms(records->epoch_ms, records->epoch_ns) + RECORD_AHEAD_MS_MAX)
		return -ERANGE;
	if (at_ms <= records->floor_ms)
		return -ESTALE;
	record = &records->all[records->at];
	records->at = (records->at + 1) % records->count;
	if (record->state != RECORD_FREE)
		record_evict(records, record);
	*record = (struct record){
		.op = entry->op, .state = RECORD_RUNNING, .at_ms = at_ms, .subject = entry->subject
	};
	memcpy(record->id, entry->request_id, sizeof record->id);
	bucket = bucket_of(records, record->id);
	record->next = *bucket;
	*bucket = (uint32_t)(record - records->all) + 1;
	*ret = record;
	return 0;
}

void record_end(struct records *records, const uint8_t id[16], const struct status *status,
		const struct dsec_wire_result *result)
{
	struct record *record = record_find(records, id);

	if (!record)
		return;
	record->state = RECORD_ENDED;
	record->status = *status;
	if (result)
		record->result = *result;
}

void record_forget(struct records *records, const uint8_t id[16])
{
	struct record *record = record_find(records, id);

	if (!record)
		return;
	record_unlink(records, record);
	record->state = RECORD_FREE;
}

struct status record_refusal(int error, const struct record *record)
{
	struct status s = { .code = DSEC_UNKNOWN,
			    .blame = DSEC_BLAME_PLATFORM,
			    .table = "request",
			    .step = "request_id",
			    .detail = "older than what is remembered: it may have run" };

	if (error == -ERANGE) {
		s.code = DSEC_INVALID;
		s.blame = DSEC_BLAME_CALLER;
		s.detail = "from the future of the engine's clock, see HELLO";
	} else if (record && record->state == RECORD_RUNNING) {
		s.code = DSEC_CONFLICT;
		s.blame = DSEC_BLAME_CALLER;
		s.retry_after_ms = 100;
		s.detail = "a request with this id is still under way";
	} else if (record) {
		s.code = DSEC_CONFLICT;
		s.blame = DSEC_BLAME_CALLER;
		s.detail = "the id was used for another request";
	}
	return s;
}
