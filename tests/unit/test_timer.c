/* The heap of deadlines against a plain list. */
#include "engine/base/timer.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "engine/base/cleanup.h"

enum { MANY = 1000 };

struct alarm {
	struct timer timer;
	struct timers *timers;
	uint64_t wanted_ns; /* 0: not set */
	uint64_t again_ns;  /* set to this when it expires */
	unsigned expired;
	uint64_t *last_ns; /* of those that expired */
};

static void alarm_expired(struct timer *t)
{
	struct alarm *alarm = container_of(t, struct alarm, timer);

	cr_assert_not(timer_is_set(t));
	alarm->expired++;
	alarm->wanted_ns = 0;
	if (alarm->again_ns)
		cr_assert_eq(timer_set(alarm->timers, t, alarm->again_ns), 0);
}

static uint64_t earliest(const struct alarm *alarms)
{
	uint64_t at_ns = UINT64_MAX;

	for (unsigned i = 0; i < MANY; i++)
		if (alarms[i].wanted_ns && alarms[i].wanted_ns < at_ns)
			at_ns = alarms[i].wanted_ns;
	return at_ns;
}

/* Set, move, clear and run at random, against a plain list. */
Test(timer, heap_agrees_with_a_list)
{
	struct timers timers;
	struct alarm *alarms = calloc(MANY, sizeof *alarms);
	uint64_t chance = 1, now_ns = 1;

	cr_assert_eq(timers_init(&timers, MANY), 0);
	for (unsigned i = 0; i < MANY; i++)
		alarms[i] = (struct alarm){ .timer.expired = alarm_expired, .timers = &timers };
	for (unsigned round = 0; round < 50000; round++) {
		struct alarm *alarm;
		uint32_t due = 0;

		chance = chance * 6364136223846793005u + 1442695040888963407u;
		alarm = &alarms[(chance >> 33) % MANY];
		switch (chance >> 60) {
		case 0:
			now_ns += (chance >> 20) % 3000;
			for (unsigned i = 0; i < MANY; i++)
				due += alarms[i].wanted_ns && alarms[i].wanted_ns <= now_ns;
			cr_assert_eq(timers_run(&timers, now_ns, UINT32_MAX), due);
			break;
		case 1:
		case 2:
		case 3:
			timer_clear(&timers, &alarm->timer);
			alarm->wanted_ns = 0;
			break;
		default:
			alarm->wanted_ns = now_ns + 1 + (chance >> 16) % 100000;
			cr_assert_eq(timer_set(&timers, &alarm->timer, alarm->wanted_ns), 0);
			break;
		}
		cr_assert_eq(timer_is_set(&alarm->timer), alarm->wanted_ns != 0);
		cr_assert_eq(timers_next(&timers), earliest(alarms));
	}
	timers_done(&timers);
	free(alarms);
}

static void order_expired(struct timer *t)
{
	struct alarm *alarm = container_of(t, struct alarm, timer);

	cr_assert_geq(t->at_ns, *alarm->last_ns);
	*alarm->last_ns = t->at_ns;
}

Test(timer, earlier_deadlines_expire_first)
{
	struct timers timers;
	struct alarm alarms[100] = { 0 };
	uint64_t last_ns = 0;

	cr_assert_eq(timers_init(&timers, 100), 0);
	for (unsigned i = 0; i < 100; i++) {
		alarms[i] = (struct alarm){ .timer.expired = order_expired, .last_ns = &last_ns };
		cr_assert_eq(timer_set(&timers, &alarms[i].timer, (i * 37 + 11) % 100), 0);
	}
	/* No more than asked for at a time, and the others after them. */
	cr_assert_eq(timers_run(&timers, 1000, 30), 30);
	cr_assert_eq(last_ns, 29);
	cr_assert_eq(timers_run(&timers, 1000, UINT32_MAX), 70);
	cr_assert_eq(last_ns, 99);
	timers_done(&timers);
}

Test(timer, full_heap_refuses_a_new_timer_but_moves_a_set_one)
{
	struct timers timers;
	struct timer a = { 0 }, b = { 0 };

	cr_assert_eq(timers_init(&timers, 1), 0);
	cr_assert_eq(timers_next(&timers), UINT64_MAX);
	cr_assert_eq(timer_set(&timers, &a, 5), 0);
	cr_assert_eq(timer_set(&timers, &b, 1), -ENOSPC);
	cr_assert_not(timer_is_set(&b));
	cr_assert_eq(timer_set(&timers, &a, 7), 0);
	cr_assert_eq(timers_next(&timers), 7);
	timer_clear(&timers, &b);
	timer_clear(&timers, &a);
	timer_clear(&timers, &a);
	cr_assert_eq(timers_next(&timers), UINT64_MAX);
	timers_done(&timers);
}

Test(timer, one_set_into_the_past_again_does_not_hold_the_loop)
{
	struct timers timers;
	struct alarm alarm = { .timer.expired = alarm_expired, .timers = &timers, .again_ns = 1 };

	cr_assert_eq(timers_init(&timers, 4), 0);
	cr_assert_eq(timer_set(&timers, &alarm.timer, 1), 0);
	cr_assert_eq(timers_run(&timers, 10, UINT32_MAX), 1);
	cr_assert_eq(alarm.expired, 1);
	cr_assert(timer_is_set(&alarm.timer));
	timers_done(&timers);
}
