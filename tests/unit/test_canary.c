/* Canaries: every form is found wherever it stands, in bounded time, and nothing else is. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/canary.h"

static const char secret[] = "dsec-canary-7Qx\xff\x01z";

enum { SECRET_BYTES = sizeof secret - 1 };

static struct canary_list *list_of(const char *const *canaries, size_t count)
{
	struct canary_list *list;

	cr_assert_eq(canary_list_new(&list), 0);
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(canary_add(list, canaries[i], strlen(canaries[i])), 0);
	cr_assert_eq(canary_ready(list), 0);
	return list;
}

/* As any encoder would, with what stands before and behind. */
static size_t base64(const uint8_t *bytes, size_t count, const char *last, char *ret)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	size_t used = 0;

	for (size_t i = 0; i < count; i += 3) {
		uint32_t three = (uint32_t)bytes[i] << 16 |
				 (uint32_t)(i + 1 < count ? bytes[i + 1] : 0) << 8 |
				 (i + 2 < count ? bytes[i + 2] : 0);

		for (int shift = 18; shift >= 0; shift -= 6) {
			unsigned digit = three >> shift & 63;

			ret[used++] = digit < 62 ? digits[digit] : last[digit - 62];
		}
	}
	return used;
}

/* Whether it is found in that text, cut anywhere into pieces. */
static void expect_found(const void *text, size_t bytes, const char *form)
{
	struct canary_list *list = list_of((const char *[]){ "another one", secret }, 2);
	struct canary_scan scan;
	struct canary_hit hit;

	for (size_t cut = 0; cut <= bytes; cut++) {
		bool found;

		canary_begin(&scan, list);
		found = canary_feed(&scan, "before it: ", 11, &hit) ||
			canary_feed(&scan, text, cut, &hit) ||
			canary_feed(&scan, (const char *)text + cut, bytes - cut, &hit);
		cr_assert(found, "%s cut at %zu", form, cut);
		cr_assert_eq(hit.canary, 1);
		cr_assert_str_eq(hit.form, form);
		cr_assert_geq(hit.offset, 11);
		cr_assert_lt(hit.offset, 11 + bytes);
	}
	canary_list_free(list);
}

Test(canary, is_found_as_it_is_across_every_border)
{
	expect_found(secret, SECRET_BYTES, "as it is");
}

Test(canary, is_found_in_hexadecimal_of_either_case)
{
	char text[3 * sizeof secret] = "", upper[3 * sizeof secret] = "";

	for (size_t i = 0; i < SECRET_BYTES; i++) {
		sprintf(text + 2 * i, "%02x", (uint8_t)secret[i]);
		sprintf(upper + 2 * i, "%02X", (uint8_t)secret[i]);
	}
	expect_found(text, strlen(text), "hex");
	expect_found(upper, strlen(upper), "hex");
}

Test(canary, is_found_in_utf_16_of_either_order)
{
	char little[2 * SECRET_BYTES] = { 0 }, big[2 * SECRET_BYTES] = { 0 };

	for (size_t i = 0; i < SECRET_BYTES; i++)
		little[2 * i] = big[2 * i + 1] = secret[i];
	expect_found(little, sizeof little, "utf-16");
	expect_found(big, sizeof big, "utf-16");
}

Test(canary, is_found_in_base64_at_every_alignment)
{
	for (size_t before = 0; before < 6; before++) {
		for (size_t behind = 0; behind < 3; behind++) {
			uint8_t plain[64] = "abcdef";
			char text[128];
			size_t bytes;

			memcpy(plain + before, secret, SECRET_BYTES);
			memcpy(plain + before + SECRET_BYTES, "xyz", behind);
			bytes = base64(plain, before + SECRET_BYTES + behind,
				       before % 2 ? "+/" : "-_", text);
			expect_found(text, bytes, "base64");
		}
	}
}

Test(canary, is_not_found_where_it_is_not)
{
	struct canary_list *list = list_of((const char *[]){ secret }, 1);
	struct canary_scan scan;
	struct canary_hit hit;
	char text[SECRET_BYTES];

	/* All but the last byte, then something else; and a hole between the two halves. */
	memcpy(text, secret, sizeof text);
	text[sizeof text - 1]++;
	cr_expect_not(canary_find(list, text, sizeof text, &hit));
	canary_begin(&scan, list);
	cr_expect_not(canary_feed(&scan, secret, 8, &hit));
	canary_skip(&scan, 4096);
	cr_expect_not(canary_feed(&scan, secret + 8, SECRET_BYTES - 8, &hit));
	cr_expect_not(canary_feed(&scan, "", 0, &hit));
	cr_expect(canary_feed(&scan, secret, SECRET_BYTES, &hit));
	cr_expect_eq(hit.offset, 4096 + SECRET_BYTES);
	canary_list_free(list);
}

Test(canary, one_that_begins_with_another_hides_neither)
{
	struct canary_list *list =
		list_of((const char *[]){ "prefix-0", "prefix-0-and-more", "prefix-1" }, 3);
	struct canary_hit hit;

	cr_expect(canary_find(list, "xprefix-0-and-more", 18, &hit));
	cr_expect_eq(hit.canary, 0);
	cr_expect_eq(hit.offset, 1);
	cr_expect(canary_find(list, "prefix-prefix-1", 15, &hit));
	cr_expect_eq(hit.canary, 2);
	canary_list_free(list);
}

Test(canary, what_is_too_short_or_too_much_is_refused)
{
	static const char bytes[CANARY_BYTES_MAX + 1];
	struct canary_list *list;

	cr_assert_eq(canary_list_new(&list), 0);
	cr_expect_eq(canary_add(list, "1234567", 7), -EINVAL);
	cr_expect_eq(canary_add(list, bytes, sizeof bytes), -E2BIG);
	for (size_t i = 0; i < CANARIES_BYTES_MAX / CANARY_BYTES_MAX; i++)
		cr_assert_eq(canary_add(list, bytes, CANARY_BYTES_MAX), 0);
	cr_expect_eq(canary_add(list, "12345678", 8), -E2BIG);
	cr_assert_eq(canary_ready(list), 0);
	canary_list_free(list);
}

/* A thousand keys of one maker begin alike, and a guest writes nothing but that beginning. */
Test(canary, a_text_of_nothing_but_beginnings_is_no_slower, .timeout = 60)
{
	enum { TEXT_BYTES = 8 << 20 };
	struct canary_list *list;
	struct canary_hit hit;
	char *text = malloc(TEXT_BYTES), key[32];

	cr_assert(text);
	cr_assert_eq(canary_list_new(&list), 0);
	for (int i = 0; i < CANARIES_MAX; i++) {
		int bytes = snprintf(key, sizeof key, "sk-key-sk-key-%08d", i);

		cr_assert_eq(canary_add(list, key, (size_t)bytes), 0);
	}
	cr_assert_eq(canary_ready(list), 0);
	for (size_t i = 0; i < TEXT_BYTES; i++)
		text[i] = "sk-key-"[i % 7];
	cr_expect_not(canary_find(list, text, TEXT_BYTES, &hit));
	free(text);
	canary_list_free(list);
}
