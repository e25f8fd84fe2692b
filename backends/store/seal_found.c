/*
 * What of a tree's files the store has already. Called by seal.c. Must hold: the index only says
 * where to look; what is used was compared, byte by byte, and its segment is whole.
 */
#include "backends/store/seal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/store/file.h"
#include "backends/store/segment.h"
#include "engine/base/cleanup.h"

static bool blob_is(const struct store *store, const uint8_t digest[DIGEST_BYTES], uint64_t bytes,
		    int *ret_fd)
{
	struct stat st;
	int fd;

	if (store_blob_open(store, digest, &fd) < 0)
		return false;
	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != bytes) {
		(void)close(fd); /* was not read */
		return false;
	}
	*ret_fd = fd;
	return true;
}

static bool segment_is_there(const struct store *store, const struct tree_segment *segment)
{
	auto_close int file = -1;
	auto_close int table = -1;

	return blob_is(store, segment->digest, segment->bytes, &file) &&
	       blob_is(store, segment->chunks, segment_table_bytes(segment->bytes), &table);
}

/* The segment of a place; one that is gone, or cut off, is noted as such. */
static int found_note(struct sealing *s, const struct place *place, struct seal_found **ret)
{
	struct seal_found *found;
	uint32_t at;
	int r = digest_set_add(&s->found_set, place->segment.digest, &at);

	if (r < 0)
		return r;
	if (at >= s->found_size) {
		uint32_t size = s->found_size ? s->found_size * 2 : 64;

		found = realloc(s->found, size * sizeof *found);
		if (!found)
			return -ENOMEM;
		s->found = found;
		s->found_size = size;
	}
	found = &s->found[at];
	if (r > 0) {
		*found = (struct seal_found){ .segment = place->segment, .first = SEAL_NONE };
		found->whole = segment_is_there(s->store, &place->segment);
	}
	*ret = found;
	return 0;
}

static bool place_fits(const struct place *place, const struct seal_file *file)
{
	return place->blocks == file->blocks && !(place->segment.bytes % TREE_BLOCK_BYTES) &&
	       ((uint64_t)place->block + place->blocks) * TREE_BLOCK_BYTES <= place->segment.bytes;
}

int seal_file_find(struct sealing *s, uint32_t file)
{
	struct seal_found *found;
	struct place place;
	int r = index_find(&s->index, s->seal->tree->nodes[s->files[file].node].digest, &place);

	if (r == -ENOENT || (r >= 0 && !place_fits(&place, &s->files[file])))
		return 0;
	if (r >= 0)
		r = found_note(s, &place, &found);
	if (r < 0 || !found->whole)
		return r;
	s->files[file].next = found->first;
	s->files[file].block = place.block;
	s->files[file].has_other = true;
	found->first = file;
	found->bytes += s->files[file].blocks * TREE_BLOCK_BYTES;
	return 1;
}

/* ---- which segments ---- */

static int by_bytes(const void *a, const void *b)
{
	const struct seal_found *one = *(const struct seal_found *const *)a;
	const struct seal_found *two = *(const struct seal_found *const *)b;

	if (one->bytes != two->bytes)
		return one->bytes > two->bytes ? -1 : 1;
	return memcmp(one->segment.digest, two->segment.digest, DIGEST_BYTES);
}

/* Only all of it, or nothing: the rest of its bytes would come along. */
static bool is_whole_only(const struct sealing *s, const struct seal_found *found)
{
	return s->seal->is_alone &&
	       (!s->seal->beside ||
		digest_set_find(s->seal->beside, found->segment.digest) == DIGEST_SET_NONE);
}

static int found_choose(struct sealing *s)
{
	uint32_t count = s->found_set.count, used = 0;
	auto_free struct seal_found **order = calloc(count + 1, sizeof(struct seal_found *));

	if (!order)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		order[i] = &s->found[i];
	qsort(order, count, sizeof(struct seal_found *), by_bytes);
	for (uint32_t i = 0; i < count && used < SEAL_FOUND_MAX; i++) {
		order[i]->used = order[i]->bytes >=
				 (is_whole_only(s, order[i]) ?
					  order[i]->segment.bytes :
					  order[i]->segment.bytes / SEAL_PART_MIN);
		used += order[i]->used;
	}
	return 0;
}

