/*
 * Where the store has a file's contents: one table on the disk, from the digests of files to places
 * in segments. It is a hint: whoever finds a place compares what is there; an index that is lost,
 * damaged or behind costs room, nothing else.
 */
#pragma once

#include <stdint.h>

#include "backends/store/digest.h"
#include "backends/store/digest_set.h"
#include "backends/store/tree.h"

#define INDEX_NAME "index" /* in the store's directory */

struct place {
	uint8_t file[DIGEST_BYTES]; /* file_digest; its extents lie there one behind the other */
	struct tree_segment segment;
	uint32_t block, blocks;
};

struct index {
	int directory_fd, fd; /* fd -1: there is none yet */
	uint64_t buckets;
};

int index_open(int directory_fd, struct index *ret);
void index_close(struct index *index);
/* -ENOENT. */
int index_find(const struct index *index, const uint8_t file[DIGEST_BYTES], struct place *ret);
/* What is there of the same digest gives way. Others may add at the same time. */
int index_add(struct index *index, const struct place *places, uint32_t count);
/* For gc: places in segments that are not in `kept` go. */
int index_prune(struct index *index, const struct digest_set *kept);
