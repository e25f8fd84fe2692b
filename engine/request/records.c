/*
 * At most once, by request id. Called by claim.c on the shard that an id belongs to. A
 * table of fixed size: begin, find and evict take constant time.
 */
#include "engine/request/records.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "engine/request/wire.h"

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

int records_init(struct records *records, const struct records_options *o)
{
	*records = (struct records){ .count = o->count,
				     .shift = 63,
				     .bytes_max = o->bytes_max,
				     .floor_ms = o->epoch_ms,
				     .epoch_ms = o->epoch_ms,
				     .epoch_ns = o->epoch_ns };
	if (getrandom(records->keys, sizeof records->keys, 0) != sizeof records->keys)
		return -EIO;
	while (1ull << (64 - records->shift) < o->count)
		records->shift--;
	records->all = calloc(o->count, sizeof *records->all);
	records->buckets = calloc(1ull << (64 - records->shift), sizeof *records->buckets);
	if (records->all && records->buckets)
		return 0;
	records_done(records);
	return -ENOMEM;
}

void records_done(struct records *records)
{
	for (uint32_t i = 0; records->bytes && i < records->count; i++)
		free(records->all[i].payload);
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

static void payload_drop(struct records *records, struct record *record)
{
	if (record->payload)
		records->bytes -= record->last.bytes + record->log_bytes;
	free(record->payload);
	record->payload = NULL;
}

static void record_evict(struct records *records, struct record *record)
{
	record_unlink(records, record);
	payload_drop(records, record);
	record->state = RECORD_FREE;
	if (record->at_ms > records->floor_ms)
		records->floor_ms = record->at_ms;
}

/* Where payloads take too much the oldest records go, too. */
static void bytes_evict(struct records *records)
{
	for (uint32_t i = 0; records->bytes > records->bytes_max && i < records->count; i++) {
		struct record *record = &records->all[records->oldest];

		records->oldest = (records->oldest + 1) % records->count;
		if (record->state != RECORD_FREE)
			record_evict(records, record);
	}
}

bool record_is_stale(const struct records *records, const uint8_t id[16])
{
	return !wire_is_zero(id, 16) && id_ms(id) <= records->floor_ms;
}

int record_begin(struct records *records, const uint8_t id[16], uint64_t body, struct record **ret)
{
	uint64_t at_ms = id_ms(id);
	struct record *record;
	uint32_t *bucket;

	*ret = record_find(records, id);
	if (*ret)
		return (*ret)->body == body ? -EEXIST : -EBADE;
	if (at_ms > records_clock_ms(records->epoch_ms, records->epoch_ns) + RECORD_AHEAD_MS_MAX)
		return -ERANGE;
	if (at_ms <= records->floor_ms)
		return -ESTALE;
	record = &records->all[records->at];
	records->at = (records->at + 1) % records->count;
	if (record->state != RECORD_FREE) {
		record_evict(records, record);
		records->oldest = records->at;
	}
	*record = (struct record){ .state = RECORD_RUNNING, .at_ms = at_ms, .body = body };
	memcpy(record->id, id, sizeof record->id);
	bucket = bucket_of(records, record->id);
	record->next = *bucket;
	*bucket = (uint32_t)(record - records->all) + 1;
	*ret = record;
	return 0;
}

void record_end(struct records *records, const uint8_t id[16], const struct record_end *end)
{
	struct record *record = record_find(records, id);
	size_t bytes = end->last->bytes + end->log_bytes;

	if (!record)
		return;
	payload_drop(records, record);
	record->payload = bytes ? malloc(bytes) : NULL;
	if (bytes && !record->payload) {
		record_evict(records, record); /* as good as forgotten: unknown from now on */
		return;
	}
	if (bytes)
		memcpy(record->payload, end->payload, bytes);
	record->state = end->is_partial ? RECORD_PARTIAL : RECORD_ENDED;
	record->last = *end->last;
	record->log_bytes = end->log_bytes;
	records->bytes += bytes;
	bytes_evict(records);
}

void record_forget(struct records *records, const uint8_t id[16])
{
	struct record *record = record_find(records, id);

	if (!record)
		return;
	record_unlink(records, record);
	payload_drop(records, record);
	record->state = RECORD_FREE;
}

struct status record_refusal(int error)
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
	} else if (error == -EEXIST) {
		s.code = DSEC_CONFLICT;
		s.blame = DSEC_BLAME_CALLER;
		s.retry_after_ms = 100;
		s.detail = "a request with this id is still under way";
	} else if (error == -EBADE) {
		s.code = DSEC_CONFLICT;
		s.blame = DSEC_BLAME_CALLER;
		s.detail = "the id was used for another request";
	}
	return s;
}
