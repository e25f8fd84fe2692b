/*
 * Owns the search for canaries. Called by scan.c for contents, names, link targets and attributes.
 * Must hold: no text that a guest wrote makes it slow: the patterns are sorted and none begins with
 * another, so that one binary search at a place says whether any of them is there.
 */
#include "backends/store/canary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"

enum {
	FILTER_BITS = 1 << 16,
	FORMS_MAX = 10,
};

_Static_assert(CANARY_FORM_BYTES_MAX <= sizeof((struct canary_scan *)0)->tail / 2, "one may begin");

struct pattern {
	uint32_t at, bytes; /* in the list's bytes */
	uint32_t canary;
	const char *form;
};

struct canary_list {
	struct pattern *patterns;
	uint8_t *bytes;
	size_t count, used, size, longest, given_bytes;
	uint32_t given;
	uint64_t filter[FILTER_BITS / 64]; /* by their first bytes */
};

int canary_list_new(struct canary_list **ret)
{
	struct canary_list *list = calloc(1, sizeof *list);

	if (!list)
		return -ENOMEM;
	*ret = list;
	return 0;
}

void canary_list_free(struct canary_list *list)
{
	if (!list)
		return;
	free(list->patterns);
	free(list->bytes);
	free(list);
}

/* ---- forms ---- */

static int pattern_add(struct canary_list *list, const void *bytes, size_t count, const char *form)
{
	if (list->used + count > list->size) {
		size_t size = 2 * (list->used + count);
		uint8_t *more = realloc(list->bytes, size);

		if (!more)
			return -ENOMEM;
		list->bytes = more;
		list->size = size;
	}
	memcpy(list->bytes + list->used, bytes, count);
	list->patterns[list->count++] =
		(struct pattern){ (uint32_t)list->used, (uint32_t)count, list->given, form };
	list->used += count;
	if (count > list->longest)
		list->longest = count;
	return 0;
}

static int hex_add(struct canary_list *list, const uint8_t *bytes, size_t count, const char *digits)
{
	uint8_t text[CANARY_FORM_BYTES_MAX];

	for (size_t i = 0; i < count; i++) {
		text[2 * i] = (uint8_t)digits[bytes[i] >> 4];
		text[2 * i + 1] = (uint8_t)digits[bytes[i] & 15];
	}
	return pattern_add(list, text, 2 * count, "hex");
}

/* Of either order: without the zero at one end it is the same bytes. */
static int utf16_add(struct canary_list *list, const uint8_t *bytes, size_t count)
{
	uint8_t text[CANARY_FORM_BYTES_MAX] = { 0 };

	for (size_t i = 0; i < count; i++)
		text[2 * i] = bytes[i];
	return pattern_add(list, text, 2 * count - 1, "utf-16");
}

/* Only the digits that `bytes` alone decide, when `before` bytes came ahead of them. */
static int base64_add(struct canary_list *list, const uint8_t *bytes, size_t count, unsigned before,
		      const char *last)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	const size_t first = (before * 8 + 5) / 6, end = (before + count) * 8 / 6;
	uint8_t text[CANARY_FORM_BYTES_MAX];

	for (size_t i = first; i < end; i++) {
		size_t bit = i * 6 - before * 8, at = bit / 8;
		unsigned pair = bytes[at] << 8 | (at + 1 < count ? bytes[at + 1] : 0);
		unsigned digit = pair >> (10 - bit % 8) & 63;

		text[i - first] = (uint8_t)(digit < 62 ? digits[digit] : last[digit - 62]);
	}
	return pattern_add(list, text, end - first, "base64");
}

int canary_add(struct canary_list *list, const void *bytes, size_t count)
{
	struct pattern *patterns;
	int r;

	if (count < CANARY_BYTES_MIN)
		return -EINVAL;
	if (count > CANARY_BYTES_MAX || list->given == CANARIES_MAX ||
	    list->given_bytes + count > CANARIES_BYTES_MAX)
		return -E2BIG;
	patterns = realloc(list->patterns, (list->count + FORMS_MAX) * sizeof *patterns);
	if (!patterns)
		return -ENOMEM;
	list->patterns = patterns;
	r = pattern_add(list, bytes, count, "as it is");
	if (r >= 0)
		r = hex_add(list, bytes, count, "0123456789abcdef");
	if (r >= 0)
		r = hex_add(list, bytes, count, "0123456789ABCDEF");
	if (r >= 0)
		r = utf16_add(list, bytes, count);
	for (unsigned i = 0; r >= 0 && i < 6; i++)
		r = base64_add(list, bytes, count, i % 3, i < 3 ? "+/" : "-_");
	list->given++;
	list->given_bytes += count;
	return r;
}

/* ---- searching ---- */

