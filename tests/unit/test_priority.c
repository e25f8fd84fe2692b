/*
 * Claims about when a shard is a realtime thread, with made-up times.
 */
#include <criterion/criterion.h>

#include "engine/priority.h"

enum { PERCENT = 50 };

#define MS  1000000ull
#define DAY (24 * 3600 * 1000 * MS)

/* It uses so much of each millisecond, for so many: how many it was realtime. */
static uint32_t realtime_ms(struct priority *p, uint64_t used_percent, uint32_t ms)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < ms; i++) {
		sum += p->is_realtime;
		p->is_realtime =
			priority_is_due(p, p->looked_ns + MS, p->used_ns + MS * used_percent / 100);
	}
	return sum;
}

static struct priority rested(void)
{
	struct priority p = priority_of(PERCENT, 5 * MS, 3 * MS);

	p.is_realtime = true;
	return p;
}

Test(priority, who_uses_little_stays_realtime)
{
	struct priority p = rested();

	cr_expect_eq(realtime_ms(&p, 0, 1000), 1000);
	cr_expect_eq(realtime_ms(&p, PERCENT - 1, 100000), 100000);
}

Test(priority, who_uses_all_is_ordinary_within_twice_the_window)
{
	struct priority p = rested();

	cr_expect_leq(realtime_ms(&p, 100, 20), 2 * PRIORITY_WINDOW_NS / MS);
	cr_expect_eq(realtime_ms(&p, 100, 100000), 0);
}

Test(priority, who_uses_more_than_its_share_is_not_realtime_again_while_it_does)
{
	struct priority p = rested();

	(void)realtime_ms(&p, PERCENT + 10, 1000);
	cr_expect_eq(realtime_ms(&p, PERCENT + 10, 100000), 0);
}

Test(priority, who_rests_is_realtime_again_soon)
{
	struct priority p = rested();
	uint32_t ms;

	(void)realtime_ms(&p, 100, 100000);
	cr_assert(!p.is_realtime);
	ms = 1000 - realtime_ms(&p, 0, 1000);
	cr_expect_gt(ms, 1);
	cr_expect_leq(ms, 2 * PRIORITY_WINDOW_NS / MS);
}

/* Work and rest in turn, at any pace: no more than the share, and what it saved up once. */
Test(priority, no_pattern_uses_more_than_its_share_as_realtime)
{
	for (uint32_t work_ms = 1; work_ms <= 40; work_ms++)
		for (uint32_t rest_ms = 0; rest_ms <= 40; rest_ms++) {
			struct priority p = rested();
			uint64_t used_ms = 0, all_ms = 0;

			while (all_ms < 4000) {
				used_ms += realtime_ms(&p, 100, work_ms);
				(void)realtime_ms(&p, 0, rest_ms);
				all_ms += work_ms + rest_ms;
			}
			cr_assert_leq(used_ms, all_ms * PERCENT / 100 + 2 * PRIORITY_WINDOW_NS / MS,
				      "%u of each %u ms: %u ms of %u", work_ms, work_ms + rest_ms,
				      (unsigned)used_ms, (unsigned)all_ms);
		}
}

Test(priority, a_long_sleep_saves_up_no_more_than_a_window)
{
	struct priority p = rested();

	(void)realtime_ms(&p, 100, 100);
	p.is_realtime = priority_is_due(&p, p.looked_ns + 1000 * DAY, p.used_ns);
	cr_expect(p.is_realtime);
	cr_expect_leq(realtime_ms(&p, 100, 1000), 2 * PRIORITY_WINDOW_NS / MS);
}
