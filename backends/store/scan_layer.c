/*
 * What is published with a packed image beside what was scanned in its sandbox: layers of the
 * store. Called by verb_pack.c. Must hold: every byte of a layer is looked through, also what no
 * file of it has; contents of a folded tree are written to the raw file only after that; a path
 * says where.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/store/digest_set.h"
#include "backends/store/manifest.h"
#include "backends/store/residue.h"
#include "backends/store/scan_state.h"
#include "backends/store/seal.h"
#include "engine/base/cleanup.h"

/* One that is read, the last: its segment's contents. */
struct source {
	const struct store *store;
	const struct tree *tree;
	int raw_fd;	  /* of the segment that has no digest yet; not owned */
	uint32_t segment; /* that `fd` is of */
	int fd;		  /* -1: none */
};

static const uint8_t no_digest[DIGEST_BYTES];

/* The path of a node, for rules and for refusals. */
static void path_set(struct scanning *s, const struct tree *tree, uint32_t at)
{
	char *end = s->path + sizeof s->path - 1, *begin = end;

	for (; at; at = tree->nodes[at].parent) {
		begin -= tree->nodes[at].name_bytes;
		memcpy(begin, tree_name(tree, at), tree->nodes[at].name_bytes);
		*--begin = '/';
	}
	s->path_bytes = (size_t)(end - begin);
	memmove(s->path, begin, s->path_bytes);
	s->path[s->path_bytes] = 0;
}

/* ---- contents that are in the store ---- */

/* -EOPNOTSUPP: they are served from elsewhere. */
static int source_open(struct scanning *s, struct source *source, uint32_t segment, int *ret_fd)
{
	const uint8_t *digest = source->tree->segments[segment].digest;
	int r = 0;

	*ret_fd = source->raw_fd;
	if (!memcmp(digest, no_digest, DIGEST_BYTES))
		return 0;
	if (source->fd < 0 || source->segment != segment) {
		cleanup_close(&source->fd);
		source->fd = -1;
		r = store_blob_open(source->store, digest, &source->fd);
		source->segment = segment;
	}
	*ret_fd = source->fd;
	if (r == -ENOENT)
		return scan_refuse(
			s, -EOPNOTSUPP,
			"not all contents of the layers below are here: pull them whole");
	return r;
}

static int node_is_core(struct scanning *s, struct source *source, uint32_t at)
{
	const struct tree *tree = source->tree;
	const struct tree_node *node = &tree->nodes[tree_inode(tree, at)];
	const struct tree_extent *first = &tree->extents[node->extent];
	int fd, r;

	if (node->type != TREE_FILE || !node->extents || first->file_block)
		return 0;
	r = source_open(s, source, first->segment, &fd);
	return r < 0 ? r : scan_is_core(fd, (uint64_t)first->block * TREE_BLOCK_BYTES);
}

/* 1: it is residue, and counted. */
static int node_is_residue(struct scanning *s, struct source *source, uint32_t at)
{
	struct residue_hit hit;
	int r = 1;

	if (!s->scan->residue || source->tree->nodes[at].type == TREE_WHITEOUT)
		return 0;
	path_set(s, source->tree, at);
	if (!residue_find(s->scan->residue, s->path, source->tree->nodes[at].type == TREE_DIRECTORY,
			  &hit))
		return 0;
	if (hit.only_cores)
		r = node_is_core(s, source, at);
	if (r > 0)
		residue_count(s->scan->residue, &hit);
	return r;
}

/* ---- names, targets, attributes ---- */

static int xattrs_check(struct scanning *s, const struct tree *tree, const struct tree_node *node)
{
	int r = 0;

	for (uint32_t i = node->xattrs; r >= 0 && i != TREE_NONE; i = tree->xattrs[i].next) {
		const struct tree_xattr *xattr = &tree->xattrs[i];
		const char *name = tree->text + xattr->name;

		r = scan_check(s, name, strlen(name), "the name of an attribute");
		if (r >= 0)
			r = scan_check(s, tree->text + xattr->value, xattr->value_bytes,
				       "an attribute");
	}
	return r;
}

