/* Parsing and printing of values for people. Called by params.c and by the verbs. Stateless. */
#include "sdk/cli/values.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

struct unit {
	const char *name;
	uint64_t factor;
};

static int number_parse(const char *text, uint64_t *ret, const char **ret_end)
{
	uint64_t value = 0;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	for (; isdigit((unsigned char)*text); text++) {
		uint64_t digit = (uint64_t)(*text - '0');

		if (value > (UINT64_MAX - digit) / 10)
			return -ERANGE;
		value = value * 10 + digit;
	}
	*ret = value;
	*ret_end = text;
	return 0;
}

static int unit_parse(const char *text, const struct unit *units, uint64_t *ret)
{
	const char *end;
	uint64_t value;
	int r;

	r = number_parse(text, &value, &end);
	if (r < 0)
		return r;
	for (; units->name; units++) {
		if (strcasecmp(units->name, end) != 0)
			continue;
		if (value > UINT64_MAX / units->factor)
			return -ERANGE;
		*ret = value * units->factor;
		return 0;
	}
	return -EINVAL;
}

int value_parse_ms(const char *text, uint64_t *ret_ms)
{
	static const struct unit units[] = {
		{ "", 1000 },	      { "ms", 1 },	     { "s", 1000 }, { "m", 60 * 1000 },
		{ "h", 3600 * 1000 }, { "d", 86400 * 1000 }, { NULL, 0 },
	};

	return unit_parse(text, units, ret_ms);
}

int value_parse_bytes(const char *text, uint64_t *ret_bytes)
{
	static const struct unit units[] = {
		{ "", 1 },	     { "b", 1 },
		{ "k", 1ull << 10 }, { "kb", 1ull << 10 },
		{ "m", 1ull << 20 }, { "mb", 1ull << 20 },
		{ "g", 1ull << 30 }, { "gb", 1ull << 30 },
		{ "t", 1ull << 40 }, { "tb", 1ull << 40 },
		{ NULL, 0 },
	};

	return unit_parse(text, units, ret_bytes);
}

int value_parse_number(const char *text, uint64_t *ret)
{
	static const struct unit units[] = { { "", 1 }, { NULL, 0 } };

	return unit_parse(text, units, ret);
}

int value_parse_permille(const char *text, uint64_t *ret)
{
	uint64_t whole, part = 0;
	const char *end, *point;
	int r;

	r = number_parse(text, &whole, &end);
	if (r < 0)
		return r;
	if (*end == '.') {
		point = end + 1;
		r = number_parse(point, &part, &end);
		if (r < 0 || end - point > 3)
			return -EINVAL;
		for (ptrdiff_t digits = end - point; digits < 3; digits++)
			part *= 10;
	}
	if (*end)
		return -EINVAL;
	if (whole > (UINT64_MAX - part) / 1000)
		return -ERANGE;
	*ret = whole * 1000 + part;
	return 0;
}

void value_print_permille(uint64_t permille, char *ret_text)
{
	int digits = 3;
	uint64_t part = permille % 1000;

	while (part && part % 10 == 0) {
		part /= 10;
		digits--;
	}
	if (part)
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%" PRIu64 ".%0*" PRIu64,
			       permille / 1000, digits, part); /* fits */
	else
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%" PRIu64, permille / 1000);
}

/* In the largest unit that divides it; `units` begin with 1 and grow. */
static void unit_print(uint64_t value, const struct unit *units, char *ret_text)
{
	const struct unit *best = units;

	for (; units->name; units++) {
		if (value % units->factor == 0)
			best = units;
	}
	(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%" PRIu64 "%s", value / best->factor,
		       best->name); /* fits: 20 digits */
}

void value_print_exact_ms(uint64_t ms, char *ret_text)
{
	static const struct unit units[] = { { "ms", 1 },	    { "s", 1000 },
					     { "m", 60 * 1000 },    { "h", 3600 * 1000 },
					     { "d", 86400 * 1000 }, { NULL, 0 } };

	unit_print(ms, units, ret_text);
}

