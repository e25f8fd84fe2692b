/*
 * Counts of values in HdrHistogram's layout: linear within a power of two, 1,024 steps per octave,
 * so any value comes back within 0.1 %. Values are nanoseconds here, from 0 to HISTOGRAM_MAX.
 */
#pragma once

#include <stdint.h>

enum {
	HISTOGRAM_HALF_BITS = 10, /* 2^10 steps an octave: three significant digits */
	HISTOGRAM_HALF = 1 << HISTOGRAM_HALF_BITS,
	HISTOGRAM_VALUE_BITS = 40, /* 2^40 ns: 18 minutes */
	HISTOGRAM_OCTAVES = HISTOGRAM_VALUE_BITS - HISTOGRAM_HALF_BITS,
	HISTOGRAM_COUNTS = (HISTOGRAM_OCTAVES + 1) * HISTOGRAM_HALF,
};

#define HISTOGRAM_MAX ((1ull << HISTOGRAM_VALUE_BITS) - 1)

struct histogram {
	uint64_t total, min, max;
	uint64_t counts[HISTOGRAM_COUNTS];
};

/* NULL when there is no memory. */
struct histogram *histogram_new(void);
void histogram_free(struct histogram *histogram);

/* A value above HISTOGRAM_MAX counts as HISTOGRAM_MAX. */
void histogram_record(struct histogram *histogram, uint64_t value);

/* The least value that at least this share (0 to 1) of all is not above; 0 when there are none. */
uint64_t histogram_value_at(const struct histogram *histogram, double share);
