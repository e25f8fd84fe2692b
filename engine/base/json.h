/*
 * The engine's small bounded JSON: a writer into a caller's buffer and a reader that walks text in
 * place. No allocation, depth at most JSON_DEPTH_MAX.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH_MAX = 16 };

struct json_writer {
	char *text;
	size_t bytes, bytes_max; /* bytes over bytes_max - 1: what the text would have needed */
	uint8_t depth;
	bool comma[JSON_DEPTH_MAX];
	char end[JSON_DEPTH_MAX]; /* of each open object or array */
	bool started;		  /* the one value at the top was begun */
	bool broken;		  /* misused: json_close() says -EINVAL */
};

void json_open(struct json_writer *w, char *text, size_t bytes_max);
void json_object(struct json_writer *w, const char *key); /* key NULL in arrays and at the top */
void json_array(struct json_writer *w, const char *key);
void json_end(struct json_writer *w);
/* NULL: null. What is not UTF-8 becomes U+FFFD. */
void json_string(struct json_writer *w, const char *key, const char *value);
/* {"text": "..."}, or {"text": null, "base64": "..."} when the bytes are not UTF-8. */
void json_bytes(struct json_writer *w, const char *key, const void *value, size_t bytes);
void json_unsigned(struct json_writer *w, const char *key, uint64_t value);
void json_signed(struct json_writer *w, const char *key, int64_t value);
void json_double(struct json_writer *w, const char *key, double value); /* NaN, inf: null */
void json_bool(struct json_writer *w, const char *key, bool value);
void json_null(struct json_writer *w, const char *key);
/*
 * 0, or -ENOSPC when the text did not fit and is cut, -EINVAL when it is not one value: unbalanced,
 * too deep, a key missing in an object or given elsewhere. Terminates the text.
 */
int json_close(struct json_writer *w);

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json_value {
	enum json_kind kind;
	const char *text; /* the raw text of the value */
	size_t bytes;
};

/*
 * Parse one value that fills `text` but for white space, all of it checked, UTF-8 and surrogates
 * too. -EINVAL, -E2BIG (depth). Values point into `text`, which must stay.
 */
int json_parse(const char *text, size_t bytes, struct json_value *ret);
/* A member of an object by name: -ENOENT, -EINVAL when `object` is not one or has it twice. */
int json_member(const struct json_value *object, const char *key, struct json_value *ret);
/* Walk an array: *cursor starts at 0. -ENOENT at its end. */
int json_next(const struct json_value *array, size_t *cursor, struct json_value *ret);
/* -EINVAL for what is not written as an integer, -ERANGE. */
int json_to_unsigned(const struct json_value *v, uint64_t *ret);
int json_to_signed(const struct json_value *v, int64_t *ret);
int json_to_bool(const struct json_value *v, bool *ret);
/*
 * Unescaped, terminated; -ENOSPC when it does not fit, -EINVAL when it has a NUL. Returns the bytes
 * before the terminator. On failure `ret` holds nothing of use.
 */
int json_to_string(const struct json_value *v, char *ret, size_t bytes_max);
