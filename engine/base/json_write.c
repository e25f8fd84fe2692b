/*
 * Owns the writing of JSON into a caller's buffer; used for policies, records and `--json`. Always
 * true: what is written so far is a prefix of one valid document, unless the writer is broken.
 */
#include "engine/base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"

void json_open(struct json_writer *w, char *text, size_t bytes_max)
{
	*w = (struct json_writer){ .text = text, .bytes_max = bytes_max };
	if (bytes_max)
		text[0] = 0;
}

static void put(struct json_writer *w, const char *bytes, size_t count)
{
	if (w->bytes + 1 < w->bytes_max) {
		size_t room = w->bytes_max - 1 - w->bytes;

		memcpy(w->text + w->bytes, bytes, count < room ? count : room);
	}
	w->bytes += count;
}

static void put_text(struct json_writer *w, const char *text)
{
	put(w, text, strlen(text));
}

static void put_escaped(struct json_writer *w, unsigned char c)
{
	const char *at, from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	char escape[8];

	at = c ? strchr(from, c) : NULL;
	if (at)
		snprintf(escape, sizeof escape, "\\%c", to[at - from]);
	else
		snprintf(escape, sizeof escape, "\\u%04x", c);
	put_text(w, escape);
}

static void put_string(struct json_writer *w, const char *value, size_t bytes)
{
	put(w, "\"", 1);
	while (bytes) {
		size_t length = utf8_length(value, bytes);
		unsigned char c = (unsigned char)*value;

		if (c < ' ' || c == '"' || c == '\\')
			put_escaped(w, c);
		else if (length)
			put(w, value, length);
		else
			put_text(w, "\xef\xbf\xbd"); /* U+FFFD */
		value += length ? length : 1;
		bytes -= length ? length : 1;
	}
	put(w, "\"", 1);
}

/* What comes before a value at this place. */
static void value_begin(struct json_writer *w, const char *key)
{
	bool member = w->depth && w->end[w->depth - 1] == '}';

	if (member != (key != NULL) || (!w->depth && w->started))
		w->broken = true;
	w->started = true;
	if (w->depth) {
		if (w->comma[w->depth - 1])
			put(w, ",", 1);
		w->comma[w->depth - 1] = true;
	}
	if (key) {
		put_string(w, key, strlen(key));
		put(w, ":", 1);
	}
}

static void nest(struct json_writer *w, const char *key, const char *begin, char end)
{
	value_begin(w, key);
	if (w->depth == JSON_DEPTH_MAX) {
		w->broken = true;
		return;
	}
	put_text(w, begin);
	w->comma[w->depth] = false;
	w->end[w->depth++] = end;
}

void json_object(struct json_writer *w, const char *key)
{
	nest(w, key, "{", '}');
}

void json_array(struct json_writer *w, const char *key)
{
	nest(w, key, "[", ']');
}

void json_end(struct json_writer *w)
{
	if (!w->depth) {
		w->broken = true;
		return;
	}
	put(w, &w->end[--w->depth], 1);
}

void json_string(struct json_writer *w, const char *key, const char *value)
{
	if (!value) {
		json_null(w, key);
		return;
	}
	value_begin(w, key);
	put_string(w, value, strlen(value));
}

static void put_base64(struct json_writer *w, const unsigned char *value, size_t bytes)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				     "0123456789+/";

	put(w, "\"", 1);
	for (size_t i = 0; i < bytes; i += 3) {
		size_t left = bytes - i;
		uint32_t word = (uint32_t)value[i] << 16;
		char four[4];

		if (left > 1)
			word |= (uint32_t)value[i + 1] << 8;
		if (left > 2)
			word |= value[i + 2];
		four[0] = digits[word >> 18];
		four[1] = digits[word >> 12 & 63];
		four[2] = left > 1 ? digits[word >> 6 & 63] : '=';
		four[3] = left > 2 ? digits[word & 63] : '=';
		put(w, four, 4);
	}
	put(w, "\"", 1);
}

void json_bytes(struct json_writer *w, const char *key, const void *value, size_t bytes)
{
	json_object(w, key);
	if (utf8_valid(value, bytes)) {
		value_begin(w, "text");
		put_string(w, value, bytes);
	} else {
		json_null(w, "text");
		value_begin(w, "base64");
		put_base64(w, value, bytes);
	}
	json_end(w);
}

void json_unsigned(struct json_writer *w, const char *key, uint64_t value)
{
	char digits[24];

	value_begin(w, key);
	snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
	put_text(w, digits);
}

void json_signed(struct json_writer *w, const char *key, int64_t value)
{
	char digits[24];

	value_begin(w, key);
	snprintf(digits, sizeof digits, "%lld", (long long)value);
	put_text(w, digits);
}

/* With as few digits as give the same value again. */
void json_double(struct json_writer *w, const char *key, double value)
{
	char digits[40];
	char *comma;

	if (!isfinite(value)) {
		json_null(w, key);
		return;
	}
	value_begin(w, key);
	for (int precision = 15; precision <= 17; precision++) {
		snprintf(digits, sizeof digits, "%.*g", precision, value);
		if (strtod(digits, NULL) == value)
			break;
	}
	comma = strchr(digits, ','); /* some locales' decimal point */
	if (comma)
		*comma = '.';
	put_text(w, digits);
}

void json_bool(struct json_writer *w, const char *key, bool value)
{
	value_begin(w, key);
	put_text(w, value ? "true" : "false");
}

void json_null(struct json_writer *w, const char *key)
{
	value_begin(w, key);
	put_text(w, "null");
}

int json_close(struct json_writer *w)
{
	if (w->bytes_max)
		w->text[w->bytes < w->bytes_max ? w->bytes : w->bytes_max - 1] = 0;
	if (w->broken || w->depth || !w->started)
		return -EINVAL;
	return w->bytes < w->bytes_max ? 0 : -ENOSPC;
}
