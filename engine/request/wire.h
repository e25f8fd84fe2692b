/*
 * Checked reading of a request's payload: our private copy of bytes that a client wrote. Every
 * reference is bounds-checked without overflow before use.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsec/ring.h"

struct wire {
	const char *payload;
	uint32_t bytes;
};

/*
 * The fixed struct at the payload's start. `size` is its first member: shorter ones are filled up
 * with zero, longer ones must be zero beyond what we know. -EINVAL, -E2BIG.
 */
int wire_struct(const struct wire *w, void *ret, uint32_t bytes);
/* The bytes of a reference: -EINVAL out of bounds. Absent: *ret is NULL, bytes 0. */
int wire_bytes(const struct wire *w, struct dsec_wire_ref ref, const char **ret);
/* A reference as a C string in `ret`: -EINVAL (out of bounds, NUL inside), -ENAMETOOLONG. */
int wire_string(const struct wire *w, struct dsec_wire_ref ref, char *ret, uint32_t bytes_max);
#define WIRE_USER_RULE "a name, or uid or uid:gid below 65536; at most 63 bytes"

/*
 * The same of a user: a name, which begins with no digit and only the sandbox knows, a uid, or
 * uid:gid, both below 65536. -EINVAL: none of these.
 */
int wire_user(const struct wire *w, struct dsec_wire_ref ref, char *ret, uint32_t bytes_max);
/* The same of a host name: letters, digits and . _ - */
int wire_hostname(const struct wire *w, struct dsec_wire_ref ref, char *ret, uint32_t bytes_max);
/* Walk a list: *cursor starts at 0. 1: an item; 0: the end; -EINVAL. */
int wire_next(const struct wire *w, const struct dsec_wire_items *items, uint32_t *cursor,
	      struct dsec_wire_ref *ret);
/* The whole list is well-formed and has `count` items. */
int wire_items_check(const struct wire *w, const struct dsec_wire_items *items);
bool wire_is_zero(const void *bytes, size_t count);
