/* UTF-8 as Unicode defines it: nothing overlong, no surrogates, nothing above U+10FFFF. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at text, 0 when it is not one. `bytes` is what is left, at least 1. */
size_t utf8_length(const char *text, size_t bytes);
bool utf8_valid(const void *text, size_t bytes);
