/*
 * A count per client in one compact array: as long as there are clients with any, which are few.
 * Called by the exec op of one shard. Must hold: what was taken is given once.
 */
#include "engine/tenant/share.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int shares_init(struct shares *shares, uint32_t max, uint32_t limit)
{
	*shares = (struct shares){ .max = max, .limit = limit };
	shares->all = calloc(max, sizeof *shares->all);
	return shares->all ? 0 : -ENOMEM;
}

void shares_done(struct shares *shares)
{
	free(shares->all);
	*shares = (struct shares){ 0 };
}

static struct share *share_find(struct shares *shares, uint64_t client)
{
	for (uint32_t i = 0; i < shares->count; i++)
		if (shares->all[i].client == client)
			return &shares->all[i];
	return NULL;
}

bool share_take(struct shares *shares, uint64_t client)
{
	struct share *share = share_find(shares, client);

	if (!share && shares->count == shares->max)
		return false;
	if (!share) {
		share = &shares->all[shares->count++];
		*share = (struct share){ .client = client };
	}
	if (share->count >= shares->limit)
		return false;
	share->count++;
	return true;
}

void share_give(struct shares *shares, uint64_t client)
{
	struct share *share = share_find(shares, client);

	assert(share);
	if (--share->count == 0)
		*share = shares->all[--shares->count];
}
