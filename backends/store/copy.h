/* Blobs from one place to another, checked on the way; in transport also as zstd. */
#pragma once

#include <stdint.h>

#include "backends/store/batch.h"
#include "backends/store/manifest.h"
#include "backends/store/source.h"

struct copy {
	struct batch *to;
	int (*progress)(void *owner, uint64_t bytes); /* negative: it ends with that */
	void *owner;
	/* the failure's; of a source: as long as that lives */
	const char *why;
};

/* As it is. `chunks`: of a segment, its chunk table; NULL: of what is none. -EBADMSG. */
int copy_plain(struct copy *copy, struct stream *from, const struct store_blob *blob,
	       const void *chunks);
/* Out of zstd that is `packed`: it becomes `blob`, and never more than that. */
int copy_unpack(struct copy *copy, struct stream *from, const struct store_blob *packed,
		const struct store_blob *blob, const void *chunks);
/* Into zstd: what became of it. The same bytes give the same. */
int copy_pack(struct copy *copy, int fd, const struct store_blob *blob, struct store_blob *ret);
