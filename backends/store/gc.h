/*
 * Giving back what no image needs. Alone with the store. Blobs that an image file needs, wherever
 * it is in its life, stay; so do those of compositions that somebody uses.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/store/store.h"

struct gc_wish {
	bool dry_run;						      /* count, delete nothing */
	int (*progress)(void *owner, uint64_t files, uint64_t bytes); /* as of a seal */
	void *owner;
};

struct gc_result {
	uint64_t images, blobs, bytes; /* what there is, before */
	uint64_t deleted, deleted_bytes;
	uint64_t composed_deleted;
	uint64_t temporaries; /* files that are no blobs */
	uint64_t incomplete;  /* images of which something is missing */
	char name[256];	      /* of one of these; when it fails, of the image it failed at */
};

/*
 * -EBUSY: others work with the store. -EBADMSG: an image's record is damaged, so nobody knows what
 * it needs; nothing was deleted, `ret` says which.
 */
int store_gc(const struct store *store, const struct gc_wish *wish, struct gc_result *ret);
