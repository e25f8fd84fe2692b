/* The JSON writer and reader: what they accept, refuse and give back. */
#include "engine/base/json.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int parse(const char *text, struct json_value *ret)
{
	return json_parse(text, strlen(text), ret);
}

Test(json, writer_nests_and_separates)
{
	struct json_writer w;
	char text[256];

	json_open(&w, text, sizeof text);
	json_object(&w, NULL);
	json_string(&w, "name", "a\"b\\c\n\x01");
	json_array(&w, "list");
	json_unsigned(&w, NULL, UINT64_MAX);
	json_signed(&w, NULL, INT64_MIN);
	json_object(&w, NULL);
	json_end(&w);
	json_end(&w);
	json_bool(&w, "yes", true);
	json_bool(&w, "no", false);
	json_null(&w, "none");
	json_string(&w, "also none", NULL);
	json_end(&w);
	cr_assert_eq(json_close(&w), 0);
	cr_assert_str_eq(text, "{\"name\":\"a\\\"b\\\\c\\n\\u0001\","
			       "\"list\":[18446744073709551615,-9223372036854775808,{}],"
			       "\"yes\":true,\"no\":false,\"none\":null,\"also none\":null}");
}

Test(json, writer_shows_bytes_that_are_not_text_as_base64)
{
	static const char *const expected[] = {
		"{\"text\":null,\"base64\":\"/w==\"}",
		"{\"text\":null,\"base64\":\"//4=\"}",
		"{\"text\":null,\"base64\":\"//79\"}",
		"{\"text\":null,\"base64\":\"//79/A==\"}",
	};
	struct json_writer w;
	char text[64];

	for (unsigned i = 0; i < 4; i++) {
		json_open(&w, text, sizeof text);
		json_bytes(&w, NULL, "\xff\xfe\xfd\xfc", i + 1);
		cr_assert_eq(json_close(&w), 0);
		cr_assert_str_eq(text, expected[i]);
	}
	json_open(&w, text, sizeof text);
	json_bytes(&w, NULL, "gr\xc3\xbc\xc3\x9f\0e", 8);
	cr_assert_eq(json_close(&w), 0);
	cr_assert_str_eq(text, "{\"text\":\"gr\xc3\xbc\xc3\x9f\\u0000e\"}");
}

Test(json, writer_replaces_what_is_not_utf8_in_strings)
{
	struct json_writer w;
	char text[64];

	json_open(&w, text, sizeof text);
	json_string(&w, NULL, "a\xff\xc3");
	cr_assert_eq(json_close(&w), 0);
	cr_assert_str_eq(text, "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
}

Test(json, writer_gives_doubles_back_exactly)
{
	static const double values[] = { 0,	  1,	   -1.5,   0.1,	 1.0 / 3,
					 DBL_MAX, DBL_MIN, 5e-324, 1e21, 123456789.123456789,
					 NAN,	  INFINITY };
	struct json_writer w;
	char text[64];

	for (unsigned i = 0; i < sizeof values / sizeof values[0]; i++) {
		json_open(&w, text, sizeof text);
		json_double(&w, NULL, values[i]);
		cr_assert_eq(json_close(&w), 0);
		if (isfinite(values[i]))
			cr_assert_eq(strtod(text, NULL), values[i]);
		else
			cr_assert_str_eq(text, "null");
	}
}

Test(json, writer_cuts_at_the_buffer_and_says_how_much_it_wanted)
{
	struct json_writer w;
	char text[16];

	for (size_t bytes_max = 0; bytes_max <= 10; bytes_max++) {
		memset(text, '#', sizeof text);
		json_open(&w, text, bytes_max);
		json_string(&w, NULL, "1234567");
		cr_assert_eq(json_close(&w), bytes_max < 10 ? -ENOSPC : 0);
		cr_assert_eq(w.bytes, 9);
		for (size_t i = bytes_max; i < sizeof text; i++)
			cr_assert_eq(text[i], '#');
		if (bytes_max)
			cr_assert_eq(strlen(text), bytes_max < 10 ? bytes_max - 1 : 9);
	}
}

static void misuse(struct json_writer *w, unsigned how)
{
	switch (how) {
	case 0: /* nothing written */
		return;
	case 1: /* left open */
		json_object(w, NULL);
		return;
	case 2: /* closed twice */
		json_array(w, NULL);
		json_end(w);
		json_end(w);
		return;
	case 3: /* two values */
		json_null(w, NULL);
		json_null(w, NULL);
		return;
	case 4: /* a member without a name */
		json_object(w, NULL);
		json_null(w, NULL);
		json_end(w);
		return;
	case 5: /* a name in an array */
		json_array(w, NULL);
		json_null(w, "name");
		json_end(w);
		return;
	default: /* too deep */
		for (unsigned i = 0; i <= JSON_DEPTH_MAX; i++)
			json_array(w, NULL);
		for (unsigned i = 0; i <= JSON_DEPTH_MAX; i++)
			json_end(w);
	}
}

Test(json, writer_refuses_what_is_not_one_value)
{
	struct json_writer w;
	char text[64];

	for (unsigned how = 0; how <= 6; how++) {
		json_open(&w, text, sizeof text);
		misuse(&w, how);
		cr_assert_eq(json_close(&w), -EINVAL, "misuse %u", how);
	}
}

Test(json, reader_takes_what_the_standard_allows)
{
	static const char *const texts[] = {
		"null",
		" true ",
		"false",
		"0",
		"-0",
		"10",
		"1.5e+10",
		"-1E-2",
		"\"\"",
		"[]",
		"{}",
		"[ 1 , 2 ]",
		"\t\r\n{}",
		"{\"\":0}",
		"[[[]]]",
		"\"\\u0000\"",
		"\"\\ud83d\\ude00\"",
		"\"\xf0\x9f\x98\x80\"",
		"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
		"\"\x7f\"",
	};
	struct json_value value;

	for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++)
		cr_assert_eq(parse(texts[i], &value), 0, "%s", texts[i]);
}

