/* Valid UTF-8 against the definition, exhaustively. */
#include "engine/base/utf8.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

/* Every code point, encoded as the definition says. */
static unsigned encode(uint32_t c, char ret[4])
{
	unsigned length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const unsigned char first[] = { 0, 0x00, 0xc0, 0xe0, 0xf0 };

	for (unsigned i = length; i-- > 1; c >>= 6)
		ret[i] = (char)(0x80 | (c & 63));
	ret[0] = (char)(first[length] | c);
	return length;
}

Test(utf8, every_character_is_one_and_surrogates_are_none)
{
	char text[4];

	for (uint32_t c = 0; c < 0x110000; c++) {
		unsigned length = encode(c, text);
		bool surrogate = c >= 0xd800 && c < 0xe000;

		cr_assert_eq(utf8_length(text, 4), surrogate ? 0 : length, "U+%04X", c);
		cr_assert_eq(utf8_length(text, length), surrogate ? 0 : length);
		if (length > 1)
			cr_assert_eq(utf8_length(text, length - 1), 0, "U+%04X cut", c);
	}
}

/* All that begin with two given bytes: what is valid is counted against what Unicode has. */
Test(utf8, nothing_else_is_a_character)
{
	uint32_t valid = 0;
	char text[4] = "";

	for (uint32_t word = 0; word < 1u << 24; word++) {
		text[0] = (char)(word >> 16);
		text[1] = (char)(word >> 8);
		text[2] = (char)word;
		if (utf8_length(text, 3) == 3)
			valid++;
	}
	cr_assert_eq(valid, 0x10000 - 0x800 - 0x800); /* U+0800 .. U+FFFF without surrogates */
	cr_assert_eq(utf8_length("\xf5\x80\x80\x80", 4), 0);
	cr_assert_eq(utf8_length("\xf4\x90\x80\x80", 4), 0);
	cr_assert_eq(utf8_length("\xf0\x8f\xbf\xbf", 4), 0);
	cr_assert_eq(utf8_length("\xc1\xbf", 2), 0);
}

Test(utf8, text_is_valid_only_as_a_whole)
{
	cr_assert(utf8_valid("", 0));
	cr_assert(utf8_valid("gr\xc3\xbc\xc3\x9f", 6));
	cr_assert_not(utf8_valid("gr\xc3\xbc\xc3\x9f", 5));
	cr_assert_not(utf8_valid("a\x80", 2));
	cr_assert(utf8_valid("a\0b", 3));
}