static int node_check(struct scanning *s, const struct tree *tree, uint32_t at)
{
	const struct tree_node *node = &tree->nodes[at];
	int r;

	if (!s->scan->canaries)
		return 0;
	path_set(s, tree, at);
	r = at ? scan_check_path(s, s->path_bytes - node->name_bytes - 1) : 0;
	if (r < 0 || node->link != TREE_NONE || node->type == TREE_WHITEOUT)
		return r;
	if (node->type == TREE_SYMLINK)
		r = scan_check(s, tree->text + node->target, node->size, "the target of a link");
	return r < 0 ? r : xattrs_check(s, tree, node);
}

/* ---- a layer as it is in the store ---- */

/* Whose the byte at `offset` of a segment is; false: nobody's, in this layer. */
static bool owner_find(struct scanning *s, const struct tree *tree, uint32_t segment,
		       uint64_t offset)
{
	const uint64_t block = offset / TREE_BLOCK_BYTES;

	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at)) {
		const struct tree_node *node = &tree->nodes[at];

		if (node->type != TREE_FILE || node->link != TREE_NONE)
			continue;
		for (uint32_t i = 0; i < node->extents; i++) {
			const struct tree_extent *extent = &tree->extents[node->extent + i];

			if (extent->segment != segment || block < extent->block ||
			    block - extent->block >= extent->blocks)
				continue;
			path_set(s, tree, at);
			return true;
		}
	}
	s->path_bytes = 0;
	return false;
}

/* 1: it is in the file, and `ret` says where. */
static int file_look(struct scanning *s, int fd, struct canary_hit *ret)
{
	struct canary_scan canary;
	ssize_t n = 1;
	int r = 0;

	canary_begin(&canary, s->scan->canaries);
	for (off_t at = 0; r >= 0 && n; at += n) {
		n = pread(fd, s->buffer, sizeof s->buffer, at);
		if (n < 0)
			return -errno;
		if (canary_feed(&canary, s->buffer, (size_t)n, ret))
			return 1;
		r = scan_progress(s);
	}
	return r < 0 ? r : 0;
}

static int segment_check(struct scanning *s, struct source *source, uint32_t segment)
{
	struct canary_hit hit;
	int fd, r = source_open(s, source, segment, &fd);

	if (r >= 0)
		r = file_look(s, fd, &hit);
	if (r <= 0)
		return r;
	return scan_refuse_canary(s, &hit,
				  owner_find(s, source->tree, segment, hit.offset) ?
					  "contents" :
					  "contents that no file has");
}

static int blob_check(struct scanning *s, const struct store *store,
		      const uint8_t digest[DIGEST_BYTES], const char *what)
{
	struct canary_hit hit;
	int fd, r = store_blob_open(store, digest, &fd);

	if (r < 0)
		return r;
	auto_close int file = fd;
	r = file_look(s, file, &hit);
	return r > 0 ? scan_refuse_canary(s, &hit, what) : r;
}

/* What is pushed beside contents, byte by byte: also what means nothing to a reader. */
static int blobs_check(struct scanning *s, const struct store *store,
		       const uint8_t digest[DIGEST_BYTES], const struct store_manifest *manifest)
{
	int r = blob_check(s, store, digest, "its manifest");

	if (r >= 0)
		r = blob_check(s, store, manifest->config.digest, "its config");
	if (r >= 0)
		r = blob_check(s, store, manifest->tree.digest, "its tree");
	for (uint32_t i = 0; r >= 0 && i < manifest->segment_count; i++)
		r = blob_check(s, store, manifest->segments[i].chunks, "its digests");
	return r;
}

static int tree_look(struct scanning *s, struct source *source)
{
	const struct tree *tree = source->tree;
	int r = 0;

	for (uint32_t at = 0; r >= 0 && at != TREE_NONE; at = tree_walk(tree, at)) {
		r = node_check(s, tree, at);
		if (r >= 0 && at)
			r = node_is_residue(s, source, at);
	}
	s->path_bytes = 0;
	for (uint32_t i = 0; r >= 0 && s->scan->canaries && i < tree->segment_count; i++)
		r = segment_check(s, source, i);
	cleanup_close(&source->fd);
	return r;
}

