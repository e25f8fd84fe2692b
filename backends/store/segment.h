/*
 * Segments: files of contents only. Every file's contents begin at a multiple of 4 KiB and the rest
 * of its last block is zero, so that the kernel reads them in place. Small files share a segment up
 * to SEGMENT_BYTES; a larger one has its own. Named by the SHA-256 of their bytes.
 *
 * A segment's *chunk table* is the SHA-256 of each of its chunks, in order, 32 bytes each; the
 * last chunk may be short. It is a blob of its own, named by its digest: whoever has a tree can
 * check any chunk before any byte of it is shown.
 */
#pragma once

#include <stdint.h>

#include "backends/store/digest.h"
#include "backends/store/tree.h"

enum {
	SEGMENT_BYTES = 64 << 20,
	SEGMENT_CHUNK_BYTES = 64 << 10,
};

struct batch;

/* Written in order; what is unfinished has no name. */
struct segment_writer;

/* Into that batch. Where so much comes that there would be too many, segments are larger. */
int segment_writer_new(struct batch *batch, uint64_t content_bytes, struct segment_writer **ret);
void segment_writer_free(struct segment_writer *writer);
/* What becomes of a part of a file: whole blocks of one segment. */
struct segment_source {
	int fd;
	uint64_t offset, bytes;
	uint64_t together; /* so much of its file comes, this and what follows: in one segment */
};

/* Where it is. `segment` counts this writer's. -EBADMSG: the source ends before. */
int segment_add(struct segment_writer *writer, const struct segment_source *source,
		struct tree_extent *ret);
/*
 * All are in the batch, with their chunk tables. `ret`, by their numbers: the caller frees it. The
 * writer is only good to be freed then.
 */
int segment_writer_end(struct segment_writer *writer, struct tree_segment **ret,
		       uint32_t *ret_count);
/* Of a whole segment: its chunk table's bytes. */
static inline uint64_t segment_table_bytes(uint64_t segment_bytes)
{
	return (segment_bytes + SEGMENT_CHUNK_BYTES - 1) / SEGMENT_CHUNK_BYTES * DIGEST_BYTES;
}