Test(json, reader_refuses_everything_else)
{
	static const char *const texts[] = {
		"",
		" ",
		"nul",
		"nullx",
		"True",
		"01",
		"+1",
		".5",
		"1.",
		"1e",
		"1e+",
		"-",
		"0x1",
		"NaN",
		"[",
		"]",
		"[1,]",
		"[,1]",
		"[1 2]",
		"{",
		"{]",
		"{\"a\"}",
		"{\"a\":}",
		"{\"a\":1,}",
		"{a:1}",
		"{1:2}",
		"'a'",
		"\"",
		"\"\\\"",
		"\"\\x\"",
		"\"\\u12\"",
		"\"\\u123g\"",
		"\"\\ud800\"",
		"\"\\udc00\"",
		"\"\\ud800\\u0020\"",
		"\"\\ud800\\ud800\"",
		"\"\n\"",
		"\"\x1f\"",
		"\"\xff\"",
		"\"\xc0\x80\"",
		"\"\xed\xa0\x80\"",
		"\"\xf4\x90\x80\x80\"",
		"\"\xc3\"",
		"1 2",
		"[1]]",
		"/**/1",
		"[1}",
		"\"\\ud800",
		"\"\\",
	};
	struct json_value value;

	for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++)
		cr_assert_eq(parse(texts[i], &value), -EINVAL, "%s", texts[i]);
	cr_assert_eq(json_parse("1\0", 2, &value), -EINVAL);
}

Test(json, reader_bounds_its_depth)
{
	char text[2 * JSON_DEPTH_MAX + 3] = "";
	struct json_value value;

	memset(text, '[', JSON_DEPTH_MAX);
	memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
	cr_assert_eq(parse(text, &value), 0);
	memset(text, '[', JSON_DEPTH_MAX + 1);
	memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
	cr_assert_eq(parse(text, &value), -E2BIG);
}

Test(json, member_is_found_by_its_unescaped_name)
{
	struct json_value object, value;
	uint64_t number;

	cr_assert_eq(parse("{\"a\":{\"b\":1}, \"\\u0062\" : 2, \"ab\":3, \"\\u0000\":4}", &object),
		     0);
	cr_assert_eq(json_member(&object, "b", &value), 0);
	cr_assert_eq(json_to_unsigned(&value, &number), 0);
	cr_assert_eq(number, 2);
	cr_assert_eq(json_member(&object, "abc", &value), -ENOENT);
	cr_assert_eq(json_member(&object, "", &value), -ENOENT);
	cr_assert_eq(json_member(&object, "a", &value), 0);
	cr_assert_eq(json_member(&value, "b", &value), 0);
	cr_assert_eq(json_to_unsigned(&value, &number), 0);
	cr_assert_eq(number, 1);
	cr_assert_eq(json_member(&value, "b", &value), -EINVAL);
}

Test(json, member_that_stands_twice_is_refused)
{
	struct json_value object, value;

	cr_assert_eq(parse("{\"a\":1,\"b\":2,\"\\u0061\":3}", &object), 0);
	cr_assert_eq(json_member(&object, "a", &value), -EINVAL);
	cr_assert_eq(json_member(&object, "b", &value), 0);
}

