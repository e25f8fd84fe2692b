/* The histogram against sorted values. */
#include "loadgen/histogram.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static int value_compare(const void *a, const void *b)
{
	const uint64_t *left = a, *right = b;

	return *left < *right ? -1 : *left > *right;
}

Test(histogram, empty_has_no_values)
{
	struct histogram *histogram = histogram_new();

	cr_assert_eq(histogram_value_at(histogram, 0.5), 0);
	histogram_free(histogram);
}

Test(histogram, small_values_are_exact)
{
	struct histogram *histogram = histogram_new();

	for (uint64_t value = 0; value < 2 * HISTOGRAM_HALF; value++)
		histogram_record(histogram, value);
	cr_assert_eq(histogram_value_at(histogram, 0.5), HISTOGRAM_HALF - 1);
	cr_assert_eq(histogram_value_at(histogram, 1), 2 * HISTOGRAM_HALF - 1);
	histogram_free(histogram);
}

Test(histogram, any_value_is_found_within_a_thousandth)
{
	for (uint64_t value = 1; value < HISTOGRAM_MAX; value = value * 21 / 16 + 1) {
		struct histogram *histogram = histogram_new();
		uint64_t found;

		histogram_record(histogram, value);
		histogram_record(histogram, HISTOGRAM_MAX);
		found = histogram_value_at(histogram, 0.5);
		cr_assert_geq(found, value);
		cr_assert_leq((double)(found - value), (double)value / 1000);
		histogram_free(histogram);
	}
}

Test(histogram, shares_agree_with_sorted_values)
{
	enum { COUNT = 50000 };
	struct histogram *histogram = histogram_new();
	uint64_t *values = calloc(COUNT, sizeof(*values)), state = 12345;

	for (int i = 0; i < COUNT; i++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		values[i] = 1ull << (state >> 59);
		values[i] += (state >> 20) % values[i];
		histogram_record(histogram, values[i]);
	}
	qsort(values, COUNT, sizeof(*values), value_compare);
	for (double share = 0.01; share < 1; share += 0.0099) {
		uint64_t expected = values[(int)ceil(share * COUNT) - 1];
		uint64_t found = histogram_value_at(histogram, share);

		cr_assert_geq(found, expected);
		cr_assert_leq((double)(found - expected), (double)expected / 1000);
	}
	cr_assert_eq(histogram_value_at(histogram, 1), values[COUNT - 1]);
	free(values);
	histogram_free(histogram);
}

Test(histogram, too_large_a_value_counts_as_the_largest)
{
	struct histogram *histogram = histogram_new();

	histogram_record(histogram, UINT64_MAX);
	cr_assert_eq(histogram->total, 1);
	cr_assert_eq(histogram_value_at(histogram, 0.5), HISTOGRAM_MAX);
	histogram_free(histogram);
}
