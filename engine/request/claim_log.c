/*
 * Events kept to be told again. Called by claim.c. Must hold: what is kept is bounded, verdicts by
 * how many inputs a request has and what calls wrote by CLAIM_OUTPUT_MAX; of a stream a beginning
 * without holes is kept, and a GAP says how much is missing behind it.
 */
#include "engine/request/claim_log.h"

#include <stdlib.h>
#include <string.h>

#include "dsec/ring.h"

enum { CLAIM_OUTPUT_MAX = 128 << 10, SIZE_MIN = 512 };

static void log_append(struct claim_log *log, const struct dsec_ring_event *event,
		       const char *payload)
{
	uint32_t need = (uint32_t)sizeof *event + event->bytes, size = log->size;
	char *bytes;

	while (size - log->used < need)
		size = size ? 2 * size : SIZE_MIN;
	bytes = size > log->size ? realloc(log->bytes, size) : log->bytes;
	if (!bytes) {
		log->is_lost = true;
		return;
	}
	log->bytes = bytes;
	log->size = size;
	memcpy(bytes + log->used, event, sizeof *event);
	if (event->bytes)
		memcpy(bytes + log->used + sizeof *event, payload, event->bytes);
	log->used += need;
	log->count++;
}

bool claim_log_next(const char *bytes, uint32_t count, uint32_t *at, struct dsec_ring_event *ret,
		    const char **ret_payload)
{
	if (count - *at < sizeof *ret)
		return false;
	memcpy(ret, bytes + *at, sizeof *ret);
	*ret_payload = bytes + *at + sizeof *ret;
	*at += (uint32_t)sizeof *ret + ret->bytes;
	return true;
}

/* Of one call's stream. */
static uint64_t output_kept(const struct claim_log *log, uint16_t index, uint16_t stream)
{
	struct dsec_ring_event event;
	const char *payload;
	uint64_t kept = 0;

	for (uint32_t at = 0; claim_log_next(log->bytes, log->used, &at, &event, &payload);)
		if (event.kind == DSEC_EV_DATA && event.index == index && event.stream == stream)
			kept += event.bytes;
	return kept;
}

static void gap_add(struct claim_log *log, const struct dsec_ring_event *done, uint16_t stream,
		    uint64_t written)
{
	struct dsec_ring_event gap = { .kind = DSEC_EV_GAP,
				       .subject = done->subject,
				       .index = done->index,
				       .stream = stream,
				       .bytes = sizeof written,
				       .offset = output_kept(log, done->index, stream) };
	const uint64_t missing = written - gap.offset;

	if (missing)
		log_append(log, &gap, (const char *)&missing);
}

void claim_log_end(struct claim_log *log, const struct dsec_ring_event *done, const char *payload)
{
	struct dsec_wire_called called;

	if (!log->is_full || done->bytes < sizeof called)
		return; /* all of it is there, or there is none */
	memcpy(&called, payload, sizeof called);
	if (called.size != sizeof called)
		return; /* a status alone */
	gap_add(log, done, 1, called.stdout_bytes);
	gap_add(log, done, 2, called.stderr_bytes);
}

void claim_log_add(struct claim_log *log, const struct dsec_ring_event *event, const char *payload)
{
	if (log->is_lost)
		return;
	if (event->kind == DSEC_EV_DATA) {
		log->output_bytes += (uint32_t)sizeof *event + event->bytes;
		log->is_full |= log->output_bytes > CLAIM_OUTPUT_MAX;
		if (log->is_full)
			return;
	} else if (event->kind == DSEC_EV_DONE) {
		claim_log_end(log, event, payload);
		log->ends++;
	}
	log_append(log, event, payload);
}
