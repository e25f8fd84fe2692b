/* A set of digests, each with a number: of the order in which they came. */
#pragma once

#include <stdint.h>

#include "backends/store/digest.h"

struct digest_set {
	uint8_t (*digests)[DIGEST_BYTES];
	uint32_t count, size;
	uint32_t *slots;
	uint32_t slot_count;
};

enum { DIGEST_SET_NONE = UINT32_MAX };

/* From all zero bytes. 1: it is new, 0: it was there; -ENOMEM. */
int digest_set_add(struct digest_set *set, const uint8_t digest[DIGEST_BYTES], uint32_t *ret_at);
uint32_t digest_set_find(const struct digest_set *set, const uint8_t digest[DIGEST_BYTES]);
void digest_set_done(struct digest_set *set);
