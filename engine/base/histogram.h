/*
 * Counts of values 0 .. about 69 minutes of microseconds, to two significant figures:
 * HdrHistogram's log-linear layout (256 linear cells, then 128 per power of two). Fixed size,
 * never allocates.
 */
#pragma once

#include <stdint.h>

enum {
	HISTOGRAM_HALF_BITS = 7,
	HISTOGRAM_HALF = 1 << HISTOGRAM_HALF_BITS, /* cells per power of two */
	HISTOGRAM_VALUE_BITS = 32,
	HISTOGRAM_CELLS = (HISTOGRAM_VALUE_BITS - HISTOGRAM_HALF_BITS + 1) * HISTOGRAM_HALF,
};

struct histogram {
	uint64_t count, sum, max;
	uint64_t cells[HISTOGRAM_CELLS];
};

/* A value over the range counts as the largest; count, sum and max stay exact. */
void histogram_record(struct histogram *h, uint64_t value_us);
void histogram_merge(struct histogram *into, const struct histogram *from);
/*
 * The value that `quantile` (0 .. 1) of all are at or below, at most one cell (< 0.8 %) too large
 * and never over max. 0 when empty.
 */
uint64_t histogram_quantile(const struct histogram *h, double quantile);
