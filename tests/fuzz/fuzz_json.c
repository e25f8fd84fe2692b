/*
 * Feeds the JSON reader arbitrary bytes, walks whatever it accepts through every accessor, writes
 * it anew and wants the same value back. Holds no state between inputs.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { NAME_MAX_BYTES = 64 };

static void value_write(struct json_writer *w, const char *key, const struct json_value *v);

static void elements_write(struct json_writer *w, const struct json_value *array)
{
	struct json_value element;
	size_t cursor = 0;
	int r;

	while ((r = json_next(array, &cursor, &element)) == 0)
		value_write(w, NULL, &element);
	assert(r == -ENOENT);
}

static void scalar_write(struct json_writer *w, const char *key, const struct json_value *v)
{
	char text[NAME_MAX_BYTES];
	uint64_t number;
	int64_t integer;
	bool yes;
	int r;

	if (json_to_bool(v, &yes) == 0)
		json_bool(w, key, yes);
	else if (json_to_unsigned(v, &number) == 0)
		json_unsigned(w, key, number);
	else if (json_to_signed(v, &integer) == 0)
		json_signed(w, key, integer);
	else if ((r = json_to_string(v, text, sizeof text)) >= 0) {
		assert((size_t)r == strlen(text));
		assert(utf8_valid(text, (size_t)r));
		json_string(w, key, text);
	} else {
		assert(r == -EINVAL || r == -ENOSPC);
		json_null(w, key);
	}
}

static void value_write(struct json_writer *w, const char *key, const struct json_value *v)
{
	struct json_value member;

	if (v->kind == JSON_ARRAY) {
		json_array(w, key);
		elements_write(w, v);
		json_end(w);
	} else if (v->kind == JSON_OBJECT) {
		json_object(w, key);
		if (json_member(v, "a", &member) == 0)
			value_write(w, "a", &member);
		json_end(w);
	} else {
		scalar_write(w, key, v);
	}
}

static size_t rewrite(const struct json_value *v, char *text, size_t bytes_max)
{
	struct json_writer w;
	int r;

	json_open(&w, text, bytes_max);
	value_write(&w, NULL, v);
	r = json_close(&w);
	assert(r == 0);
	assert(strlen(text) == w.bytes);
	return w.bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct json_value value;
	size_t room = bytes * 6 + 64, once_bytes, twice_bytes;
	char *text = malloc(bytes ? bytes : 1), *once = malloc(room), *twice = malloc(room);
	int r;

	assert(text);
	assert(once);
	assert(twice);
	memcpy(text, data, bytes); /* exactly as large: a read past the end is seen */
	r = json_parse(text, bytes, &value);
	assert(r == 0 || r == -EINVAL || r == -E2BIG);
	if (r == 0) {
		assert(value.text >= text);
		assert(value.text + value.bytes <= text + bytes);
		once_bytes = rewrite(&value, once, room);
		r = json_parse(once, once_bytes, &value);
		assert(r == 0);
		twice_bytes = rewrite(&value, twice, room);
		assert(once_bytes == twice_bytes);
		assert(memcmp(once, twice, once_bytes) == 0);
	}
	free(text);
	free(once);
	free(twice);
	return 0;
}
