/*
 * Owns the reading of JSON in place. Called with text from clients, operators and our own records:
 * nothing in it is trusted. Always true: no read past `end`, no recursion deeper than
 * JSON_DEPTH_MAX, and a json_value handed out covers one complete value.
 */
#include "engine/base/json.h"

#include <errno.h>
#include <string.h>

#include "engine/base/utf8.h"

struct reader {
	const char *at, *end;
};

static int value_read(struct reader *r, unsigned depth, struct json_value *ret);

static void space_skip(struct reader *r)
{
	while (r->at < r->end &&
	       (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
		r->at++;
}

/* Takes the byte if it is next. */
static bool byte_take(struct reader *r, char byte)
{
	if (r->at == r->end || *r->at != byte)
		return false;
	r->at++;
	return true;
}

static bool digits_take(struct reader *r)
{
	const char *from = r->at;

	while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
		r->at++;
	return r->at > from;
}

static int hex_read(struct reader *r, uint32_t *ret)
{
	uint32_t value = 0;

	if (r->end - r->at < 4)
		return -EINVAL;
	for (const char *end = r->at + 4; r->at < end; r->at++) {
		char c = *r->at;

		if (c >= '0' && c <= '9')
			value = value << 4 | (uint32_t)(c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			value = value << 4 | (uint32_t)((c | 0x20) - 'a' + 10);
		else
			return -EINVAL;
	}
	*ret = value;
	return 0;
}

static int utf8_encode(uint32_t c, char ret[4])
{
	if (c < 0x80) {
		ret[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		ret[0] = (char)(0xc0 | c >> 6);
		ret[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		ret[0] = (char)(0xe0 | c >> 12);
		ret[1] = (char)(0x80 | (c >> 6 & 63));
		ret[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	ret[0] = (char)(0xf0 | c >> 18);
	ret[1] = (char)(0x80 | (c >> 12 & 63));
	ret[2] = (char)(0x80 | (c >> 6 & 63));
	ret[3] = (char)(0x80 | (c & 63));
	return 4;
}

/* After `\u`. A surrogate must be one of a pair. */
static int unicode_read(struct reader *r, char ret[4])
{
	uint32_t high, low;
	int e = hex_read(r, &high);

	if (e < 0)
		return e;
	if (high < 0xd800 || high > 0xdfff)
		return utf8_encode(high, ret);
	if (high > 0xdbff || !byte_take(r, '\\') || !byte_take(r, 'u'))
		return -EINVAL;
	e = hex_read(r, &low);
	if (e < 0)
		return e;
	if (low < 0xdc00 || low > 0xdfff)
		return -EINVAL;
	return utf8_encode(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), ret);
}

/* One character inside a string, unescaped: its bytes, 0 at the closing quote, -EINVAL. */
static int character_read(struct reader *r, char ret[4])
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *escape;
	size_t length;

	if (r->at == r->end || (unsigned char)*r->at < ' ')
		return -EINVAL;
	if (byte_take(r, '"'))
		return 0;
	if (byte_take(r, '\\')) {
		if (byte_take(r, 'u'))
			return unicode_read(r, ret);
		escape = r->at < r->end ? memchr(from, *r->at, sizeof from - 1) : NULL;
		if (!escape)
			return -EINVAL;
		r->at++;
		ret[0] = to[escape - from];
		return 1;
	}
	length = utf8_length(r->at, (size_t)(r->end - r->at));
	if (!length)
		return -EINVAL;
	memcpy(ret, r->at, length);
	r->at += length;
	return (int)length;
}

static int string_read(struct reader *r)
{
	char character[4];
	int e;

	if (!byte_take(r, '"'))
		return -EINVAL;
	do
		e = character_read(r, character);
	while (e > 0);
	return e;
}

static int number_read(struct reader *r)
{
	(void)byte_take(r, '-'); /* optional */
	if (!byte_take(r, '0') && !digits_take(r))
		return -EINVAL;
	if (byte_take(r, '.') && !digits_take(r))
		return -EINVAL;
	if (byte_take(r, 'e') || byte_take(r, 'E')) {
		if (!byte_take(r, '+'))
			(void)byte_take(r, '-'); /* optional */
		if (!digits_take(r))
			return -EINVAL;
	}
	return 0;
}

static int word_read(struct reader *r, const char *word)
{
	for (; *word; word++)
		if (!byte_take(r, *word))
			return -EINVAL;
	return 0;
}

/* `"key" :` or nothing in an array. */
static int key_read(struct reader *r, struct json_value *ret)
{
	int e;

	*ret = (struct json_value){ .kind = JSON_STRING, .text = r->at };
	e = string_read(r);
	if (e < 0)
		return e;
	ret->bytes = (size_t)(r->at - ret->text);
	space_skip(r);
	return byte_take(r, ':') ? 0 : -EINVAL;
}

/* The elements of an array or object whose opening bracket was taken, and its closing one. */
static int elements_read(struct reader *r, unsigned depth, char end)
{
	struct json_value key, value;
	int e;

	space_skip(r);
	if (byte_take(r, end))
		return 0;
	do {
		space_skip(r);
		e = end == '}' ? key_read(r, &key) : 0;
		if (e < 0)
			return e;
		e = value_read(r, depth, &value);
		if (e < 0)
			return e;
		space_skip(r);
	} while (byte_take(r, ','));
	return byte_take(r, end) ? 0 : -EINVAL;
}

static int value_read(struct reader *r, unsigned depth, struct json_value *ret)
{
	const char *from;
	enum json_kind kind = JSON_NUMBER;
	int e;

	space_skip(r);
	from = r->at;
	if (r->at == r->end)
		return -EINVAL;
	if (*r->at == '{' || *r->at == '[') {
		if (depth == JSON_DEPTH_MAX)
			return -E2BIG;
		kind = *r->at++ == '{' ? JSON_OBJECT : JSON_ARRAY;
		e = elements_read(r, depth + 1, kind == JSON_OBJECT ? '}' : ']');
	} else if (*r->at == '"') {
		kind = JSON_STRING;
		e = string_read(r);
	} else if (*r->at == 't' || *r->at == 'f') {
		kind = JSON_BOOL;
		e = word_read(r, *r->at == 't' ? "true" : "false");
	} else if (*r->at == 'n') {
		kind = JSON_NULL;
		e = word_read(r, "null");
	} else {
		e = number_read(r);
	}
	if (e < 0)
		return e;
	*ret = (struct json_value){ .kind = kind, .text = from, .bytes = (size_t)(r->at - from) };
	return 0;
}

int json_parse(const char *text, size_t bytes, struct json_value *ret)
{
	struct reader r = { .at = text, .end = text + bytes };
	struct json_value value;
	int e = value_read(&r, 0, &value);

	if (e < 0)
		return e;
	space_skip(&r);
	if (r.at != r.end)
		return -EINVAL;
	*ret = value;
	return 0;
}

static bool key_is(const struct json_value *key, const char *name)
{
	struct reader r = { .at = key->text + 1, .end = key->text + key->bytes };
	char character[4];
	int bytes;

	while ((bytes = character_read(&r, character)) > 0) {
		if (strncmp(name, character, (size_t)bytes) || !character[0])
			return false;
		name += bytes;
	}
	return bytes == 0 && !*name;
}

int json_member(const struct json_value *object, const char *key, struct json_value *ret)
{
	struct reader r = { .at = object->text + 1, .end = object->text + object->bytes };
	struct json_value name, value, found = { 0 };
	int e;

	if (object->kind != JSON_OBJECT)
		return -EINVAL;
	space_skip(&r);
	if (byte_take(&r, '}'))
		return -ENOENT;
	do {
		space_skip(&r);
		e = key_read(&r, &name);
		if (e < 0)
			return e;
		e = value_read(&r, 0, &value);
		if (e < 0)
			return e;
		if (key_is(&name, key)) {
			if (found.text)
				return -EINVAL; /* which one is meant depends on the reader */
			found = value;
		}
		space_skip(&r);
	} while (byte_take(&r, ','));
	if (!found.text)
		return -ENOENT;
	*ret = found;
	return 0;
}

int json_next(const struct json_value *array, size_t *cursor, struct json_value *ret)
{
	size_t from = *cursor ? *cursor : 1;
	struct reader r = { .at = array->text + from, .end = array->text + array->bytes };
	struct json_value value;
	int e;

	if (array->kind != JSON_ARRAY || from > array->bytes)
		return -EINVAL;
	space_skip(&r);
	if (byte_take(&r, ']'))
		return -ENOENT;
	e = value_read(&r, 0, &value);
	if (e < 0)
		return e;
	space_skip(&r);
	(void)byte_take(&r, ','); /* none after the last one */
	*cursor = (size_t)(r.at - array->text);
	*ret = value;
	return 0;
}

static int magnitude_of(const struct json_value *v, bool *ret_negative, uint64_t *ret)
{
	bool negative = v->kind == JSON_NUMBER && v->text[0] == '-';
	uint64_t value = 0;

	if (v->kind != JSON_NUMBER)
		return -EINVAL;
	for (size_t i = negative; i < v->bytes; i++)
		if (v->text[i] < '0' || v->text[i] > '9')
			return -EINVAL;
	for (size_t i = negative; i < v->bytes; i++) {
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(v->text[i] - '0'), &value))
			return -ERANGE;
	}
	*ret_negative = negative;
	*ret = value;
	return 0;
}

int json_to_unsigned(const struct json_value *v, uint64_t *ret)
{
	bool negative;
	uint64_t value;
	int e = magnitude_of(v, &negative, &value);

	if (e < 0)
		return e;
	if (negative && value)
		return -ERANGE;
	*ret = value;
	return 0;
}

int json_to_signed(const struct json_value *v, int64_t *ret)
{
	bool negative;
	uint64_t value;
	int e = magnitude_of(v, &negative, &value);

	if (e < 0)
		return e;
	if (value > (uint64_t)INT64_MAX + negative)
		return -ERANGE;
	*ret = (int64_t)(negative ? 0 - value : value);
	return 0;
}

int json_to_bool(const struct json_value *v, bool *ret)
{
	if (v->kind != JSON_BOOL)
		return -EINVAL;
	*ret = v->text[0] == 't';
	return 0;
}

int json_to_string(const struct json_value *v, char *ret, size_t bytes_max)
{
	struct reader r = { .at = v->text + 1, .end = v->text + v->bytes };
	char character[4];
	size_t at = 0;
	int bytes;

	if (v->kind != JSON_STRING)
		return -EINVAL;
	while ((bytes = character_read(&r, character)) > 0) {
		if (bytes == 1 && !character[0])
			return -EINVAL;
		if (at + (size_t)bytes + 1 > bytes_max)
			return -ENOSPC;
		memcpy(ret + at, character, (size_t)bytes);
		at += (size_t)bytes;
	}
	if (bytes < 0)
		return bytes;
	if (at + 1 > bytes_max)
		return -ENOSPC;
	ret[at] = 0;
	return (int)at;
}
