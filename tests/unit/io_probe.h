/* An op that remembers how it ended, for tests of the loop. */
#pragma once

#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/base/io.h"

#define MS 1000000ull

struct probe {
	struct io_op op;
	unsigned calls;
	uint64_t until_ns; /* for a callback that works */
	int fd;		   /* for one that writes */
	int res;
	bool more;
};

static inline void probe_done(struct io_op *op, int res)
{
	struct probe *probe = container_of(op, struct probe, op);

	probe->calls++;
	probe->res = res;
	probe->more = op->flags & IO_MORE;
}

static inline struct io *io_new(uint32_t entries)
{
	struct io *io = NULL;
	int r = io_open(&(struct io_options){ .entries = entries, .owner = &r }, &io);

	cr_assert_eq(r, 0, "io_open: %s", strerror(-r));
	return io;
}

/* Turn until `calls` were seen; a second is far too long. */
static inline void turn_until(struct io *io, const struct probe *probe, unsigned calls)
{
	uint64_t end_ns = io_clock_ns(io) + 1000 * MS;

	while (probe->calls < calls && io_clock_ns(io) < end_ns)
		cr_assert_geq(io_turn(io, end_ns), 0);
	cr_assert_eq(probe->calls, calls);
}
