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
#include "engine/request/claim_log.h"
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
	uint32_t log_bytes; /* behind the event's payload */
	/* while it is the first: what was told, of ops that are to tell it again */
	struct claim_log log;
	uint8_t *called; /* of calls that go on: bits of inputs that have their verdict */
	/* INPUT and CREDIT that came while it was asked, in their order */
	struct request *waiting, **waiting_last, *next_waiting;
};

/* Which shard has the record of an id; every id has one. */
uint32_t claim_shard(const uint8_t id[16], uint32_t shards);
/* True: the claim goes on with the request, now or later. */
bool claim_begin(struct request *request);
/* The part may run. Else it was ended. */
bool claim_of_part(struct part *part);
/* What the first one told is told again, and its last event ends the part. */
void claim_answer(struct part *part);
/* A request that names one whose claim is asked waits behind it. True: it does. */
bool claim_holds(struct request *request);
/* An event that is sent before the last. */
void claim_note(struct request *request, const struct dsec_ring_event *event, const char *payload);
/* It is noted, whoever hears of it. */
bool claim_notes(const struct request *request);
/* Of calls that go on: this input has its verdict already. */
bool claim_has_called(const struct request *request, uint32_t index);
void claim_end(struct request *request, const struct dsec_ring_event *last, const char *payload);
void claim_free(struct claim *claim);
/*
 * From any shard: how it ended, for ops that go on after their requests; the payload has the
 * event's bytes. REFUSED: nothing of it happened, and the id may be used again.
 */
void claim_record(struct tenancy *tenancy, const uint8_t id[16], const struct dsec_ring_event *last,
		  const char *payload);
