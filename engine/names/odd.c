/*
 * Says which names look like data. Called by the resolver for each name that is asked for. Must
 * hold: it takes a bounded time and no memory.
 */
#include "engine/names/odd.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Words of the same length have less: their letters come again. */
static const double ODD_BITS_SHARE = 0.75;

/* How many bits a letter of it carries. */
static double label_bits(const char *label, size_t bytes)
{
	uint32_t counts[256] = { 0 };
	double bits = 0;

	for (size_t i = 0; i < bytes; i++)
		counts[(unsigned char)label[i]]++;
	for (unsigned i = 0; i < 256; i++) {
		const double share = (double)counts[i] / (double)bytes;

		bits -= counts[i] ? share * log2(share) : 0;
	}
	return bits;
}

static bool label_is_odd(const char *label, size_t bytes)
{
	size_t digits = 0;

	for (size_t i = 0; i < bytes; i++)
		digits += label[i] >= '0' && label[i] <= '9';
	return bytes >= LABEL_ODD_BYTES && digits >= 2 && digits < bytes &&
	       label_bits(label, bytes) >= ODD_BITS_SHARE * log2((double)bytes);
}

bool name_is_odd(const char *name)
{
	if (strlen(name) > NAME_ODD_BYTES)
		return true;
	while (*name) {
		const size_t bytes = strcspn(name, ".");

		if (label_is_odd(name, bytes))
			return true;
		name += bytes + (name[bytes] == '.');
	}
	return false;
}

bool name_is_new(struct names_lately *lately, const char *name)
{
	uint32_t hash = 2166136261u;

	for (const char *at = name; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 16777619u;
	for (unsigned i = 0; i < NAMES_LATELY; i++)
		if (lately->hashes[i] == hash)
			return false;
	lately->hashes[lately->next++ % NAMES_LATELY] = hash;
	return true;
}