void value_print_exact_bytes(uint64_t bytes, char *ret_text)
{
	static const struct unit units[] = { { "", 1 },		  { "K", 1ull << 10 },
					     { "M", 1ull << 20 }, { "G", 1ull << 30 },
					     { "T", 1ull << 40 }, { NULL, 0 } };

	unit_print(bytes, units, ret_text);
}

void value_print_ms(uint64_t ms, char *ret_text)
{
	uint64_t s = ms / 1000, m = s / 60, h = m / 60, d = h / 24;

	if (ms == UINT64_MAX)
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "-"); /* fits, as all here */
	else if (s < 60)
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%" PRIu64 "s", s);
	else if (m < 60)
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%" PRIu64 "m", m);
	else if (h < 24)
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%" PRIu64 "h%" PRIu64 "m", h, m % 60);
	else
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%" PRIu64 "d%" PRIu64 "h", d, h % 24);
}

void value_print_bytes(uint64_t bytes, char *ret_text)
{
	static const char *const names[] = { "B", "KB", "MB", "GB", "TB", "PB" };
	size_t unit = 0;
	uint64_t tenths;

	if (bytes == UINT64_MAX) {
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "-"); /* fits, as all here */
		return;
	}
	if (bytes < 1024) {
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%" PRIu64 " B", bytes);
		return;
	}
	while (bytes >= 1024 * 1024 && unit < 4) {
		bytes /= 1024;
		unit++;
	}
	tenths = bytes * 10 / 1024;
	unit++;
	if (tenths < 100)
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%" PRIu64 ".%" PRIu64 " %s",
			       tenths / 10, tenths % 10, names[unit]);
	else
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%" PRIu64 " %s", tenths / 10,
			       names[unit]);
}

void value_print_count(uint64_t count, char *ret_text)
{
	char digits[VALUE_TEXT_BYTES];
	int n = snprintf(digits, sizeof(digits), "%" PRIu64, count), at = 0;

	for (int digit = 0; digit < n; digit++) {
		if (digit && (n - digit) % 3 == 0)
			ret_text[at++] = ',';
		ret_text[at++] = digits[digit];
	}
	ret_text[at] = '\0';
}

/* Bytes of the character at the front: 0 if it is not UTF-8, as overlong forms are not. */
static size_t character_bytes(const unsigned char *at, size_t left)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t bytes = *at < 0x80 ? 1 : *at < 0xc2 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : 4;
	uint32_t code = *at & (0xff >> (bytes + 1));

	if (bytes <= 1)
		return bytes;
	if (*at > 0xf4 || bytes > left)
		return 0;
	for (size_t k = 1; k < bytes; k++) {
		if ((at[k] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (at[k] & 0x3f);
	}
	if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	return bytes;
}

bool value_is_utf8(struct dsec_bytes bytes)
{
	const unsigned char *at = bytes.data;
	size_t left = bytes.bytes;

	while (left) {
		size_t n = character_bytes(at, left);

		if (!n)
			return false;
		at += n;
		left -= n;
	}
	return true;
}

/* C0, DEL, and C1 as UTF-8 writes it. */
static bool is_control(const unsigned char *at, size_t bytes)
{
	if (bytes == 1)
		return *at < 0x20 || *at == 0x7f;
	return bytes == 2 && at[0] == 0xc2 && at[1] < 0xa0;
}

void value_write(FILE *file, struct dsec_bytes bytes)
{
	const unsigned char *at = bytes.data;
	size_t left = bytes.bytes;

	/* Whether the file took it is told at the end, by main(). */
	while (left) {
		size_t n = character_bytes(at, left);

		if (!n || is_control(at, n)) {
			n = n ? n : 1;
			for (size_t k = 0; k < n; k++)
				(void)fprintf(file, "\\x%02x", at[k]);
		} else {
			(void)fwrite(at, 1, n, file);
		}
		at += n;
		left -= n;
	}
}

size_t value_columns(struct dsec_bytes bytes)
{
	const unsigned char *at = bytes.data;
	size_t left = bytes.bytes, columns = 0;

	while (left) {
		size_t n = character_bytes(at, left);

		columns += !n ? 4 : is_control(at, n) ? 4 * n : 1;
		n = n ? n : 1;
		at += n;
		left -= n;
	}
	return columns;
}
