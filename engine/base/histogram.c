/*
 * Owns the arithmetic of the log-linear layout; used by flow statistics and metrics. A histogram
 * belongs to one thread; others read a copy. Always true: the cells sum up to count.
 */
#include "engine/base/histogram.h"

/* Values below 256 have a cell each; above, the top eight bits choose it. */
static uint32_t cell_of(uint64_t value)
{
	uint32_t shift;

	if (value >> HISTOGRAM_VALUE_BITS)
		return HISTOGRAM_CELLS - 1;
	if (value < 2 * HISTOGRAM_HALF)
		return (uint32_t)value;
	shift = 63 - HISTOGRAM_HALF_BITS - (uint32_t)__builtin_clzll(value);
	return shift * HISTOGRAM_HALF + (uint32_t)(value >> shift);
}

/* The largest value that falls into a cell. */
static uint64_t cell_last(uint32_t cell)
{
	uint32_t shift;

	if (cell < 2 * HISTOGRAM_HALF)
		return cell;
	shift = cell / HISTOGRAM_HALF - 1;
	return ((uint64_t)(cell - shift * HISTOGRAM_HALF + 1) << shift) - 1;
}

void histogram_record(struct histogram *h, uint64_t value_us)
{
	h->count++;
	h->sum += value_us;
	if (value_us > h->max)
		h->max = value_us;
	h->cells[cell_of(value_us)]++;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	into->count += from->count;
	into->sum += from->sum;
	if (from->max > into->max)
		into->max = from->max;
	for (uint32_t i = 0; i < HISTOGRAM_CELLS; i++)
		into->cells[i] += from->cells[i];
}

uint64_t histogram_quantile(const struct histogram *h, double quantile)
{
	double wanted = quantile * (double)h->count;
	uint64_t seen = 0;

	for (uint32_t i = 0; i < HISTOGRAM_CELLS; i++) {
		seen += h->cells[i];
		if (seen && (double)seen >= wanted)
			return i < HISTOGRAM_CELLS - 1 && cell_last(i) < h->max ? cell_last(i) :
										  h->max;
	}
	return h->max;
}
