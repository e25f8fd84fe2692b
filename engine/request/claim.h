/*
 * At most once: a request that changes something claims its id before it begins, and what came of
 * it is recorded under that. The record lies with the shard that the id's last byte names, so that
 * the same id meets it whatever it is used for; see records.h.
 *
 *	claim_begin()	home: asks that shard, or leaves it to the request's only part if that runs
 *			there
 *	claim_of_part()	that part, before its op runs
 *	claim_end()	home: the request's last event is recorded
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dsec/ring.h"
#include "engine/base/io.h"
#include "engine/request/status.h"

struct part;
struct request;
struct shard;
struct tenancy;

enum claim_state {
	CLAIM_NONE,  /* it may run any number of times */
	CLAIM_ASKED, /* nothing has begun */
	CLAIM_PART,  /* the part asks */
	CLAIM_NEW,   /* it is the first */
	CLAIM_AGAIN, /* it ended, or an exec is under way: see below */
	CLAIM_REFUSED,
};

/* Of a request. */
struct claim {
	enum claim_state state;
	struct mail mail;
	uint64_t body; /* what it asks for, in short */
	struct status status;
	/* of the first, when this is another */
	bool is_running;
	struct dsec_ring_event last;
	char *payload;
	uint32_t row_count; /* ids behind the event's payload */
	/* while it is the first: sandboxes that were changed */
	struct dsec_wire_id *rows;
	uint32_t rows_noted;
	/* INPUT and CREDIT that came while it was asked, in their order */
	struct request *waiting, **waiting_last, *next_waiting;
};

/* Which shard has the record of an id; every id has one. */
uint32_t claim_shard(const uint8_t id[16], uint32_t shards);
/* True: the claim goes on with the request, now or later. */
bool claim_begin(struct request *request);
/* The part may run. Else it was ended. */
bool claim_of_part(struct part *part);
/* The first one's last event ends the part. */
void claim_answer(struct part *part);
/* A request that names one whose claim is asked waits behind it. True: it does. */
bool claim_holds(struct request *request);
/* A row of a change that is sent. */
void claim_note_row(struct request *request, struct dsec_wire_id id);
void claim_end(struct request *request, const struct dsec_ring_event *last, const char *payload);
void claim_free(struct claim *claim);
/*
 * From any shard: how it ended, for ops that go on after their requests. REFUSED: nothing of it
 * happened, and the id may be used again.
 */
void claim_record(struct tenancy *tenancy, const uint8_t id[16], const struct dsec_ring_event *last,
		  const char *payload, uint32_t bytes);
