/*
 * What inlets and outlets say of their parts, remembered: stands for engine/request/part.c in
 * tests of them. A test is a process of its own.
 */
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/request/request.h"
#include "tests/unit/io_probe.h"

enum { HEARD_BYTES_MAX = 4 << 20 };

/* An INPUT as its inlet sees it. */
struct asked {
	struct request request;
	struct part part;
	bool over;
	struct status status;
};

/* All DATA of one part. */
struct heard {
	struct part part;
	char *bytes;
	uint64_t count, events;
};

static inline struct asked *ask_input(uint64_t offset, const void *bytes, uint32_t count)
{
	struct asked *asked = calloc(1, sizeof *asked);
	char *payload = count ? malloc(count) : NULL;

	cr_assert(asked);
	if (count)
		memcpy(payload, bytes, count);
	asked->request.entry.offset = offset;
	asked->request.payload = (struct wire){ payload, count };
	asked->part.request = &asked->request;
	return asked;
}

static inline void asked_free(struct asked *asked)
{
	cr_assert(asked->over);
	free((char *)asked->request.payload.payload);
	free(asked);
}

void part_end(struct part *part, const struct status *status, const struct emission *final)
{
	struct asked *asked = container_of(part, struct asked, part);

	(void) final;
	cr_assert_not(asked->over, "ended twice");
	asked->over = true;
	if (status)
		asked->status = *status;
}

void part_emit(struct part *part, const struct emission *e)
{
	struct heard *heard = container_of(part, struct heard, part);

	cr_assert_eq(e->kind, DSEC_EV_DATA);
	cr_assert_eq(e->offset, heard->count);
	cr_assert_leq(heard->count + e->bytes, HEARD_BYTES_MAX);
	if (!heard->bytes)
		heard->bytes = malloc(HEARD_BYTES_MAX);
	memcpy(heard->bytes + heard->count, e->body, e->bytes);
	heard->count += e->bytes;
	heard->events++;
}

/* Turns until nothing more happens for a while: threads of the ring do what a pipe may hold up. */
static inline void turn_to_rest(struct io *io)
{
	int busy;

	do {
		busy = io_turn(io, io_clock_ns(io) + 100 * MS);
		cr_assert_geq(busy, 0);
	} while (busy);
}