/* ---- comparing ---- */

/* 1: they are the same. */
static int bytes_compare(struct sealing *s, int segment_fd, uint64_t raw_at, uint64_t there,
			 uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes;) {
		size_t take = bytes - at < SEAL_BUFFER_BYTES ? bytes - at : SEAL_BUFFER_BYTES;
		int r = file_read(s->seal->raw_fd, s->buffer, take, raw_at + at);

		if (r < 0)
			return r;
		if (file_read(segment_fd, s->other, take, there + at) < 0 ||
		    memcmp(s->buffer, s->other, take) != 0)
			return 0; /* as good as not there: it is stored */
		at += take;
	}
	return 1;
}

/* Of a segment that is used whole what fills up the last block counts, too: in ours it is zeros. */
static int file_compare(struct sealing *s, int segment_fd, const struct seal_file *file, bool whole)
{
	const struct tree *tree = s->seal->tree;
	const struct tree_node *node = &tree->nodes[file->node];
	uint64_t there = (uint64_t)file->block * TREE_BLOCK_BYTES;
	int same = 1;

	for (uint32_t i = 0; same > 0 && i < node->extents; i++) {
		const struct tree_extent *extent = &tree->extents[node->extent + i];

		const uint64_t blocks_bytes = (uint64_t)extent->blocks * TREE_BLOCK_BYTES;

		same = bytes_compare(s, segment_fd, (uint64_t)extent->block * TREE_BLOCK_BYTES,
				     there, whole ? blocks_bytes : seal_extent_bytes(node, extent));
		there += blocks_bytes;
	}
	return same;
}

/* What is used whole or not at all is not used. */
static void found_forget(struct sealing *s, const struct seal_found *found)
{
	uint32_t next;

	for (uint32_t i = found->first; i != SEAL_NONE; i = next) {
		next = s->files[i].next;
		s->files[i].found = SEAL_NONE;
	}
}

/* Blocks that nobody had yet: what an index says may lie one over the other. */
static uint64_t blocks_mark(uint8_t *marks, const struct seal_file *file)
{
	uint64_t count = 0;

	for (uint64_t at = file->block; at < file->block + file->blocks; at++) {
		count += !(marks[at / 8] >> at % 8 & 1);
		marks[at / 8] |= (uint8_t)(1 << at % 8);
	}
	return count;
}

static int found_compare(struct sealing *s, uint32_t at)
{
	const struct seal_found *found = &s->found[at];
	const bool whole_only = is_whole_only(s, found);
	uint64_t blocks = found->segment.bytes / TREE_BLOCK_BYTES;
	auto_free uint8_t *marks = whole_only ? calloc(1, blocks / 8 + 1) : NULL;
	auto_close int segment = -1;
	uint32_t next;
	int r = 0;

	if (whole_only && !marks)
		return -ENOMEM;
	if (!blob_is(s->store, found->segment.digest, found->segment.bytes, &segment))
		return 0;
	for (uint32_t i = found->first; r >= 0 && i != SEAL_NONE; i = next) {
		next = s->files[i].next;
		r = file_compare(s, segment, &s->files[i], whole_only);
		if (r > 0) {
			s->files[i].found = at;
			blocks -= whole_only ? blocks_mark(marks, &s->files[i]) : 0;
		}
		if (r >= 0)
			r = seal_tell(s, 0, 0);
	}
	if (whole_only && blocks)
		found_forget(s, found);
	return r;
}

int seal_found_use(struct sealing *s)
{
	int r = found_choose(s);

	for (uint32_t i = 0; r >= 0 && i < s->found_set.count; i++)
		if (s->found[i].used)
			r = found_compare(s, i);
	return r;
}
