/*
 * Claims about who is held back for whom: made-up beginnings at made-up times.
 */
#include <criterion/criterion.h>

#include "backends/container/begins.h"

enum { REST = 100 };

static const uint64_t mine = 7, other = 8, third = 9;

Test(begins, what_one_begins_itself_holds_back_others_alone)
{
	struct begins b = { 0 };

	cr_expect(!begins_beside(&b, mine, 1000, REST));
	begins_note(&b, mine, 1000);
	begins_note(&b, mine, 1050);
	cr_expect(!begins_beside(&b, mine, 1060, REST));
	cr_expect(begins_beside(&b, other, 1060, REST));
	cr_expect(!begins_beside(&b, other, 1151, REST));
}

Test(begins, what_another_began_counts_for_its_time_whatever_oneself_begins_since)
{
	struct begins b = { 0 };

	begins_note(&b, other, 1000);
	begins_note(&b, mine, 1010);
	begins_note(&b, mine, 1090);
	begins_note(&b, BEGINS_NOBODY, 1095);
	cr_expect(begins_beside(&b, mine, 1100, REST));
	cr_expect(!begins_beside(&b, mine, 1101, REST));
	cr_expect(begins_beside(&b, third, 1101, REST));
}

Test(begins, several_at_once_hold_back_everybody)
{
	struct begins b = { 0 };

	begins_note(&b, mine, 1000);
	begins_note(&b, BEGINS_SEVERAL, 1001);
	cr_expect(begins_beside(&b, mine, 1002, REST) && begins_beside(&b, other, 1002, REST));
}

Test(begins, names_are_of_one_slot_each_and_of_nothing_else)
{
	cr_expect_neq(begins_name(0, 0), BEGINS_NOBODY);
	cr_expect_neq(begins_name(0, 1), begins_name(1, 0));
	cr_expect_neq(begins_name(4095, UINT32_MAX), BEGINS_SEVERAL);
}
