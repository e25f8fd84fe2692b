/*
 * Writing segments. Called by the sealer. Must hold: the same contents in the same order give the
 * same segments; a file's parts lie one behind the other in one segment.
 */
#include "backends/store/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/batch.h"
#include "backends/store/file.h"
#include "backends/store/segment_behind.h"
#include "engine/base/cleanup.h"

enum { SEGMENTS_WANTED_MAX = 256, BLOCKS_MAX = UINT32_MAX };

/* One that is being written: its last chunk, which is not full, is in memory. */
struct open_segment {
	int fd; /* -1: none is open */
	uint32_t number;
	uint64_t bytes; /* with what is in the chunk */
	struct behind_piece *chunk;
	struct digest *digest; /* the second thread's, as the table is */
	uint8_t (*table)[DIGEST_BYTES];
	uint32_t chunks, table_size;
};

struct segment_writer {
	struct batch *batch;
	struct behind *behind; /* NULL: nothing was written yet */
	uint64_t target_bytes;
	struct open_segment small, large; /* of files that share, of one that has its own */
	struct open_segment *promised;	  /* where the rest of a file goes */
	uint64_t promised_bytes;
	struct tree_segment *segments;
	uint32_t count, size;
};

static uint64_t blocks_of(uint64_t bytes)
{
	return (bytes + TREE_BLOCK_BYTES - 1) / TREE_BLOCK_BYTES;
}

int segment_writer_new(struct batch *batch, uint64_t content_bytes, struct segment_writer **ret)
{
	struct segment_writer *writer = calloc(1, sizeof *writer);

	if (!writer)
		return -ENOMEM;
	writer->batch = batch;
	writer->small.fd = writer->large.fd = -1;
	writer->target_bytes = SEGMENT_BYTES;
	while (content_bytes / writer->target_bytes > SEGMENTS_WANTED_MAX)
		writer->target_bytes *= 2;
	*ret = writer;
	return 0;
}

/* Nothing of it is at work. */
static void segment_drop(struct segment_writer *writer, struct open_segment *s)
{
	if (s->chunk)
		behind_return(writer->behind, s->chunk);
	s->chunk = NULL;
	cleanup_close(&s->fd);
	s->fd = -1;
	digest_free(s->digest);
	s->digest = NULL;
	free(s->table);
	s->table = NULL;
}

void segment_writer_free(struct segment_writer *writer)
{
	if (!writer)
		return;
	if (writer->behind)
		behind_wait(writer->behind);
	segment_drop(writer, &writer->small);
	segment_drop(writer, &writer->large);
	behind_free(writer->behind);
	free(writer->segments);
	free(writer);
}

/* ---- one segment ---- */

/* Its number is that of its beginning. */
static int segment_begin(struct segment_writer *writer, struct open_segment *s)
{
	int fd, r = writer->behind ? 0 : behind_new(&writer->behind);

	if (r < 0)
		return r;
	if (writer->count == TREE_SEGMENTS_MAX)
		return -E2BIG;
	if (writer->count == writer->size) {
		uint32_t size = writer->size ? writer->size * 2 : 16;
		void *grown = realloc(writer->segments, size * sizeof *writer->segments);

		if (!grown)
			return -ENOMEM;
		writer->segments = grown;
		writer->size = size;
	}
	r = batch_file(writer->batch, &fd);
	if (r < 0)
		return r;
	s->fd = fd;
	s->bytes = s->chunks = s->table_size = 0;
	s->digest = digest_new();
	if (!s->digest)
		return -ENOMEM;
	s->chunk = behind_take(writer->behind);
	s->number = writer->count++;
	memset(&writer->segments[s->number], 0, sizeof *writer->segments);
	return 0;
}

/* It is written, and its digests are taken behind us. */
static int chunk_end(struct segment_writer *writer, struct open_segment *s)
{
	struct behind_piece *chunk = s->chunk;
	int r;

	if (s->chunks == s->table_size) {
		uint32_t size = s->table_size ? s->table_size * 2 : 1024;
		void *grown;

		behind_wait(writer->behind); /* it writes there */
		grown = realloc(s->table, (size_t)size * DIGEST_BYTES);
		if (!grown)
			return -ENOMEM;
		s->table = grown;
		s->table_size = size;
	}
	chunk->at = s->bytes - chunk->count;
	r = file_write(s->fd, chunk->bytes, chunk->count, chunk->at);
	if (r < 0)
		return r;
	chunk->fd = s->fd;
	chunk->file = s->digest;
	chunk->ret = s->table[s->chunks++];
	behind_give(writer->behind, chunk);
	s->chunk = behind_take(writer->behind);
	return 0;
}

