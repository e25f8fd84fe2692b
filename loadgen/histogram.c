/*
 * Owns the arithmetic of a log-linear histogram. Called by the load loop for every completion and
 * by the report. Must hold: recording allocates nothing, and a value is found again within 0.1 %.
 */
#include "loadgen/histogram.h"

#include <math.h>
#include <stdlib.h>

struct histogram *histogram_new(void)
{
	struct histogram *histogram = calloc(1, sizeof(*histogram));

	if (histogram)
		histogram->min = UINT64_MAX;
	return histogram;
}

void histogram_free(struct histogram *histogram)
{
	free(histogram);
}

/*
 * The first octave holds 2 * HALF values one by one; each later one holds its upper half only, the
 * lower half being what earlier octaves hold.
 */
static uint32_t histogram_index(uint64_t value)
{
	uint32_t bits, octave;

	if (value < 2 * HISTOGRAM_HALF)
		return (uint32_t)value;
	bits = 64 - (uint32_t)__builtin_clzll(value);
	octave = bits - (HISTOGRAM_HALF_BITS + 1);
	return octave * HISTOGRAM_HALF + (uint32_t)(value >> octave);
}

/* The greatest value that has this index. */
static uint64_t histogram_upper(uint32_t index)
{
	uint32_t octave;
	uint64_t step;

	if (index < 2 * HISTOGRAM_HALF)
		return index;
	octave = index / HISTOGRAM_HALF - 1;
	step = index - octave * HISTOGRAM_HALF;
	return ((step + 1) << octave) - 1;
}

void histogram_record(struct histogram *histogram, uint64_t value)
{
	if (value > HISTOGRAM_MAX)
		value = HISTOGRAM_MAX;
	histogram->counts[histogram_index(value)]++;
	histogram->total++;
	if (value < histogram->min)
		histogram->min = value;
	if (value > histogram->max)
		histogram->max = value;
}

uint64_t histogram_value_at(const struct histogram *histogram, double share)
{
	uint64_t wanted, seen = 0, upper;

	if (!histogram->total)
		return 0;
	wanted = (uint64_t)ceil(share * (double)histogram->total);
	if (wanted < 1)
		wanted = 1;
	for (uint32_t index = 0; index < HISTOGRAM_COUNTS; index++) {
		seen += histogram->counts[index];
		if (seen >= wanted) {
			upper = histogram_upper(index);
			return upper < histogram->max ? upper : histogram->max;
		}
	}
	return histogram->max;
}
