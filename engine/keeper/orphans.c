/*
 * Owns the keeper's record of exit statuses. Used by the keeper only. A ring of fixed size: adding
 * never fails and never allocates, so reaping cannot stop.
 */
#include "engine/keeper/orphans.h"

#include <errno.h>
#include <stdlib.h>

int orphans_init(struct orphans *orphans)
{
	/* Pages are touched only as orphans come. */
	orphans->ring = calloc(ORPHANS_MAX, sizeof(*orphans->ring));
	orphans->count = 0;
	return orphans->ring ? 0 : -ENOMEM;
}

void orphans_done(struct orphans *orphans)
{
	free(orphans->ring);
	orphans->ring = NULL;
}

void orphans_add(struct orphans *orphans, const struct orphan *orphan)
{
	orphans->ring[orphans->count % ORPHANS_MAX] = *orphan;
	orphans->count++;
}

const struct orphan *orphans_find(const struct orphans *orphans, int32_t pid)
{
	uint64_t oldest = orphans->count > ORPHANS_MAX ? orphans->count - ORPHANS_MAX : 0;

	for (uint64_t at = orphans->count; at > oldest; at--) {
		const struct orphan *o = &orphans->ring[(at - 1) % ORPHANS_MAX];

		if (o->pid == pid)
			return o;
	}
	return NULL;
}
