/* Lines that take turns: engine/base/turns.c. */
#include "engine/base/turns.h"

#include <criterion/criterion.h>
#include <string.h>

/* Of `whose` "AAB": three that wait; what is taken, in order, is a text of their letters. */
static const char *taken(struct turns *turns, char *ret)
{
	char *at = ret;
	struct turn *turn;

	while ((turn = turns_take(turns)))
		*at++ = (char)turn->whose;
	*at = 0;
	return ret;
}

static void add_all(struct turns *turns, struct turn *all, const char *whose)
{
	for (size_t i = 0; whose[i]; i++)
		turns_add(turns, &all[i], (uint64_t)whose[i]);
}

Test(turns, who_has_much_waiting_holds_up_nobody)
{
	struct turns turns = { 0 };
	struct turn all[16];
	char text[17];

	add_all(&turns, all, "AAAAAABCBA");
	cr_assert_eq(turns.count, 10);
	cr_assert_str_eq(taken(&turns, text), "ABCABAAAAA");
	cr_assert_eq(turns.count, 0);
	add_all(&turns, all, "BA");
	cr_assert_str_eq(taken(&turns, text), "BA");
}

Test(turns, an_owner_waits_until_its_last_was_taken)
{
	struct turns turns = { 0 };
	struct turn all[3];

	cr_assert_not(turns_waits(&turns, 'A'));
	add_all(&turns, all, "AAB");
	for (int i = 0; i < 3; i++) {
		cr_assert(turns_waits(&turns, 'A'));
		(void)turns_take(&turns); /* A, B, A */
	}
	cr_assert_not(turns_waits(&turns, 'A'));
	cr_assert_not(turns_waits(&turns, 'B'));
}

Test(turns, those_of_one_owner_keep_their_order)
{
	struct turns turns = { 0 };
	struct turn all[6];

	add_all(&turns, all, "ABABAB");
	for (int i = 0; i < 6; i++)
		cr_assert_eq(turns_take(&turns), &all[i]);
}

Test(turns, what_was_taken_in_vain_comes_first_again)
{
	struct turns turns = { 0 };
	struct turn all[6], *turn;
	char text[17];

	add_all(&turns, all, "ABBCC");
	turn = turns_take(&turns);
	turns_add_first(&turns, turn, turn->whose);
	cr_assert_eq(turns.first, &all[0]);
	cr_assert_str_eq(taken(&turns, text), "ABCBC");
	add_all(&turns, all, "ABC");
	turns_add_first(&turns, &all[3], 'C'); /* before those of its own, in the middle */
	cr_assert_eq(turns_take(&turns), &all[3]);
	cr_assert_str_eq(taken(&turns, text), "ABC");
}

/* Any one out of any place: the others come as without it. */
Test(turns, what_is_removed_is_missed_by_nobody)
{
	static const char whose[] = "ABABCAC";
	char left[17], text[17];

	for (size_t gone = 0; whose[gone]; gone++) {
		struct turns turns = { 0 };
		struct turn all[8] = { 0 };
		size_t seen = 0;

		add_all(&turns, all, whose);
		turns_remove(&turns, &all[gone]);
		cr_assert_eq(turns.count, strlen(whose) - 1);
		turns_add(&turns, &all[7], 'D');
		for (const char *at = taken(&turns, text); *at; at++)
			left[seen++] = *at;
		cr_assert_eq(seen, strlen(whose));
		for (char c = 'A'; c <= 'C'; c++) {
			size_t wanted = 0, found = 0;

			for (size_t i = 0; i < seen; i++)
				found += left[i] == c;
			for (size_t i = 0; whose[i]; i++)
				wanted += whose[i] == c && i != gone;
			cr_assert_eq(found, wanted);
		}
	}
}
