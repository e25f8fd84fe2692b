/* Ids as text. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dsec/dsec.h"

static void check_both_ways(uint64_t hi, uint64_t lo)
{
	struct dsec_id id = { hi, lo }, back = { 1, 1 };
	char text[27];

	dsec_id_print(id, text);
	cr_assert_eq(strlen(text), 26);
	cr_assert_eq(dsec_id_parse(text, &back), 0);
	cr_assert_eq(back.hi, hi, "%s", text);
	cr_assert_eq(back.lo, lo, "%s", text);
}

Test(id, every_bit_survives_text)
{
	for (int bit = 0; bit < 64; bit++) {
		check_both_ways(1ull << bit, 0);
		check_both_ways(0, 1ull << bit);
	}
	check_both_ways(0, 0);
	check_both_ways(UINT64_MAX, UINT64_MAX);
	check_both_ways(0x0123456789abcdef, 0xfedcba9876543210);
}

Test(id, known_values_have_known_texts)
{
	char text[27];

	dsec_id_print((struct dsec_id){ 0, 0 }, text);
	cr_assert_str_eq(text, "00000000000000000000000000");
	dsec_id_print((struct dsec_id){ UINT64_MAX, UINT64_MAX }, text);
	cr_assert_str_eq(text, "7zzzzzzzzzzzzzzzzzzzzzzzzz");
	dsec_id_print((struct dsec_id){ 0, 32 }, text);
	cr_assert_str_eq(text, "00000000000000000000000010");
}

Test(id, texts_sort_as_ids_do)
{
	char smaller[27], greater[27];

	dsec_id_print((struct dsec_id){ 1, UINT64_MAX }, smaller);
	dsec_id_print((struct dsec_id){ 2, 0 }, greater);
	cr_assert_lt(strcmp(smaller, greater), 0);
}

Test(id, upper_case_and_misread_letters_are_understood)
{
	struct dsec_id id, same;

	cr_assert_eq(dsec_id_parse("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", &id), 0);
	cr_assert_eq(id.lo, UINT64_MAX);
	cr_assert_eq(dsec_id_parse("0OoIiLl0000000000000000000", &id), 0);
	cr_assert_eq(dsec_id_parse("00011110000000000000000000", &same), 0);
	cr_assert_eq(memcmp(&id, &same, sizeof(id)), 0);
}

Test(id, anything_else_is_refused_and_leaves_the_result_alone)
{
	static const char *const texts[] = {
		"",
		"0000000000000000000000000",   /* 25 */
		"000000000000000000000000000", /* 27 */
		"80000000000000000000000000",  /* 129 bits */
		"0000000000000000000000000u",
		"0000000000000 000000000000",
		"0000000000000-000000000000",
		"0000000000000000000000000\xff",
	};
	struct dsec_id id = { 5, 6 };

	for (size_t at = 0; at < sizeof(texts) / sizeof(texts[0]); at++)
		cr_assert_eq(dsec_id_parse(texts[at], &id), -EINVAL, "%s", texts[at]);
	cr_assert_eq(dsec_id_parse(NULL, &id), -EINVAL);
	cr_assert_eq(id.hi, 5);
	cr_assert_eq(id.lo, 6);
}
