/*
 * How slow the machine is that a test runs on: an emulated one says so in DSEC_TEST_SLOWNESS, 1 is
 * a machine of its own. Fixtures do so much less there and wait so much longer; what a claim says
 * stays the same.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>

static inline unsigned slowness(void)
{
	const char *text = getenv("DSEC_TEST_SLOWNESS");
	long times = text ? strtol(text, NULL, 10) : 1;

	return times < 1 ? 1 : (unsigned)times;
}

/* A number of rounds, of things: fewer of them, but never below `least`. */
static inline unsigned fewer(unsigned count, unsigned least)
{
	unsigned left = count / slowness();

	return left < least ? least : left;
}

/* A limit on time, in any unit. */
static inline uint64_t longer(uint64_t limit)
{
	return limit * slowness();
}

/*
 * Who waits longer than this was held up, on any machine and however busy it is: the only judgement
 * on time that a test makes of others' work. What is quicker is a figure: tests print it, and the
 * load generator compares it.
 */
static inline uint64_t held_up_ms(void)
{
	return longer(5000);
}