static int pattern_compare(const void *a, const void *b, void *bytes)
{
	const struct pattern *one = a, *two = b;
	size_t both = one->bytes < two->bytes ? one->bytes : two->bytes;
	int r = memcmp((uint8_t *)bytes + one->at, (uint8_t *)bytes + two->at, both);

	return r ? r : (one->bytes > two->bytes) - (one->bytes < two->bytes);
}

/* Of the first four bytes. */
static uint32_t key_of(const uint8_t *bytes)
{
	uint32_t four;

	memcpy(&four, bytes, sizeof four);
	return four * 2654435761u >> 16;
}

/* A pattern that begins with another is found where that one is. */
static void patterns_reduce(struct canary_list *list)
{
	size_t kept = 0;

	for (size_t i = 0; i < list->count; i++) {
		const struct pattern *one = &list->patterns[i];
		const struct pattern *last = kept ? &list->patterns[kept - 1] : NULL;

		if (last && last->bytes <= one->bytes &&
		    !memcmp(list->bytes + last->at, list->bytes + one->at, last->bytes))
			continue;
		list->patterns[kept++] = *one;
	}
	list->count = kept;
}

int canary_ready(struct canary_list *list)
{
	if (list->count)
		qsort_r(list->patterns, list->count, sizeof *list->patterns, pattern_compare,
			list->bytes);
	patterns_reduce(list);
	for (size_t i = 0; i < list->count; i++) {
		uint32_t key = key_of(list->bytes + list->patterns[i].at);

		list->filter[key / 64] |= 1ull << key % 64;
	}
	return 0;
}

/* The pattern that `text` begins with, or NULL: it can only be the last that is not above it. */
static const struct pattern *pattern_at(const struct canary_list *list, const uint8_t *text,
					size_t bytes)
{
	size_t low = 0, high = list->count;
	const struct pattern *one;

	while (low < high) {
		size_t middle = (low + high) / 2;
		size_t both;
		int r;

		one = &list->patterns[middle];
		both = one->bytes < bytes ? one->bytes : bytes;
		r = memcmp(list->bytes + one->at, text, both);
		if (r > 0 || (r == 0 && one->bytes > bytes))
			high = middle;
		else
			low = middle + 1;
	}
	if (!low)
		return NULL;
	one = &list->patterns[low - 1];
	return one->bytes <= bytes && !memcmp(list->bytes + one->at, text, one->bytes) ? one : NULL;
}

/* In one piece; `begin_max`: a pattern found must begin before it. */
static bool piece_find(const struct canary_list *list, const uint8_t *bytes, size_t count,
		       size_t begin_max, struct canary_hit *ret)
{
	for (size_t i = 0; i < begin_max && i + sizeof(uint32_t) <= count; i++) {
		const struct pattern *found;
		uint32_t key = key_of(bytes + i);

		if (!(list->filter[key / 64] & 1ull << key % 64))
			continue;
		found = pattern_at(list, bytes + i, count - i);
		if (!found)
			continue;
		*ret = (struct canary_hit){ i, found->canary, found->form };
		return true;
	}
	return false;
}

void canary_begin(struct canary_scan *scan, const struct canary_list *list)
{
	scan->list = list;
	scan->offset = 0;
	scan->kept = 0;
}

void canary_skip(struct canary_scan *scan, uint64_t count)
{
	scan->kept = 0;
	scan->offset += count;
}

/* What may be the beginning of one stays for the next bytes. */
static void tail_keep(struct canary_scan *scan, const uint8_t *bytes, size_t count)
{
	size_t keep = scan->list->longest ? scan->list->longest - 1 : 0;

	if (count >= keep) {
		memcpy(scan->tail, bytes + count - keep, keep);
		scan->kept = keep;
		return;
	}
	if (scan->kept + count > keep) {
		size_t gone = scan->kept + count - keep;

		memmove(scan->tail, scan->tail + gone, scan->kept - gone);
		scan->kept -= gone;
	}
	memcpy(scan->tail + scan->kept, bytes, count);
	scan->kept += count;
}

bool canary_feed(struct canary_scan *scan, const void *bytes, size_t count, struct canary_hit *ret)
{
	const size_t before = scan->kept;
	size_t more = sizeof scan->tail - before;
	bool found;

	/* Across the border first: what was kept, and as much of the new as one may reach into. */
	if (more > count)
		more = count;
	if (more > scan->list->longest)
		more = scan->list->longest;
	memcpy(scan->tail + before, bytes, more);
	found = piece_find(scan->list, scan->tail, before + more, before, ret);
	if (found)
		ret->offset += scan->offset - before;
	if (!found) {
		found = piece_find(scan->list, bytes, count, count, ret);
		if (found)
			ret->offset += scan->offset;
	}
	tail_keep(scan, bytes, count);
	scan->offset += count;
	return found;
}

bool canary_find(const struct canary_list *list, const void *bytes, size_t count,
		 struct canary_hit *ret)
{
	return list->count && piece_find(list, bytes, count, count, ret);
}
