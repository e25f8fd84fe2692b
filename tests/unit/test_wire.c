/*
 * Tests of engine/request/wire.c: nothing a client wrote is believed.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "engine/request/wire.h"

struct fixed {
	uint32_t size, a;
	uint64_t b;
};

Test(wire, a_shorter_struct_is_filled_with_zero)
{
	struct fixed sent = { .size = 8, .a = 5, .b = 77 }, got;
	const struct wire w = { (const char *)&sent, 8 };

	cr_assert_eq(wire_struct(&w, &got, sizeof got), 0);
	cr_assert_eq(got.a, 5);
	cr_assert_eq(got.b, 0);
}

Test(wire, a_longer_struct_must_be_zero_beyond_what_is_known)
{
	struct {
		struct fixed known;
		uint64_t later;
	} sent = { .known = { .size = sizeof sent } };
	const struct wire w = { (const char *)&sent, sizeof sent };
	struct fixed got;

	cr_assert_eq(wire_struct(&w, &got, sizeof got), 0);
	sent.later = 1;
	cr_assert_eq(wire_struct(&w, &got, sizeof got), -E2BIG);
}

Test(wire, a_size_that_lies_is_refused)
{
	struct fixed sent = { .size = 4096 }, got;
	const struct wire w = { (const char *)&sent, sizeof sent };
	const struct wire empty = { (const char *)&sent, 3 };

	cr_assert_eq(wire_struct(&w, &got, sizeof got), -EINVAL);
	sent.size = 3;
	cr_assert_eq(wire_struct(&w, &got, sizeof got), -EINVAL);
	cr_assert_eq(wire_struct(&empty, &got, sizeof got), -EINVAL);
}

Test(wire, references_are_bounded_without_overflow)
{
	const struct wire w = { "0123456789", 10 };
	const char *at;

	cr_assert_eq(wire_bytes(&w, (struct dsec_wire_ref){ 4, 6 }, &at), 0);
	cr_assert_eq(*at, '4');
	cr_assert_eq(wire_bytes(&w, (struct dsec_wire_ref){ 10, 0 }, &at), 0);
	cr_assert_null(at);
	cr_assert_eq(wire_bytes(&w, (struct dsec_wire_ref){ 4, 7 }, &at), -EINVAL);
	cr_assert_eq(wire_bytes(&w, (struct dsec_wire_ref){ 11, 0 }, &at), -EINVAL);
	cr_assert_eq(wire_bytes(&w, (struct dsec_wire_ref){ UINT32_MAX, UINT32_MAX }, &at),
		     -EINVAL);
	cr_assert_eq(wire_bytes(&w, (struct dsec_wire_ref){ 1, UINT32_MAX }, &at), -EINVAL);
}

Test(wire, strings_have_no_nul_and_fit)
{
	const struct wire w = { "ab\0cd", 5 };
	char text[4];

	cr_assert_eq(wire_string(&w, (struct dsec_wire_ref){ 0, 2 }, text, sizeof text), 0);
	cr_assert_str_eq(text, "ab");
	cr_assert_eq(wire_string(&w, (struct dsec_wire_ref){ 0, 3 }, text, sizeof text), -EINVAL);
	cr_assert_eq(wire_string(&w, (struct dsec_wire_ref){ 0, 5 }, text, sizeof text),
		     -ENAMETOOLONG);
}

Test(wire, a_user_is_a_name_or_numbers_that_ids_can_be)
{
	static const struct {
		const char *text;
		int r;
	} users[] = {
		{ "", 0 },
		{ "agent", 0 },
		{ "_apt", 0 },
		{ "0", 0 },
		{ "65535", 0 },
		{ "1000:0", 0 },
		{ "a b", 0 },
		{ "65536", -EINVAL },
		{ "1000:65536", -EINVAL },
		{ "1000:", -EINVAL },
		{ "1000:x", -EINVAL },
		{ "7:8:9", -EINVAL },
		{ "7a", -EINVAL },
		{ "99999999999", -EINVAL },
		{ "4294967297", -EINVAL },
		{ "1 ", -EINVAL },
	};
	static const struct {
		const char *text;
		int r;
	} names[] = { { "", 0 },	  { "tower-1.a_b", 0 }, { "a b", -EINVAL },
		      { "a\n", -EINVAL }, { "\xff", -EINVAL },	{ "a/b", -EINVAL } };
	char text[64];

	for (size_t at = 0; at < sizeof(users) / sizeof(users[0]); at++) {
		const struct wire w = { users[at].text, (uint32_t)strlen(users[at].text) };

		cr_assert_eq(wire_user(&w, (struct dsec_wire_ref){ 0, w.bytes }, text, 64),
			     users[at].r, "%s", users[at].text);
	}
	for (size_t at = 0; at < sizeof(names) / sizeof(names[0]); at++) {
		const struct wire w = { names[at].text, (uint32_t)strlen(names[at].text) };

		cr_assert_eq(wire_hostname(&w, (struct dsec_wire_ref){ 0, w.bytes }, text, 64),
			     names[at].r, "%s", names[at].text);
	}
}

Test(wire, lists_are_walked_to_their_end_only)
{
	char payload[32];
	const struct wire w = { payload, sizeof payload };
	struct dsec_wire_items items = { 0, 0, 2, 0 };
	struct dsec_wire_ref item;
	uint32_t bytes = 3, cursor = 0;

	memcpy(payload, &bytes, 4);
	memcpy(payload + 4, "abc", 3);
	bytes = 0;
	memcpy(payload + 7, &bytes, 4);
	items.bytes = 11;
	cr_assert_eq(wire_items_check(&w, &items), 0);
	cr_assert_eq(wire_next(&w, &items, &cursor, &item), 1);
	cr_assert_eq(item.at, 4);
	cr_assert_eq(item.bytes, 3);
	cr_assert_eq(wire_next(&w, &items, &cursor, &item), 1);
	cr_assert_eq(wire_next(&w, &items, &cursor, &item), 0);
	items.count = 3;
	cr_assert_eq(wire_items_check(&w, &items), -EINVAL);
	items.count = 2;
	items.bytes = 10;
	cr_assert_eq(wire_items_check(&w, &items), -EINVAL);
	items.bytes = 33;
	cr_assert_eq(wire_items_check(&w, &items), -EINVAL);
	bytes = UINT32_MAX;
	memcpy(payload, &bytes, 4);
	items.bytes = 11;
	cr_assert_eq(wire_items_check(&w, &items), -EINVAL);
}
