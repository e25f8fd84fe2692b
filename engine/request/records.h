/*
 * Requests that were accepted, by their ids, so that none runs twice. One table per tenant and
 * shard, bounded: the oldest record goes first, and an id older than the newest one that went is
 * refused as unknown, because nobody can say any more whether it ran.
 *
 * A request id is a UUIDv7: its first 48 bits are milliseconds of the engine's clock. Zero: the
 * caller wants no such care.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dsec/ring.h"
#include "engine/request/status.h"

/*
 * An id from the future that goes makes all ids up to it unknown: so far ahead, and no further, can
 * a client that fills the table spoil what others of its tenant ask.
 */
enum { RECORD_AHEAD_MS_MAX = 1000 };

/* PARTIAL: it ended before all of it was done, and the same again does the rest. */
enum record_state { RECORD_FREE, RECORD_RUNNING, RECORD_PARTIAL, RECORD_ENDED };

struct record {
	uint8_t id[16];
	uint32_t next; /* of the bucket: place + 1 */
	uint16_t state;
	uint64_t at_ms; /* of the id */
	uint64_t body;	/* what it asked for, in short */
	struct dsec_ring_event last;
	uint32_t log_bytes; /* behind the event's own payload: see claim_log.h */
	char *payload;
};

struct records {
	struct record *all;
	uint32_t *buckets;	   /* place + 1 */
	uint32_t count;		   /* how many fit: records_max */
	uint32_t shift;		   /* from a hash to a bucket */
	uint32_t at;		   /* where the next one goes, over the oldest */
	uint32_t oldest;	   /* the next to go, where bytes run out */
	uint64_t bytes, bytes_max; /* of payloads */
	uint64_t floor_ms;	   /* ids up to this one may have run */
	uint64_t epoch_ms, epoch_ns;
	uint32_t keys[4]; /* by chance: nobody can choose ids that share a bucket */
};

/* CLOCK_MONOTONIC. The engine's clock in milliseconds goes on from its epoch with it. */
uint64_t records_clock_ns(void);
uint64_t records_clock_ms(uint64_t epoch_ms, uint64_t epoch_ns);
/*
 * Nothing that an engine before this one ran is known: `epoch_ms` is when this one started, and
 * `epoch_ns` the same moment in records_clock_ns().
 */
struct records_options {
	uint32_t count;
	uint64_t bytes_max, epoch_ms, epoch_ns;
};

int records_init(struct records *records, const struct records_options *options);
void records_done(struct records *records);
/*
 * A new request: 0 and a record. -EEXIST and the record of an earlier one with the same id that
 * asked for the same; while that is under way, too. -EBADE: for something else. -ESTALE: older than
 * what is known. -ERANGE: from the future.
 */
int record_begin(struct records *records, const uint8_t id[16], uint64_t body, struct record **ret);
/* An id from before what is remembered; never the zero id. */
bool record_is_stale(const struct records *records, const uint8_t id[16]);
/* How a request ended. The log lies behind the event's payload. */
struct record_end {
	const struct dsec_ring_event *last;
	const char *payload;
	uint32_t log_bytes;
	bool is_partial;
};

/* Nothing happens when the record went meanwhile. */
void record_end(struct records *records, const uint8_t id[16], const struct record_end *end);
/* Nothing of it happened: the same id may be asked again. */
void record_forget(struct records *records, const uint8_t id[16]);
/* What to say about a request that has a record already (and is under way), or none any more. */
struct status record_refusal(int error);
