/* Sets of ids, by open addressing; at most half full. Called while dispatching. */
#include "sdk/lib/told.h"

#include <errno.h>
#include <stdlib.h>

enum { TOLD_CAPACITY_MIN = 8 }; /* a power of two */

/* Where it is, or where it belongs. There is always a free place. */
static struct dsec_id *told_place(const struct told *told, struct dsec_id id)
{
	uint64_t hash = (id.hi ^ id.lo) * 0x9e3779b97f4a7c15ull;
	uint32_t at = (uint32_t)(hash >> 32) & (told->capacity - 1);

	while ((told->ids[at].hi || told->ids[at].lo) &&
	       (told->ids[at].hi != id.hi || told->ids[at].lo != id.lo))
		at = (at + 1) & (told->capacity - 1);
	return &told->ids[at];
}

static int told_grow(struct told *told)
{
	struct told grown = { .capacity = told->capacity ? 2 * told->capacity : TOLD_CAPACITY_MIN,
			      .count = told->count };

	grown.ids = calloc(grown.capacity, sizeof(*grown.ids));
	if (!grown.ids)
		return -ENOMEM;
	for (uint32_t at = 0; at < told->capacity; at++) {
		if (told->ids[at].hi || told->ids[at].lo)
			*told_place(&grown, told->ids[at]) = told->ids[at];
	}
	free(told->ids);
	*told = grown;
	return 0;
}

int dsec__told_add(struct told *told, struct dsec_id id)
{
	struct dsec_id *place;
	int r;

	if (!id.hi && !id.lo)
		return 1;
	if (told->count >= told->capacity / 2) {
		r = told_grow(told);
		if (r < 0)
			return r;
	}
	place = told_place(told, id);
	if (place->hi || place->lo)
		return 0;
	*place = id;
	told->count++;
	return 1;
}

void dsec__told_done(struct told *told)
{
	free(told->ids);
	*told = (struct told){ 0 };
}