static int layer_look(struct scanning *s, const struct store *store,
		      const uint8_t digest[DIGEST_BYTES])
{
	struct store_manifest manifest;
	struct tree *tree = NULL;
	uint32_t at;
	int r = store_manifest_load(store, digest, &manifest);

	if (r < 0)
		return r;
	r = store_tree_load(store, &manifest, &tree);
	if (r >= 0)
		r = tree_look(s, &(struct source){ .store = store, .tree = tree, .fd = -1 });
	if (r >= 0 && s->scan->canaries)
		r = blobs_check(s, store, digest, &manifest);
	for (uint32_t i = 0; r >= 0 && s->scan->segments && i < manifest.segment_count; i++)
		r = digest_set_add(s->scan->segments, manifest.segments[i].digest, &at);
	tree_free(tree);
	store_manifest_done(&manifest);
	return r;
}

int scan_layer(const struct scan *scan, const struct store *store,
	       const uint8_t manifest[DIGEST_BYTES], struct scanned *ret)
{
	auto_free struct scanning *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->scan = scan;
	s->report = ret;
	digest_text(manifest, s->layer);
	return layer_look(s, store, manifest);
}

/* ---- layers that become one ---- */

static int contents_fold(struct scanning *s, struct source *source, uint32_t at)
{
	struct tree_node *node = &s->tree->nodes[at];
	struct canary_scan canary;
	uint64_t was = 0;
	int fd, r = 0;

	if (node->size > s->scan->bytes_max - s->content_bytes)
		return scan_refuse(s, -EFBIG, "over the limit of bytes of an image");
	s->content_bytes += node->size;
	canary_begin(&canary, s->scan->canaries);
	for (uint32_t i = 0; r >= 0 && i < node->extents; i++) {
		struct tree_extent *extent = &s->tree->extents[node->extent + i];
		const uint64_t begin = (uint64_t)extent->file_block * TREE_BLOCK_BYTES;
		const uint64_t there = (uint64_t)extent->block * TREE_BLOCK_BYTES;
		const uint64_t bytes = seal_extent_bytes(node, extent);

		r = source_open(s, source, extent->segment, &fd);
		if (r < 0)
			break;
		if (canary.list && begin > was)
			canary_skip(&canary, begin - was);
		extent->segment = 0;
		extent->block = (uint32_t)(s->raw_bytes / TREE_BLOCK_BYTES);
		r = scan_extent(s, fd, there, there + bytes, &canary);
		was = begin + bytes;
	}
	return r;
}

static int residue_fold(struct scanning *s, struct source *source)
{
	int r = 0;

	for (uint32_t at = tree_walk(s->tree, 0); r >= 0 && at != TREE_NONE;
	     at = tree_walk(s->tree, at)) {
		r = node_is_residue(s, source, at);
		if (r <= 0)
			continue;
		s->report->wiped++;
		tree_remove(s->tree, at);
	}
	return r;
}

static int node_fold(struct scanning *s, struct source *source, uint32_t at)
{
	const struct tree_node *node = &s->tree->nodes[at];
	int r = node_check(s, s->tree, at);

	if (node->type == TREE_WHITEOUT)
		s->report->whiteouts++;
	else
		s->report->files++;
	if (r < 0 || node->type != TREE_FILE || node->link != TREE_NONE)
		return r;
	path_set(s, s->tree, at);
	return contents_fold(s, source, at);
}

int scan_fold(const struct scan *scan, const struct store *store, struct tree *tree, int raw_fd,
	      struct scanned *ret)
{
	auto_free struct scanning *s = calloc(1, sizeof *s);
	struct source source = { .store = store, .tree = tree, .raw_fd = raw_fd, .fd = -1 };
	struct tree_segment raw = { .bytes = 0 };
	uint32_t number;
	int r;

	if (!s)
		return -ENOMEM;
	s->scan = scan;
	s->report = ret;
	s->tree = tree;
	ret->files = ret->bytes = ret->whiteouts = 0;
	r = residue_fold(s, &source);
	tree_sort(tree); /* without what was removed */
	for (uint32_t at = 0; r >= 0 && at != TREE_NONE; at = tree_walk(tree, at))
		r = node_fold(s, &source, at);
	cleanup_close(&source.fd);
	if (r < 0)
		return r;
	raw.bytes = s->raw_bytes;
	tree->segment_count = 0;
	return tree_add_segment(tree, &raw, &number);
}
