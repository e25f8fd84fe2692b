/* When a sandbox ends by itself: the arithmetic of ttl and idle_ttl. */
#include <criterion/criterion.h>

#include "engine/sandbox/lifetime.h"

#define S 1000000000ull

static uint64_t end_of(struct lifetime l, bool busy, uint32_t want)
{
	uint32_t cause = 99;
	uint64_t end_ns = lifetime_end_ns(&l, busy, &cause);

	cr_expect_eq(cause, want, "cause %u", cause);
	return end_ns;
}

Test(lifetime, without_times_it_never_ends)
{
	cr_expect_eq(end_of((struct lifetime){ 5 * S, 7 * S, 0, 0 }, false, DSEC_CAUSE_NONE),
		     LIFETIME_NONE);
	cr_expect_eq(end_of((struct lifetime){ 5 * S, 7 * S, 0, 3 }, true, DSEC_CAUSE_NONE),
		     LIFETIME_NONE);
}

Test(lifetime, ttl_counts_from_its_beginning_whatever_runs)
{
	cr_expect_eq(end_of((struct lifetime){ 5 * S, 7 * S, 10, 0 }, false, DSEC_CAUSE_TTL),
		     15 * S);
	cr_expect_eq(end_of((struct lifetime){ 5 * S, 700 * S, 10, 20 }, true, DSEC_CAUSE_TTL),
		     15 * S);
}

Test(lifetime, idle_ttl_counts_from_the_last_use_and_never_while_busy)
{
	cr_expect_eq(end_of((struct lifetime){ 5 * S, 7 * S, 0, 3 }, false, DSEC_CAUSE_IDLE_TTL),
		     10 * S);
	cr_expect_eq(end_of((struct lifetime){ 5 * S, 7 * S, 100, 3 }, true, DSEC_CAUSE_TTL),
		     105 * S);
}

Test(lifetime, the_earlier_one_counts_and_ttl_where_they_meet)
{
	cr_expect_eq(end_of((struct lifetime){ 0, 0, 4, 3 }, false, DSEC_CAUSE_IDLE_TTL), 3 * S);
	cr_expect_eq(end_of((struct lifetime){ 0, 0, 3, 4 }, false, DSEC_CAUSE_TTL), 3 * S);
	cr_expect_eq(end_of((struct lifetime){ 0, 0, 3, 3 }, false, DSEC_CAUSE_TTL), 3 * S);
}

Test(lifetime, thirty_days_from_a_machine_that_is_up_for_years_do_not_overflow)
{
	const uint64_t years_ns = 50ull * 366 * 86400 * S;
	const struct lifetime l = { years_ns, years_ns, 30 * 86400, 30 * 86400 };

	cr_expect_eq(end_of(l, false, DSEC_CAUSE_TTL), years_ns + 30ull * 86400 * S);
}
