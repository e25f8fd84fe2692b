/* Creates a second: what a token bucket grants, and when it says to ask again. */
#include <criterion/criterion.h>

#include "engine/tenant/bucket.h"

#define MS 1000000ull
#define S  (1000 * MS)

Test(bucket, without_a_rate_everything_is_granted)
{
	struct bucket b = bucket_of(0, 4);
	uint32_t retry_ms = 7;

	cr_expect_eq(bucket_take(&b, 5 * S, 100000, &retry_ms), 100000);
	cr_expect_eq(retry_ms, 0);
}

Test(bucket, a_full_one_grants_a_burst_and_then_one_each_interval)
{
	struct bucket b = bucket_of(10, 1);
	uint32_t retry_ms;

	cr_expect_eq(bucket_take(&b, 100 * S, 25, &retry_ms), 10);
	cr_expect_eq(retry_ms, 100);
	cr_expect_eq(bucket_take(&b, 100 * S + 99 * MS, 1, &retry_ms), 0);
	cr_expect_eq(retry_ms, 1);
	cr_expect_eq(bucket_take(&b, 100 * S + 100 * MS, 5, &retry_ms), 1);
	cr_expect_eq(bucket_take(&b, 100 * S + 450 * MS, 5, &retry_ms), 3);
	cr_expect_eq(retry_ms, 50);
}

Test(bucket, it_never_holds_more_than_a_burst)
{
	struct bucket b = bucket_of(10, 1);
	uint32_t retry_ms;

	cr_expect_eq(bucket_take(&b, 100 * S, 10, &retry_ms), 10);
	cr_expect_eq(bucket_take(&b, 100000 * S, 100, &retry_ms), 10);
}

Test(bucket, over_time_it_grants_the_rate_whatever_is_asked)
{
	struct bucket b = bucket_of(7, 1);
	uint32_t retry_ms;
	uint64_t granted = 0;

	for (uint64_t ms = 0; ms < 100000; ms += 3)
		granted += bucket_take(&b, 50 * S + ms * MS, 1 + ms % 5, &retry_ms);
	cr_expect_geq(granted, 700);
	cr_expect_leq(granted, 700 + 7);
}

Test(bucket, shares_of_a_rate_below_their_number_grant_less_than_one_a_second)
{
	struct bucket b = bucket_of(1, 4);
	uint32_t retry_ms;

	cr_expect_eq(bucket_take(&b, S, 2, &retry_ms), 1);
	cr_expect_eq(retry_ms, 4000);
	cr_expect_eq(bucket_take(&b, 5 * S, 2, &retry_ms), 1);
}