static int segment_end(struct segment_writer *writer, struct open_segment *s)
{
	struct tree_segment *made = &writer->segments[s->number];
	int r = s->chunk->count ? chunk_end(writer, s) : 0;

	if (r < 0)
		return r;
	behind_wait(writer->behind);
	made->bytes = s->bytes;
	digest_take(s->digest, made->digest);
	r = batch_write(writer->batch, s->table, (size_t)s->chunks * DIGEST_BYTES, made->chunks);
	if (r >= 0)
		r = batch_keep(writer->batch, take_fd(&s->fd), made->digest);
	segment_drop(writer, s);
	return r;
}

/* At most to the chunk's end; what the source has not is zero. */
static int chunk_fill(struct segment_writer *writer, struct open_segment *s,
		      const struct segment_source *source, uint64_t at, uint32_t bytes)
{
	uint64_t left = source->bytes > at ? source->bytes - at : 0;
	uint32_t take = left < bytes ? (uint32_t)left : bytes;
	char *to = s->chunk->bytes + s->chunk->count;
	int r = file_read(source->fd, to, take, source->offset + at);

	if (r < 0)
		return r;
	memset(to + take, 0, bytes - take);
	s->chunk->count += bytes;
	s->bytes += bytes;
	return s->chunk->count == SEGMENT_CHUNK_BYTES ? chunk_end(writer, s) : 0;
}

/* ---- files ---- */

/* The one that takes so many bytes of one file. */
static int segment_choose(struct segment_writer *writer, uint64_t together,
			  struct open_segment **ret)
{
	struct open_segment *s = &writer->small;
	int r = 0;

	if (writer->promised) {
		*ret = writer->promised;
		return together <= writer->promised_bytes ? 0 : -EINVAL;
	}
	if (together > writer->target_bytes)
		s = &writer->large;
	if (s->fd >= 0 && (s == &writer->large || s->bytes + together > writer->target_bytes))
		r = segment_end(writer, s);
	if (r >= 0 && s->fd < 0)
		r = segment_begin(writer, s);
	*ret = s;
	return r;
}

int segment_add(struct segment_writer *writer, const struct segment_source *source,
		struct tree_extent *ret)
{
	uint64_t all = blocks_of(source->bytes) * TREE_BLOCK_BYTES;
	uint64_t together = blocks_of(source->together) * TREE_BLOCK_BYTES;
	struct open_segment *s;
	int r = all && together >= all ? segment_choose(writer, together, &s) : -EINVAL;

	if (r < 0)
		return r;
	if ((s->bytes + all) / TREE_BLOCK_BYTES > BLOCKS_MAX)
		return -EFBIG;
	ret->segment = s->number;
	ret->block = (uint32_t)(s->bytes / TREE_BLOCK_BYTES);
	ret->blocks = (uint32_t)(all / TREE_BLOCK_BYTES);
	for (uint64_t at = 0; r >= 0 && at < all;) {
		uint32_t room = SEGMENT_CHUNK_BYTES - s->chunk->count;
		uint32_t bytes = all - at < room ? (uint32_t)(all - at) : room;

		r = chunk_fill(writer, s, source, at, bytes);
		at += bytes;
	}
	if (r < 0)
		return r;
	writer->promised_bytes = together - all;
	writer->promised = writer->promised_bytes ? s : NULL;
	if (s == &writer->large && !writer->promised)
		r = segment_end(writer, s);
	return r;
}

int segment_writer_end(struct segment_writer *writer, struct tree_segment **ret,
		       uint32_t *ret_count)
{
	int r = writer->promised ? -EINVAL : 0;

	if (r >= 0 && writer->small.fd >= 0)
		r = segment_end(writer, &writer->small);
	if (r < 0)
		return r;
	*ret = take_ptr(writer->segments);
	*ret_count = writer->count;
	return 0;
}
