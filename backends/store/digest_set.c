/*
 * A set of digests. Called where blobs or files are looked up by the thousand. Must hold: at most
 * half of the slots are used, so a search ends.
 */
#include "backends/store/digest_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS_FIRST = 64, SIZE_MAX_DIGESTS = 1 << 28 };

/* Digests are as good as chance: their first bytes are the hash. */
static uint32_t *slot_find(const struct digest_set *set, const uint8_t digest[DIGEST_BYTES])
{
	uint32_t mask = set->slot_count - 1, at;

	memcpy(&at, digest, sizeof at);
	for (at &= mask; set->slots[at] != DIGEST_SET_NONE; at = (at + 1) & mask)
		if (!memcmp(set->digests[set->slots[at]], digest, DIGEST_BYTES))
			break;
	return &set->slots[at];
}

static int set_grow(struct digest_set *set)
{
	uint32_t slots = set->slot_count ? set->slot_count * 2 : SLOTS_FIRST;
	uint32_t *grown;
	void *digests;

	if (slots / 2 > SIZE_MAX_DIGESTS)
		return -ENOMEM;
	digests = realloc(set->digests, (size_t)slots / 2 * DIGEST_BYTES);
	if (!digests)
		return -ENOMEM;
	set->digests = digests;
	set->size = slots / 2;
	grown = malloc(slots * sizeof *grown);
	if (!grown)
		return -ENOMEM;
	free(set->slots);
	set->slots = grown;
	set->slot_count = slots;
	memset(grown, 0xff, slots * sizeof *grown);
	for (uint32_t i = 0; i < set->count; i++)
		*slot_find(set, set->digests[i]) = i;
	return 0;
}

int digest_set_add(struct digest_set *set, const uint8_t digest[DIGEST_BYTES], uint32_t *ret_at)
{
	uint32_t *slot = set->slot_count ? slot_find(set, digest) : NULL;

	if (slot && *slot != DIGEST_SET_NONE) {
		*ret_at = *slot;
		return 0;
	}
	if (!slot || set->count * 2 >= set->slot_count) {
		int r = set_grow(set);

		if (r < 0)
			return r;
		slot = slot_find(set, digest);
	}
	memcpy(set->digests[set->count], digest, DIGEST_BYTES);
	*slot = *ret_at = set->count++;
	return 1;
}

uint32_t digest_set_find(const struct digest_set *set, const uint8_t digest[DIGEST_BYTES])
{
	return set->slot_count ? *slot_find(set, digest) : (uint32_t)DIGEST_SET_NONE;
}

void digest_set_done(struct digest_set *set)
{
	free(set->digests);
	free(set->slots);
	memset(set, 0, sizeof *set);
}