Test(json, array_is_walked_in_order)
{
	struct json_value array, value;
	size_t cursor = 0;
	uint64_t number;

	cr_assert_eq(parse("[ 0 , 1,2 ]", &array), 0);
	for (uint64_t i = 0; i < 3; i++) {
		cr_assert_eq(json_next(&array, &cursor, &value), 0);
		cr_assert_eq(json_to_unsigned(&value, &number), 0);
		cr_assert_eq(number, i);
	}
	cr_assert_eq(json_next(&array, &cursor, &value), -ENOENT);
	cr_assert_eq(json_next(&array, &cursor, &value), -ENOENT);
	cursor = 0;
	cr_assert_eq(parse("[]", &array), 0);
	cr_assert_eq(json_next(&array, &cursor, &value), -ENOENT);
	cr_assert_eq(json_next(&value, &cursor, &value), -EINVAL);
}

Test(json, integers_are_exact_or_refused)
{
	static const struct {
		const char *text;
		int as_unsigned, as_signed;
		uint64_t value;
	} rows[] = {
		{ "0", 0, 0, 0 },
		{ "-0", 0, 0, 0 },
		{ "18446744073709551615", 0, -ERANGE, UINT64_MAX },
		{ "18446744073709551616", -ERANGE, -ERANGE, 0 },
		{ "99999999999999999999999", -ERANGE, -ERANGE, 0 },
		{ "9223372036854775807", 0, 0, INT64_MAX },
		{ "9223372036854775808", 0, -ERANGE, 1ull << 63 },
		{ "-9223372036854775808", -ERANGE, 0, 1ull << 63 },
		{ "-9223372036854775809", -ERANGE, -ERANGE, 0 },
		{ "-1", -ERANGE, 0, UINT64_MAX },
		{ "1.0", -EINVAL, -EINVAL, 0 },
		{ "1e3", -EINVAL, -EINVAL, 0 },
		{ "\"1\"", -EINVAL, -EINVAL, 0 },
	};

	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		uint64_t number = 0;
		int64_t integer = 0;
		struct json_value value;

		cr_assert_eq(parse(rows[i].text, &value), 0);
		cr_assert_eq(json_to_unsigned(&value, &number), rows[i].as_unsigned);
		cr_assert_eq(json_to_signed(&value, &integer), rows[i].as_signed);
		if (!rows[i].as_unsigned)
			cr_assert_eq(number, rows[i].value);
		if (!rows[i].as_signed)
			cr_assert_eq((uint64_t)integer, rows[i].value);
	}
}

Test(json, strings_are_unescaped_and_bounded)
{
	struct json_value value;
	char text[8];
	bool yes;

	cr_assert_eq(parse("\"\\u00e9\\ud83d\\ude00\\n\"", &value), 0);
	cr_assert_eq(json_to_string(&value, text, sizeof text), 7);
	cr_assert_str_eq(text, "\xc3\xa9\xf0\x9f\x98\x80\n");
	cr_assert_eq(json_to_string(&value, text, 7), -ENOSPC);
	cr_assert_eq(json_to_string(&value, text, 0), -ENOSPC);
	cr_assert_eq(json_to_bool(&value, &yes), -EINVAL);
	cr_assert_eq(parse("\"a\\u0000b\"", &value), 0);
	cr_assert_eq(json_to_string(&value, text, sizeof text), -EINVAL);
	cr_assert_eq(parse("true", &value), 0);
	cr_assert_eq(json_to_string(&value, text, sizeof text), -EINVAL);
	cr_assert_eq(json_to_bool(&value, &yes), 0);
	cr_assert(yes);
}

Test(json, what_is_written_is_read_back)
{
	struct json_writer w;
	struct json_value object, value;
	char text[512], name[300], back[300];

	for (unsigned i = 1; i < 256; i++) {
		snprintf(name, sizeof name, "x%cy", (char)i);
		json_open(&w, text, sizeof text);
		json_object(&w, NULL);
		json_string(&w, name, name);
		json_end(&w);
		cr_assert_eq(json_close(&w), 0);
		cr_assert_eq(json_parse(text, w.bytes, &object), 0, "%s", text);
		if (i >= 0x80)
			snprintf(name, sizeof name, "x\xef\xbf\xbdy");
		cr_assert_eq(json_member(&object, name, &value), 0);
		cr_assert_eq(json_to_string(&value, back, sizeof back), (int)strlen(name));
		cr_assert_str_eq(back, name);
	}
}
