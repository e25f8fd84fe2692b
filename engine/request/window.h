/*
 * Flow control of one stream towards one reader: what is sent stays less than `bytes` ahead of what
 * the reader says it has consumed. Offsets count from the stream's first byte, so that a credit
 * that comes twice or late says nothing new.
 */
#pragma once

#include <errno.h>
#include <stdint.h>

#include "dsec/ring.h"

struct window {
	uint64_t sent, consumed;
	uint32_t bytes;
};

/* `wish`: 0 for the default; clamped. */
static inline struct window window_at(uint64_t offset, uint64_t wish)
{
	uint32_t bytes = DSEC_WINDOW_BYTES_DEFAULT;

	/* It is the engine's memory. */
	if (wish)
		bytes = wish < DSEC_WINDOW_BYTES_MAX ? (uint32_t)wish : DSEC_WINDOW_BYTES_MAX;
	return (struct window){ offset, offset, bytes };
}

static inline uint32_t window_room(const struct window *w)
{
	return (uint32_t)(w->consumed + w->bytes - w->sent);
}

/* -EINVAL: nobody can have consumed what was not sent. */
static inline int window_credit(struct window *w, uint64_t consumed)
{
	if (consumed > w->sent)
		return -EINVAL;
	if (consumed > w->consumed)
		w->consumed = consumed;
	return 0;
}
