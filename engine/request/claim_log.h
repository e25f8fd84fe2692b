/*
 * What was told before a request's last event: the events themselves, as they were, so that they
 * can be told again. Of a change its rows, of calls what they wrote and their verdicts. Kept at the
 * request's home while it runs, then behind its record's payload.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct dsec_ring_event;

struct claim_log {
	char *bytes;
	uint32_t used, size;
	uint32_t count, ends;  /* events; of them DONE */
	uint32_t output_bytes; /* of DATA, with their events */
	bool is_full;	       /* no more DATA: what is missing stands before its DONE, as GAP */
	bool is_lost;	       /* no memory, or too many: of no use any more */
};

/* In their order; a call's DATA come before its DONE. */
void claim_log_add(struct claim_log *log, const struct dsec_ring_event *event, const char *payload);
/* Before a call's DONE that is not added itself: what of its output is not kept. */
void claim_log_end(struct claim_log *log, const struct dsec_ring_event *done, const char *payload);
/* One after the other, from *at 0; false: there is none. It points into `bytes`. */
bool claim_log_next(const char *bytes, uint32_t count, uint32_t *at, struct dsec_ring_event *ret,
		    const char **ret_payload);
