/*
 * The memory of sandboxes that ended. Called by sandbox.c and by who answers for ids. Must hold:
 * constant memory, and a look takes a few microseconds.
 */
#include "engine/sandbox/ended.h"

#include <stddef.h>

void ended_add(struct ended_list *list, const struct ended *ended)
{
	list->all[list->next] = *ended;
	list->next = (list->next + 1) % ENDED_MAX;
}

const struct ended *ended_find(const struct ended_list *list, struct dsec_wire_id id)
{
	for (uint32_t i = 0; i < ENDED_MAX; i++) {
		const struct ended *ended = &list->all[i];

		if (ended->id.lo == id.lo && ended->id.hi == id.hi && (id.lo || id.hi))
			return ended;
	}
	return NULL;
}
