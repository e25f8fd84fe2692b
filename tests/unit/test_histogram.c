/* The log-linear histogram against exact counts. */
#include "engine/base/histogram.h"

#include <criterion/criterion.h>
#include <string.h>

Test(histogram, quantiles_are_within_one_percent)
{
	struct histogram *h = calloc(1, sizeof *h);

	for (uint64_t i = 1; i <= 1000000; i++)
		histogram_record(h, i);
	for (unsigned i = 1; i <= 1000; i++) {
		double wanted = i * 1000.0, got = (double)histogram_quantile(h, i / 1000.0);

		cr_assert_geq(got, wanted);
		cr_assert_leq(got, wanted * 1.01);
	}
	cr_assert_eq(h->count, 1000000);
	cr_assert_eq(h->sum, 500000500000ull);
	cr_assert_eq(histogram_quantile(h, 1), 1000000);
	free(h);
}

Test(histogram, small_values_are_exact)
{
	struct histogram *h = calloc(1, sizeof *h);

	cr_assert_eq(histogram_quantile(h, 0.5), 0);
	for (uint64_t i = 0; i < 256; i++)
		histogram_record(h, i);
	for (uint64_t i = 1; i < 256; i++)
		cr_assert_eq(histogram_quantile(h, (double)i / 256), i - 1);
	cr_assert_eq(histogram_quantile(h, 0), 0);
	free(h);
}

Test(histogram, every_power_of_two_falls_into_its_own_cell)
{
	for (unsigned bits = 0; bits < HISTOGRAM_VALUE_BITS; bits++) {
		struct histogram *h = calloc(1, sizeof *h);
		uint64_t value = 1ull << bits;

		histogram_record(h, value - 1);
		histogram_record(h, value);
		histogram_record(h, value * 4);
		cr_assert_eq(histogram_quantile(h, 0.33), value - 1);
		cr_assert_lt(histogram_quantile(h, 0.66), value + value / 64 + 1);
		cr_assert_geq(histogram_quantile(h, 0.66), value);
		free(h);
	}
}

Test(histogram, value_over_the_range_is_counted_and_kept_as_the_largest)
{
	struct histogram *h = calloc(1, sizeof *h);

	histogram_record(h, 1);
	histogram_record(h, UINT64_MAX / 2);
	cr_assert_eq(h->count, 2);
	cr_assert_eq(histogram_quantile(h, 0.5), 1);
	cr_assert_eq(histogram_quantile(h, 1), UINT64_MAX / 2);
	free(h);
}

Test(histogram, merged_ones_equal_one_of_all_values)
{
	struct histogram *parts = calloc(2, sizeof *parts), *all = calloc(1, sizeof *all);

	for (uint64_t i = 0; i < 10000; i++) {
		histogram_record(&parts[i % 2], i * i);
		histogram_record(all, i * i);
	}
	histogram_merge(&parts[0], &parts[1]);
	cr_assert_eq(memcmp(&parts[0], all, sizeof *all), 0);
	free(parts);
	free(all);
}
