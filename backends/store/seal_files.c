/*
 * The files of a tree that is sealed: their digests, taken from the raw contents. Called by seal.c.
 * Must hold: what a tree says of digests is not believed; every extent lies in the raw contents.
 */
#include "backends/store/seal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/file.h"

uint64_t seal_extent_bytes(const struct tree_node *node, const struct tree_extent *extent)
{
	uint64_t begin = (uint64_t)extent->file_block * TREE_BLOCK_BYTES;
	uint64_t bytes = (uint64_t)extent->blocks * TREE_BLOCK_BYTES;

	if (begin >= node->size)
		return 0;
	return node->size - begin < bytes ? node->size - begin : bytes;
}

int seal_tell(struct sealing *s, uint64_t files, uint64_t bytes)
{
	s->told_files += files;
	s->told_bytes += bytes;
	return s->seal->progress ? s->seal->progress(s->seal->owner, s->told_files, s->told_bytes) :
				   0;
}

static int extent_add(struct sealing *s, struct digest *digest, const struct tree_extent *extent,
		      uint64_t bytes)
{
	uint64_t from = (uint64_t)extent->block * TREE_BLOCK_BYTES;
	int r = 0;

	for (uint64_t at = 0; r >= 0 && at < bytes;) {
		size_t take = bytes - at < SEAL_BUFFER_BYTES ? bytes - at : SEAL_BUFFER_BYTES;

		r = file_read(s->seal->raw_fd, s->buffer, take, from + at);
		if (r < 0)
			break;
		digest_add(digest, s->buffer, take);
		at += take;
		r = seal_tell(s, 0, take);
	}
	return r;
}

static bool is_dense(const struct tree_node *node, const struct tree_extent *extents)
{
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < node->extents; i++) {
		if (extents[i].file_block != blocks)
			return false;
		blocks += extents[i].blocks;
	}
	return blocks * TREE_BLOCK_BYTES >= node->size;
}

void seal_holes_add(struct digest *digest, const struct tree_node *node,
		    const struct tree_extent *extents)
{
	char text[48];
	int bytes;

	if (is_dense(node, extents))
		return;
	bytes = snprintf(text, sizeof text, "holes %llu\n", (unsigned long long)node->size);

	digest_add(digest, text, (size_t)bytes);
	for (uint32_t i = 0; i < node->extents; i++) {
		bytes = snprintf(text, sizeof text, "%llu %llu\n",
				 (unsigned long long)extents[i].file_block * TREE_BLOCK_BYTES,
				 (unsigned long long)seal_extent_bytes(node, &extents[i]));
		digest_add(digest, text, (size_t)bytes);
	}
}

/* In one piece or not at all: parts of a file lie one behind the other in a segment. */
static int file_read_node(struct sealing *s, struct digest *digest, uint32_t number,
			  struct seal_file *ret)
{
	struct tree *tree = s->seal->tree;
	struct tree_node *node = &tree->nodes[number];
	const struct tree_extent *extents = &tree->extents[node->extent];
	int r = 0;

	memset(ret, 0, sizeof *ret);
	ret->node = number;
	ret->same = ret->found = ret->next = ret->number = SEAL_NONE;
	seal_holes_add(digest, node, extents);
	for (uint32_t i = 0; r >= 0 && i < node->extents; i++) {
		uint64_t bytes = seal_extent_bytes(node, &extents[i]);

		if (extents[i].segment != 0 ||
		    (bytes + TREE_BLOCK_BYTES - 1) / TREE_BLOCK_BYTES != extents[i].blocks)
			return -EINVAL;
		ret->blocks += extents[i].blocks;
		ret->bytes += bytes;
		r = extent_add(s, digest, &extents[i], bytes);
	}
	digest_take(digest, node->digest);
	return r < 0 ? r : seal_tell(s, 1, 0);
}

static int file_keep(struct sealing *s, const struct seal_file *file)
{
	uint32_t at;
	int r;

	if (s->file_count == s->file_size) {
		uint32_t size = s->file_size ? s->file_size * 2 : 1024;
		struct seal_file *files = realloc(s->files, size * sizeof *files);
		uint32_t *firsts = files ? realloc(s->firsts, size * sizeof *firsts) : NULL;

		if (files)
			s->files = files;
		if (!firsts)
			return -ENOMEM;
		s->firsts = firsts;
		s->file_size = size;
	}
	r = digest_set_add(&s->digests, s->seal->tree->nodes[file->node].digest, &at);
	if (r < 0)
		return r;
	if (r > 0)
		s->firsts[at] = s->file_count;
	s->files[s->file_count] = *file;
	s->files[s->file_count].same = r > 0 ? (uint32_t)SEAL_NONE : s->firsts[at];
	s->file_count++;
	return 0;
}

/* At once, while its bytes are at hand, where no other has them. */
static int file_take(struct sealing *s, const struct seal_file *file)
{
	uint32_t at = s->file_count;
	int r = file_keep(s, file);

	if (r < 0 || s->files[at].same != SEAL_NONE)
		return r;
	r = seal_file_find(s, at);
	return r == 0 ? seal_file_store(s, &s->files[at]) : r;
}

int seal_files_read(struct sealing *s)
{
	struct tree *tree = s->seal->tree;
	struct digest *digest = digest_new();
	int r = digest ? 0 : -ENOMEM;

	for (uint32_t at = 0; r >= 0 && at != TREE_NONE; at = tree_walk(tree, at)) {
		const struct tree_node *node = &tree->nodes[at];
		struct seal_file file;

		if (node->type != TREE_FILE || node->link != TREE_NONE)
			continue;
		r = file_read_node(s, digest, at, &file);
		if (r >= 0 && file.blocks)
			r = file_take(s, &file);
	}
	digest_free(digest);
	return r;
}
