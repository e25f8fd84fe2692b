/*
 * Names that look as if they carried data, as those of a tunnel through DNS do: long, and of
 * letters by chance. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { NAME_ODD_BYTES = 100, LABEL_ODD_BYTES = 20, NAMES_LATELY = 8 };

/* A name of more than NAME_ODD_BYTES, or with a part of chance: at least LABEL_ODD_BYTES, digits
 * among its letters, and nearly as many bits a letter as there can be. */
bool name_is_odd(const char *name);

/* The odd names that were asked for lately: one counts once. */
struct names_lately {
	uint32_t hashes[NAMES_LATELY], next;
};

/* Whether it is none of them; then it is, from now on. */
bool name_is_new(struct names_lately *lately, const char *name);
