/*
 * Ids as text: 128 bits as 26 characters of Crockford's base32, most significant first, so that
 * texts sort as ids do. 26 characters hold 130 bits: the first is at most '7'. Called by
 * applications; stateless.
 */
#include <errno.h>
#include <string.h>

#include <dsec/dsec.h>

#include "sdk/lib/error.h"

enum { ID_CHARACTERS = 26, ID_BITS_EACH = 5 };

static const char id_alphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";

static int id_digit(char character)
{
	const char *found;

	if (character >= 'A' && character <= 'Z')
		character = (char)(character - 'A' + 'a');
	/* What people misread: i and l are one, o is zero. */
	if (character == 'i' || character == 'l')
		return 1;
	if (character == 'o')
		return 0;
	found = character ? strchr(id_alphabet, character) : NULL;
	return found ? (int)(found - id_alphabet) : -1;
}

int dsec_id_parse(const char *text, struct dsec_id *ret)
{
	struct dsec_id id = { 0, 0 };

	if (!text || !ret)
		return dsec__fail(-EINVAL, "id: NULL");
	if (strnlen(text, ID_CHARACTERS + 1) != ID_CHARACTERS)
		return dsec__fail(-EINVAL, "id: not %d characters", ID_CHARACTERS);
	for (int at = 0; at < ID_CHARACTERS; at++) {
		int digit = id_digit(text[at]);

		if (digit < 0)
			return dsec__fail(-EINVAL, "id: character %d is not base32", at + 1);
		if (at == 0 && digit > 7)
			return dsec__fail(-EINVAL, "id: more than 128 bits");
		id.hi = id.hi << ID_BITS_EACH | id.lo >> (64 - ID_BITS_EACH);
		id.lo = id.lo << ID_BITS_EACH | (uint64_t)digit;
	}
	*ret = id;
	return 0;
}

void dsec_id_print(struct dsec_id id, char ret_text[27])
{
	for (int at = ID_CHARACTERS - 1; at >= 0; at--) {
		ret_text[at] = id_alphabet[id.lo & ((1 << ID_BITS_EACH) - 1)];
		id.lo = id.lo >> ID_BITS_EACH | id.hi << (64 - ID_BITS_EACH);
		id.hi >>= ID_BITS_EACH;
	}
	ret_text[ID_CHARACTERS] = '\0';
}
