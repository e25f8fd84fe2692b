/*
 * Canaries in a stream that comes in pieces. Must hold: one is found whatever the pieces are, at
 * the place where it is, in the form that is told; where nothing is told none is as it is.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/canary.h"
#include "tests/fuzz/choices.h"

enum { GIVEN_MAX = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct given {
	const uint8_t *bytes[GIVEN_MAX];
	size_t counts[GIVEN_MAX];
	uint32_t count;
};

static void given_add(struct given *given, struct canary_list *list, struct choices *c)
{
	size_t count = choose_byte(c);
	int r;

	if (count > c->left)
		count = c->left;
	r = canary_add(list, c->at, count);
	assert(r == (count < CANARY_BYTES_MIN ? -EINVAL : 0));
	if (r == 0) {
		given->bytes[given->count] = c->at;
		given->counts[given->count++] = count;
	}
	c->at += count;
	c->left -= count;
}

static int digit_of(uint8_t c)
{
	return c >= '0' && c <= '9' ? c - '0' :
	       c >= 'a' && c <= 'f' ? c - 'a' + 10 :
	       c >= 'A' && c <= 'F' ? c - 'A' + 10 :
				      -1;
}

/* What was told is there. */
static void hit_check(const struct given *given, const struct canary_hit *hit,
		      const uint8_t *stream, size_t bytes)
{
	const uint8_t *canary, *at = stream + hit->offset;
	size_t count, left = bytes - hit->offset;

	assert(hit->canary < given->count);
	assert(hit->offset < bytes);
	canary = given->bytes[hit->canary];
	count = given->counts[hit->canary];
	if (!strcmp(hit->form, "as it is")) {
		assert(left >= count);
		assert(!memcmp(at, canary, count));
	} else if (!strcmp(hit->form, "hex")) {
		assert(left >= 2 * count);
		for (size_t i = 0; i < count; i++)
			assert(digit_of(at[2 * i]) * 16 + digit_of(at[2 * i + 1]) == canary[i]);
	} else if (!strcmp(hit->form, "utf-16")) {
		assert(left >= 2 * count - 1);
		for (size_t i = 0; i < count; i++)
			assert(at[2 * i] == canary[i]);
	} else {
		assert(!strcmp(hit->form, "base64"));
		assert(left >= count * 8 / 6 - 1);
	}
}

static void stream_check(const struct canary_list *list, const struct given *given,
			 struct choices pieces, const uint8_t *stream, size_t bytes)
{
	struct canary_hit whole, hit;
	struct canary_scan scan;
	bool found = canary_find(list, stream, bytes, &whole), again = false;

	if (found)
		hit_check(given, &whole, stream, bytes);
	else
		for (uint32_t i = 0; i < given->count; i++)
			assert(!memmem(stream, bytes, given->bytes[i], given->counts[i]));
	canary_begin(&scan, list);
	for (size_t at = 0; at < bytes && !again;) {
		size_t piece = 1u << choose(&pieces, 13);

		if (piece > bytes - at)
			piece = bytes - at;
		again = canary_feed(&scan, stream + at, piece, &hit);
		at += piece;
	}
	assert(again == found);
	if (again)
		hit_check(given, &hit, stream, bytes);
}

/* Canaries, eight choices of pieces, the stream. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct choices all = { data, bytes };
	struct given given = { .count = 0 };
	struct canary_list *list;
	uint8_t sizes[8];

	assert(canary_list_new(&list) == 0);
	for (uint32_t count = choose(&all, GIVEN_MAX); count; count--)
		given_add(&given, list, &all);
	assert(canary_ready(list) == 0);
	choose_bytes(&all, sizes, sizeof sizes);
	if (all.left)
		stream_check(list, &given, (struct choices){ sizes, sizeof sizes }, all.at,
			     all.left);
	canary_list_free(list);
	return 0;
}
