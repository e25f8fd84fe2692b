/* Structs that grow: their callers may be older or newer than this library. */
#pragma once

#include <stddef.h>

/*
 * Copies a caller's struct, which begins with its size, into `known`, zeroing what the caller's
 * version lacks. -EINVAL: none, or no size; -E2BIG: a tail unknown here is not zero. `what` names
 * the call.
 */
int dsec__struct_take(void *known, size_t known_bytes, const void *given, const char *what);
