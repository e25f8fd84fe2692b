/*
 * Owns the definition of valid UTF-8; used by JSON and by whoever shows bytes of a guest. Reads at
 * most `bytes`.
 */
#include "engine/base/utf8.h"

/* How many bytes a character takes, by its first; 0 when none begins so. */
static size_t length_of(unsigned char first)
{
	if (first < 0x80)
		return 1;
	if (first < 0xc2)
		return 0;
	if (first < 0xe0)
		return 2;
	if (first < 0xf0)
		return 3;
	return first < 0xf5 ? 4 : 0;
}

size_t utf8_length(const char *text, size_t bytes)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t length = length_of(at[0]);

	if (length > bytes)
		return 0;
	for (size_t i = 1; i < length; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	if (at[0] == 0xe0 && at[1] < 0xa0)
		return 0; /* overlong */
	if (at[0] == 0xed && at[1] > 0x9f)
		return 0; /* a surrogate */
	if (at[0] == 0xf0 && at[1] < 0x90)
		return 0; /* overlong */
	if (at[0] == 0xf4 && at[1] > 0x8f)
		return 0; /* above U+10FFFF */
	return length;
}

bool utf8_valid(const void *text, size_t bytes)
{
	const char *at = text;

	while (bytes) {
		size_t length = utf8_length(at, bytes);

		if (!length)
			return false;
		at += length;
		bytes -= length;
	}
	return true;
}
