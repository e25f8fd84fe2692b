/*
 * Keeps what was learned of names. Called by the resolver. Must hold: a sandbox has LEARNED_MAX
 * addresses at most; nothing is forgotten only because its time is over, since connections that
 * were made before go on.
 */
#include "engine/names/learned.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t last_ns(const struct learned *learned)
{
	uint64_t last = 0;

	for (uint32_t i = 0; i < learned->range_count; i++)
		last = learned->until_ns[i] > last ? learned->until_ns[i] : last;
	return last;
}

static struct learned *learned_find(const struct learned_list *list, const uint8_t *address)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (!memcmp(list->all[i].address, address, 16))
			return &list->all[i];
	return NULL;
}

/* The place of whoever ends first. */
static struct learned *place_free(struct learned_list *list, struct learned *ret_gone)
{
	struct learned *first = &list->all[0];

	for (uint32_t i = 1; i < list->count; i++)
		if (last_ns(&list->all[i]) < last_ns(first))
			first = &list->all[i];
	*ret_gone = *first;
	return first;
}

static int place_take(struct learned_list *list, struct learned **ret, struct learned *ret_gone)
{
	const uint32_t room = list->room ? list->room * 2 : 4;
	struct learned *all;

	if (list->count == LEARNED_MAX) {
		*ret = place_free(list, ret_gone);
		return 0;
	}
	if (list->count == list->room) {
		all = reallocarray(list->all, room, sizeof *all);
		if (!all)
			return -ENOMEM;
		list->all = all;
		list->room = room;
	}
	*ret = &list->all[list->count++];
	return 0;
}

static void range_add(struct learned *learned, const struct guard_ports *range, uint64_t until_ns)
{
	uint32_t at = 0, first = 0;

	for (; at < learned->range_count; at++) {
		const struct guard_ports *here = &learned->ranges[at];

		if (here->first == range->first && here->last == range->last &&
		    here->protocol == range->protocol && here->is_tls == range->is_tls &&
		    here->rule == range->rule)
			break;
		first = learned->until_ns[at] < learned->until_ns[first] ? at : first;
	}
	if (at == learned->range_count && at == GUARD_PORT_RANGES_MAX)
		at = first;
	else if (at == learned->range_count)
		learned->range_count++;
	else if (learned->until_ns[at] > until_ns)
		until_ns = learned->until_ns[at];
	learned->ranges[at] = *range;
	learned->until_ns[at] = until_ns;
}

int learned_add(struct learned_list *list, const struct guard_destination *to, uint64_t until_ns,
		struct learned **ret, struct learned *ret_gone)
{
	struct learned *learned = learned_find(list, to->address);
	int r = 0;

	*ret_gone = (struct learned){ 0 };
	if (!learned) {
		r = place_take(list, &learned, ret_gone);
		if (r < 0)
			return r;
		*learned = (struct learned){ 0 };
		memcpy(learned->address, to->address, sizeof learned->address);
	}
	for (uint32_t i = 0; i < to->port_count; i++)
		range_add(learned, &to->ports[i], until_ns);
	*ret = learned;
	return r;
}

/* FNV-1a; never 0, which is no name. */
static uint64_t name_hash(const char *name)
{
	uint64_t hash = 14695981039346656037ull;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 1099511628211ull;
	return hash ? hash : 1;
}

static bool has_name(const struct learned *learned, uint64_t hash)
{
	for (uint32_t i = 0; i < LEARNED_NAMES_MAX; i++)
		if (learned->names[i] == hash)
			return true;
	return false;
}

void learned_name(struct learned *learned, const char *name)
{
	const uint64_t hash = name_hash(name);

	if (!has_name(learned, hash))
		learned->names[learned->name_next++ % LEARNED_NAMES_MAX] = hash;
}

bool learned_is_of(const struct learned_list *list, const uint8_t *address, const char *name)
{
	const struct learned *learned = learned_find(list, address);

	return learned && has_name(learned, name_hash(name));
}

void learned_done(struct learned_list *list)
{
	free(list->all);
	*list = (struct learned_list){ 0 };
}
