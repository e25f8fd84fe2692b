/*
 * Digests as text. Called by whoever names blobs; needs no library. Must hold: one digest has one
 * text, so that texts can be compared.
 */
#include "backends/store/digest.h"

#include <string.h>

#define PREFIX "sha256:"

void digest_hex(const uint8_t digest[DIGEST_BYTES], char ret[DIGEST_HEX_BYTES])
{
	const char *digits = "0123456789abcdef";

	for (unsigned i = 0; i < DIGEST_BYTES; i++) {
		*ret++ = digits[digest[i] >> 4];
		*ret++ = digits[digest[i] & 15];
	}
	*ret = 0;
}

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool digest_parse(const char *hex, uint8_t ret[DIGEST_BYTES])
{
	uint8_t digest[DIGEST_BYTES];

	for (unsigned i = 0; i < DIGEST_BYTES; i++, hex += 2) {
		int high = digit_value(hex[0]), low = high < 0 ? -1 : digit_value(hex[1]);

		if (low < 0)
			return false;
		digest[i] = (uint8_t)(high << 4 | low);
	}
	if (*hex)
		return false;
	memcpy(ret, digest, sizeof digest);
	return true;
}

void digest_text(const uint8_t digest[DIGEST_BYTES], char ret[DIGEST_TEXT_BYTES])
{
	memcpy(ret, PREFIX, sizeof PREFIX - 1);
	digest_hex(digest, ret + sizeof PREFIX - 1);
}

bool digest_text_parse(const char *text, uint8_t ret[DIGEST_BYTES])
{
	return !strncmp(text, PREFIX, sizeof PREFIX - 1) &&
	       digest_parse(text + sizeof PREFIX - 1, ret);
}
