/* Times, sizes, and names that others chose, as the CLI reads and writes them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/json.h"
#include "sdk/cli/values.h"

Test(cli_values, times_have_units_and_seconds_need_none)
{
	static const struct {
		const char *text;
		uint64_t ms;
	} good[] = {
		{ "0", 0 },	   { "90", 90000 },   { "250ms", 250 },	  { "90s", 90000 },
		{ "15m", 900000 }, { "2h", 7200000 }, { "1d", 86400000 },
	};
	static const char *const bad[] = { "", "s", "-1", "1.5s", "1 s", "1x", "1ss", "0x10" };
	uint64_t ms;

	for (size_t at = 0; at < sizeof(good) / sizeof(good[0]); at++) {
		cr_assert_eq(value_parse_ms(good[at].text, &ms), 0, "%s", good[at].text);
		cr_assert_eq(ms, good[at].ms, "%s", good[at].text);
	}
	for (size_t at = 0; at < sizeof(bad) / sizeof(bad[0]); at++)
		cr_assert_eq(value_parse_ms(bad[at], &ms), -EINVAL, "%s", bad[at]);
	cr_assert_eq(value_parse_ms("18446744073709551615h", &ms), -ERANGE);
	cr_assert_eq(value_parse_ms("18446744073709551616", &ms), -ERANGE);
}

Test(cli_values, sizes_are_powers_of_1024)
{
	uint64_t bytes;

	cr_assert_eq(value_parse_bytes("256M", &bytes), 0);
	cr_assert_eq(bytes, 256ull << 20);
	cr_assert_eq(value_parse_bytes("1kb", &bytes), 0);
	cr_assert_eq(bytes, 1024);
	cr_assert_eq(value_parse_bytes("16777215T", &bytes), 0);
	cr_assert_eq(value_parse_bytes("16777216T", &bytes), -ERANGE);
	cr_assert_eq(value_parse_bytes("M", &bytes), -EINVAL);
	cr_assert_eq(value_parse_bytes("1Q", &bytes), -EINVAL);
}

Test(cli_values, amounts_are_printed_short)
{
	char text[VALUE_TEXT_BYTES];

	value_print_ms(59999, text);
	cr_assert_str_eq(text, "59s");
	value_print_ms(116 * 60000, text);
	cr_assert_str_eq(text, "1h56m");
	value_print_ms(UINT64_MAX, text);
	cr_assert_str_eq(text, "-");
	value_print_bytes(1023, text);
	cr_assert_str_eq(text, "1023 B");
	value_print_bytes(1536, text);
	cr_assert_str_eq(text, "1.5 KB");
	value_print_bytes(84ull << 20, text);
	cr_assert_str_eq(text, "84 MB");
	value_print_bytes(UINT64_MAX - 1, text);
	cr_assert_leq(strlen(text), 12);
	value_print_count(48112, text);
	cr_assert_str_eq(text, "48,112");
	value_print_count(UINT64_MAX, text);
	cr_assert_str_eq(text, "18,446,744,073,709,551,615");
}

static void check_written(struct dsec_bytes bytes, const char *expected, size_t expected_bytes)
{
	char *text = NULL;
	size_t text_bytes = 0;
	FILE *file = open_memstream(&text, &text_bytes);

	value_write(file, bytes);
	cr_assert_eq(fclose(file), 0);
	cr_assert_eq(text_bytes, expected_bytes, "%s", text);
	cr_assert_eq(memcmp(text, expected, expected_bytes), 0, "%s", text);
	free(text);
}

Test(cli_values, ranges_are_printed_as_they_are_parsed)
{
	static const uint64_t amounts[] = { 1, 1000, 1500, 90 * 60000, 86400000, UINT64_MAX };
	char text[VALUE_TEXT_BYTES];
	uint64_t again;

	value_print_exact_ms(86400000, text);
	cr_assert_str_eq(text, "1d");
	value_print_exact_bytes(1ull << 46, text);
	cr_assert_str_eq(text, "64T");
	for (size_t at = 0; at < sizeof(amounts) / sizeof(amounts[0]); at++) {
		value_print_exact_ms(amounts[at], text);
		cr_assert_eq(value_parse_ms(text, &again), 0, "%s", text);
		cr_assert_eq(again, amounts[at], "%s", text);
		value_print_exact_bytes(amounts[at], text);
		cr_assert_eq(value_parse_bytes(text, &again), 0, "%s", text);
		cr_assert_eq(again, amounts[at], "%s", text);
	}
}

Test(cli_values, no_name_can_move_a_terminals_cursor)
{
	static const char nasty[] = "a\x1b[2J\n\x7f\xc2\x9b"
				    "3m\xff\xc3\xa9\xe2\x82\xac";
	static const char shown[] = "a\\x1b[2J\\x0a\\x7f\\xc2\\x9b3m\\xff\xc3\xa9\xe2\x82\xac";
	struct dsec_bytes bytes = { nasty, sizeof(nasty) - 1 };

	check_written(bytes, shown, sizeof(shown) - 1);
	cr_assert_eq(value_columns(bytes), 1 + 4 + 3 + 4 + 4 + 8 + 2 + 4 + 1 + 1);
}

Test(cli_values, only_well_formed_utf8_is_utf8)
{
	static const char *const bad[] = { "\x80",
					   "\xc0\x80",
					   "\xc3",
					   "\xe0\x80\x80",
					   "\xed\xa0\x80",
					   "\xf4\x90\x80\x80",
					   "\xf8\x88\x80\x80\x80",
					   "\xc3(" };
	static const char *const good[] = { "", "abc", "\xc3\xa9", "\xf0\x9f\x98\x80",
					    "\xef\xbf\xbf" };

	for (size_t at = 0; at < sizeof(bad) / sizeof(bad[0]); at++)
		cr_assert_not(value_is_utf8((struct dsec_bytes){ bad[at], strlen(bad[at]) }), "%zu",
			      at);
	for (size_t at = 0; at < sizeof(good) / sizeof(good[0]); at++)
		cr_assert(value_is_utf8((struct dsec_bytes){ good[at], strlen(good[at]) }), "%zu",
			  at);
}

Test(cli_values, bytes_that_are_no_text_are_base64_beside_a_null)
{
	static const struct {
		const char *bytes, *base64;
	} cases[] = { { "\xff", "/w==" },
		      { "\xff\xfe", "//4=" },
		      { "\xff\xfe\xfd", "//79" },
		      { "\xff"
			"abc",
			"/2FiYw==" } };

	for (size_t at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
		json_t *object = json_object();
		struct dsec_bytes bytes = { cases[at].bytes, strlen(cases[at].bytes) };

		cr_assert_eq(json_add_bytes(object, "text", bytes), 0);
		cr_assert(json_is_null(json_object_get(object, "text")));
		cr_assert_str_eq(json_string_value(json_object_get(object, "base64")),
				 cases[at].base64);
		cr_assert_eq(json_add_bytes(object, "image", bytes), 0);
		cr_assert_str_eq(json_string_value(json_object_get(object, "image_base64")),
				 cases[at].base64);
		json_decref(object);
	}
}

Test(cli_values, shares_of_a_cpu_have_three_digits_behind_the_point)
{
	static const struct {
		const char *text;
		uint64_t permille;
		const char *printed;
	} good[] = { { "2", 2000, "2" },      { "0.5", 500, "0.5" },   { "1.25", 1250, "1.25" },
		     { "0.010", 10, "0.01" }, { "0.001", 1, "0.001" }, { "16.000", 16000, "16" } };
	static const char *const bad[] = { "", ".5", "1.", "1.2345", "1.5x", "-1", "1,5", "0x1" };
	char text[VALUE_TEXT_BYTES];
	uint64_t permille;

	for (size_t at = 0; at < sizeof(good) / sizeof(good[0]); at++) {
		cr_assert_eq(value_parse_permille(good[at].text, &permille), 0, "%s",
			     good[at].text);
		cr_assert_eq(permille, good[at].permille, "%s", good[at].text);
		value_print_permille(permille, text);
		cr_assert_str_eq(text, good[at].printed);
	}
	for (size_t at = 0; at < sizeof(bad) / sizeof(bad[0]); at++)
		cr_assert_eq(value_parse_permille(bad[at], &permille), -EINVAL, "%s", bad[at]);
	cr_assert_eq(value_parse_permille("18446744073709551615", &permille), -ERANGE);
}
