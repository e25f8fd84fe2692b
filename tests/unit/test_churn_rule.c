/*
 * Claims about the bucket that bounds how many processes and threads a sandbox ends, with made-up
 * times.
 */
#include <pthread.h>

#include <criterion/criterion.h>

#include "bpf/churn_rule.h"

enum { THREADS = 4, ENDS = 20000 };

/* 1000 a second, with a burst of 2000. */
static const struct churn_rule rule = { .interval_ns = 1000000, .burst_ns = 2000000000 };

static int ends_counted(__u64 *full_at_ns, __u64 now_ns, int wanted)
{
	int made = 0;

	for (int i = 0; i < wanted; i++)
		made += churn_allow(&rule, full_at_ns, now_ns);
	return made;
}

Test(churn_rule, a_burst_is_allowed_to_the_last_and_nothing_beyond)
{
	__u64 full_at_ns = 0;

	cr_expect_eq(ends_counted(&full_at_ns, 5000000000, 10000), 2000);
	cr_expect_eq(ends_counted(&full_at_ns, 5000000000, 1), 0);
}

Test(churn_rule, the_full_rate_is_allowed_for_ever)
{
	__u64 full_at_ns = 0;

	for (__u64 at = 1; at <= 100000; at++)
		cr_assert(churn_allow(&rule, &full_at_ns, at * rule.interval_ns));
}

Test(churn_rule, what_is_refused_costs_nothing_and_the_bucket_fills_again)
{
	__u64 full_at_ns = 0;

	cr_expect_eq(ends_counted(&full_at_ns, 1000000000, 1000000), 2000);
	cr_expect_eq(ends_counted(&full_at_ns, 1500000000, 10000), 500);
	cr_expect_eq(ends_counted(&full_at_ns, 9000000000, 10000), 2000);
}

static void *ends_race(void *with)
{
	return (void *)(__INTPTR_TYPE__)ends_counted(with, 1000000000, ENDS);
}

Test(churn_rule, threads_that_race_get_no_more_than_a_try_each_beyond, .timeout = 30)
{
	pthread_t threads[THREADS];
	__u64 full_at_ns = 0;
	long made = 0;
	void *one;

	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, ends_race, &full_at_ns), 0);
	for (int i = 0; i < THREADS; i++) {
		cr_assert_eq(pthread_join(threads[i], &one), 0);
		made += (long)(__INTPTR_TYPE__)one;
	}
	/* The last look at the bucket and the addition without one are apart by one each. */
	cr_expect(made >= 2000 && made <= 2000 + THREADS, "%ld", made);
}

Test(churn_rule, what_is_left_is_left_and_fills_at_the_rate)
{
	__u64 now_ns = 7000000000, full_at_ns = churn_leave(&rule, now_ns, 64);

	cr_expect_eq(ends_counted(&full_at_ns, now_ns, 1000), 64);
	cr_expect_eq(ends_counted(&full_at_ns, now_ns + 10 * rule.interval_ns, 1000), 10);
	full_at_ns = churn_leave(&rule, now_ns, 1000000);
	cr_expect_eq(ends_counted(&full_at_ns, now_ns, 10000), 2000);
}
