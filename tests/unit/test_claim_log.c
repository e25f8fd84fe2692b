/*
 * Tests of engine/request/claim_log.c: what was told is kept as it was, within bounds, and of
 * output that is not kept the exact amount is.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "dsec/ring.h"
#include "engine/request/claim_log.h"

enum { KEPT_MAX = 128 << 10, PIECE_BYTES = 16 << 10 };

static void data_add(struct claim_log *log, uint16_t index, uint16_t stream, uint32_t bytes)
{
	static const char data[PIECE_BYTES];
	const struct dsec_ring_event event = {
		.kind = DSEC_EV_DATA, .index = index, .stream = stream, .bytes = bytes
	};

	claim_log_add(log, &event, data);
}

static struct dsec_wire_called called_of(uint64_t out, uint64_t err)
{
	return (struct dsec_wire_called){ .size = sizeof(struct dsec_wire_called),
					  .stdout_bytes = out,
					  .stderr_bytes = err };
}

static void done_add(struct claim_log *log, uint16_t index, uint64_t out, uint64_t err)
{
	const struct dsec_wire_called called = called_of(out, err);
	const struct dsec_ring_event event = { .kind = DSEC_EV_DONE,
					       .index = index,
					       .bytes = sizeof called };

	claim_log_add(log, &event, (const char *)&called);
}

/* What a call's stream has in the log: bytes kept and missing. */
struct seen {
	uint64_t kept, missing;
	uint32_t ends;
};

static struct seen seen_of(const struct claim_log *log, uint16_t index, uint16_t stream)
{
	struct dsec_ring_event event;
	struct seen seen = { 0 };
	const char *payload;
	uint64_t missing;

	for (uint32_t at = 0; claim_log_next(log->bytes, log->used, &at, &event, &payload);) {
		if (event.index != index)
			continue;
		seen.ends += event.kind == DSEC_EV_DONE;
		if (event.stream != stream)
			continue;
		cr_assert_eq(seen.ends, 0, "what a call wrote comes before its end");
		if (event.kind == DSEC_EV_DATA)
			seen.kept += event.bytes;
		if (event.kind != DSEC_EV_GAP)
			continue;
		cr_assert_eq(event.offset, seen.kept);
		memcpy(&missing, payload, sizeof missing);
		seen.missing += missing;
	}
	return seen;
}

Test(claim_log, what_was_told_is_kept_in_its_order)
{
	struct claim_log log = { 0 };
	struct dsec_ring_event event;
	const char *payload;
	uint32_t at = 0, count = 0;

	for (uint16_t i = 0; i < 50; i++) {
		data_add(&log, i, 1, i);
		done_add(&log, i, i, 0);
	}
	while (claim_log_next(log.bytes, log.used, &at, &event, &payload)) {
		cr_assert_eq(event.index, count / 2);
		cr_assert_eq(event.kind, count % 2 ? DSEC_EV_DONE : DSEC_EV_DATA);
		count++;
	}
	cr_expect_eq(count, 100);
	cr_expect_eq(log.count, 100);
	cr_expect_eq(log.ends, 50);
	cr_expect_not(log.is_lost);
	free(log.bytes);
}

Test(claim_log, all_ends_are_kept_and_of_output_a_beginning_with_the_rest_counted)
{
	enum { CALLS = 1024 };
	struct claim_log log = { 0 };
	uint64_t kept = 0;

	for (uint16_t i = 0; i < CALLS; i++) {
		data_add(&log, i, 1, PIECE_BYTES);
		data_add(&log, i, 1, 100);
		data_add(&log, i, 2, 7);
		done_add(&log, i, PIECE_BYTES + 100, 7);
	}
	for (uint16_t i = 0; i < CALLS; i++) {
		struct seen out = seen_of(&log, i, 1), err = seen_of(&log, i, 2);

		cr_assert_eq(out.ends, 1);
		cr_assert_eq(out.kept + out.missing, PIECE_BYTES + 100);
		cr_assert_eq(err.kept + err.missing, 7);
		kept += out.kept + err.kept;
	}
	cr_expect_leq(kept, KEPT_MAX);
	cr_expect_gt(kept, KEPT_MAX / 2);
	cr_expect_leq(log.used, KEPT_MAX + CALLS * 4 * sizeof(struct dsec_ring_event) +
					CALLS * sizeof(struct dsec_wire_called));
	free(log.bytes);
}

/* One that is not added, because it is the last: what is missing is counted all the same. */
Test(claim_log, a_single_calls_end_has_its_gap_and_a_status_alone_has_none)
{
	struct dsec_wire_called called = called_of(20 * PIECE_BYTES, 5);
	const struct dsec_wire_status refused = { .code = DSEC_FAILED };
	struct dsec_ring_event last = { .kind = DSEC_EV_DONE, .bytes = sizeof called };
	struct claim_log log = { 0 };

	for (int i = 0; i < 20; i++)
		data_add(&log, 0, 1, PIECE_BYTES);
	claim_log_end(&log, &last, (const char *)&called);
	cr_expect_eq(seen_of(&log, 0, 1).kept + seen_of(&log, 0, 1).missing, 20 * PIECE_BYTES);
	cr_expect_eq(seen_of(&log, 0, 2).missing, 5);
	last.bytes = sizeof refused;
	last.index = 1;
	claim_log_end(&log, &last, (const char *)&refused);
	cr_expect_eq(seen_of(&log, 1, 1).missing, 0);
	free(log.bytes);
}
