/*
 * Claims about who is taken for a fork bomb, with made-up looks half a second apart.
 */
#include <criterion/criterion.h>

#include "backends/container/bomb.h"

enum { LIMIT_S = 10, LOOKS_A_S = 2 };

/* One look more, at which so many samples more were seen, of those so many in fork(). */
static enum bomb_state looked(struct bomb *b, uint64_t *now_ns, uint64_t samples, uint64_t forks,
			      bool is_full)
{
	const struct bomb_look look = { b->samples + samples, b->forks + forks, is_full };

	*now_ns += BOMB_NS_PER_S / LOOKS_A_S;
	return bomb_judge(b, &look, LIMIT_S, *now_ns);
}

/* What came of a second of it at the limit, again and again: the first that is not BOMB_NOT. */
static enum bomb_state after_s(struct bomb *b, uint64_t *now_ns, uint64_t samples, uint64_t forks,
			       int seconds)
{
	enum bomb_state state = BOMB_NOT;

	for (int i = 0; i < seconds * LOOKS_A_S && state == BOMB_NOT; i++)
		state = looked(b, now_ns, samples, forks, true);
	return state;
}

Test(bomb, who_does_nothing_but_fail_to_fork_is_told_of_once_and_then_killed)
{
	struct bomb b = { 0 };
	uint64_t now_ns = BOMB_NS_PER_S, begun_ns;

	cr_expect_eq(after_s(&b, &now_ns, 50, 50, LIMIT_S), BOMB_NOT);
	begun_ns = b.since_ns;
	cr_expect_eq(after_s(&b, &now_ns, 50, 50, 1), BOMB_TELL);
	cr_expect_eq(b.since_ns, begun_ns);
	cr_expect_eq(after_s(&b, &now_ns, 50, 50, BOMB_GRACE_MS / 1000 - 1), BOMB_NOT);
	cr_expect_eq(after_s(&b, &now_ns, 50, 50, 2), BOMB_KILL);
	cr_expect_eq(after_s(&b, &now_ns, 50, 50, 1), BOMB_KILL); /* it did not die */
}

Test(bomb, one_look_at_which_it_computes_or_is_below_its_limit_begins_it_anew)
{
	struct bomb b = { 0 };
	uint64_t now_ns = BOMB_NS_PER_S;

	cr_expect_eq(after_s(&b, &now_ns, 50, 50, LIMIT_S), BOMB_NOT);
	cr_expect_eq(looked(&b, &now_ns, 50, 24, true), BOMB_NOT);
	cr_expect_eq(after_s(&b, &now_ns, 50, 50, LIMIT_S), BOMB_NOT);
	cr_expect_eq(looked(&b, &now_ns, 50, 50, false), BOMB_NOT);
	cr_expect_eq(after_s(&b, &now_ns, 50, 50, LIMIT_S), BOMB_NOT);
	cr_expect_eq(looked(&b, &now_ns, BOMB_SAMPLES_MIN - 1, 1, true), BOMB_NOT);
	cr_expect_eq(after_s(&b, &now_ns, 50, 50, LIMIT_S), BOMB_NOT);
	cr_expect_eq(after_s(&b, &now_ns, 50, 50, 1), BOMB_TELL);
}

Test(bomb, a_build_at_its_limit_is_none_however_long)
{
	struct bomb b = { 0 };
	uint64_t now_ns = BOMB_NS_PER_S;

	cr_expect_eq(after_s(&b, &now_ns, 100, 40, 3600), BOMB_NOT);
}

Test(bomb, counts_that_were_forgotten_count_from_nothing)
{
	struct bomb b = { .samples = 1000, .forks = 10 };
	const struct bomb_look anew = { 20, 20, true };

	cr_expect_eq(bomb_judge(&b, &anew, LIMIT_S, BOMB_NS_PER_S), BOMB_NOT);
	cr_expect_eq(b.since_ns, BOMB_NS_PER_S);
}

Test(bomb, a_limit_is_met_but_for_an_eighth)
{
	cr_expect(bomb_is_full(64, 64) && bomb_is_full(56, 64) && !bomb_is_full(55, 64));
	cr_expect(bomb_is_full(2, 2) && !bomb_is_full(1, 2));
	cr_expect(!bomb_is_full(1000, 0)); /* there is none */
}
