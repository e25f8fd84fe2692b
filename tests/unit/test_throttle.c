/*
 * Claims about how long a leaf is frozen that makes processes too fast, with made-up times.
 */
#include <criterion/criterion.h>

#include "backends/container/throttle.h"

#define MS THROTTLE_NS_PER_MS

enum { MOST_MS = THROTTLE_FIRST_MS << THROTTLE_LEVELS };

/* Frozen again and again, each time so long after it was thawed. */
static uint32_t frozen_ms(struct throttle *t, uint64_t *now_ns, uint64_t behaves_ms, int times)
{
	uint32_t ms = 0;

	for (int i = 0; i < times; i++) {
		*now_ns += behaves_ms * MS;
		ms = throttle_again_ms(t, *now_ns);
		*now_ns += ms * MS;
		t->thawed_ns = *now_ns;
	}
	return ms;
}

Test(throttle, a_storm_that_goes_on_is_frozen_twice_as_long_each_time_to_a_bound)
{
	struct throttle t = { 0 };
	uint64_t now_ns = 5000 * MS;

	for (uint32_t level = 0; level <= THROTTLE_LEVELS; level++)
		cr_expect_eq(frozen_ms(&t, &now_ns, 2, 1), (uint32_t)THROTTLE_FIRST_MS << level);
	cr_expect_eq(frozen_ms(&t, &now_ns, 2, 1000), MOST_MS);
}

Test(throttle, who_behaved_for_a_while_is_frozen_shorter_again)
{
	struct throttle t = { 0 };
	uint64_t now_ns = 5000 * MS;

	(void)frozen_ms(&t, &now_ns, 2, 100);
	cr_expect_eq(frozen_ms(&t, &now_ns, THROTTLE_REST_MS, 1), MOST_MS / 2);
	cr_expect_eq(frozen_ms(&t, &now_ns, 2 * THROTTLE_REST_MS, 1), MOST_MS / 8);
	cr_expect_eq(frozen_ms(&t, &now_ns, 3600 * 1000, 1), THROTTLE_FIRST_MS);
}

Test(throttle, nothing_is_remembered_once_it_is_over)
{
	struct throttle t = { 0 };
	uint64_t now_ns = 5000 * MS;

	(void)frozen_ms(&t, &now_ns, 2, 100);
	cr_expect_eq(throttle_again_ms(&t, throttle_over_ns(&t)), THROTTLE_FIRST_MS);
	cr_expect_leq(throttle_over_ns(&t) - t.thawed_ns,
		      (THROTTLE_LEVELS + 1) * THROTTLE_REST_MS * MS);
}
