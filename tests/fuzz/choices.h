/*
 * A fuzz input as a list of choices: each takes some bytes of it; when there are none left, every
 * choice is zero.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct choices {
	const uint8_t *at;
	size_t left;
};

/* Fills as much as there is, the rest with zero. */
static inline void choose_bytes(struct choices *c, void *ret, size_t count)
{
	size_t taken = count < c->left ? count : c->left;

	memset((char *)ret + taken, 0, count - taken);
	if (!taken)
		return; /* `at` may be NULL */
	memcpy(ret, c->at, taken);
	c->at += taken;
	c->left -= taken;
}

static inline uint8_t choose_byte(struct choices *c)
{
	uint8_t byte;

	choose_bytes(c, &byte, 1);
	return byte;
}

/* 0 .. below - 1, by one byte; below > 0. */
static inline uint32_t choose(struct choices *c, uint32_t below)
{
	return choose_byte(c) % below;
}

static inline uint32_t choose_word(struct choices *c)
{
	uint32_t word;

	choose_bytes(c, &word, sizeof word);
	return word;
}
