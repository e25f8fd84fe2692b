/*
 * Checking blobs and what is in them. Called by verify.c. Must hold: a fault is told for every
 * image that has it, though what it is in is read once.
 */
#include "backends/store/verify_blob.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/store/file.h"
#include "backends/store/manifest.h"
#include "backends/store/seal.h"
#include "backends/store/segment.h"
#include "engine/base/cleanup.h"

static int bytes_add(struct verifying *v, int fd, uint64_t from, uint64_t bytes)
{
	int r = 0;

	for (uint64_t at = 0; r >= 0 && at < bytes;) {
		size_t take = bytes - at < VERIFY_BUFFER_BYTES ? bytes - at : VERIFY_BUFFER_BYTES;

		r = file_read(fd, v->buffer, take, from + at);
		if (r < 0)
			break;
		digest_add(v->digest, v->buffer, take);
		at += take;
		r = verify_tell(v, 0, take);
	}
	return r;
}

int verify_digest(struct verifying *v, int fd, uint64_t bytes, uint8_t ret[DIGEST_BYTES])
{
	int r = bytes_add(v, fd, 0, bytes);

	digest_take(v->digest, ret);
	return r;
}

/* ---- blobs ---- */

/* 1: right; 0: damaged, or of another size; -ENOENT. */
static int blob_read(struct verifying *v, const uint8_t digest[DIGEST_BYTES], uint64_t bytes)
{
	uint8_t found[DIGEST_BYTES];
	struct stat st;
	int fd = -1, r = store_blob_open(v->store, digest, &fd);

	if (r < 0)
		return r == -EBADMSG ? 0 : r;
	auto_close int file = fd;
	if (fstat(file, &st) < 0)
		return -errno;
	if (bytes != UINT64_MAX && (uint64_t)st.st_size != bytes)
		return 0;
	r = verify_digest(v, file, (uint64_t)st.st_size, found);
	v->result->blobs++;
	if (r < 0)
		return r == -EBADMSG || r == -EIO ? 0 : r;
	return !memcmp(found, digest, DIGEST_BYTES);
}

static int bad_tell(struct verifying *v, const char *what, const char *how,
		    const uint8_t digest[DIGEST_BYTES])
{
	int r = verify_fault_tell(v, what, how, digest);

	v->manifest_is_bad = true;
	return r < 0 ? r : 0;
}

/* What no image has is told of once; what images have, of each. */
int verify_blob(struct verifying *v, const char *what, const uint8_t digest[DIGEST_BYTES],
		uint64_t bytes)
{
	uint32_t at;
	int r;

	if (digest_set_find(&v->known, digest) != DIGEST_SET_NONE) {
		if (digest_set_find(&v->bad, digest) == DIGEST_SET_NONE)
			return 1;
		return *v->image ? bad_tell(v, what, "damaged", digest) : 0;
	}
	r = blob_read(v, digest, bytes);
	if (r == -ENOENT)
		return bad_tell(v, what, "missing", digest);
	if (r < 0)
		return r;
	if (digest_set_add(&v->known, digest, &at) < 0 ||
	    (!r && digest_set_add(&v->bad, digest, &at) < 0))
		return -ENOMEM;
	return r ? 1 : bad_tell(v, what, "damaged", digest);
}

/* ---- segments ---- */

/* The table is what a server believes when a segment is not here. */
static int table_check(struct verifying *v, int segment_fd, const struct tree_segment *segment)
{
	auto_free void *table = NULL;
	uint8_t found[DIGEST_BYTES];
	size_t count;
	int r = store_blob_read(v->store, segment->chunks, segment_table_bytes(segment->bytes),
				&table, &count);

	for (uint64_t at = 0; r >= 0 && at < segment->bytes; at += SEGMENT_CHUNK_BYTES) {
		uint64_t left = segment->bytes - at;
		size_t bytes = left < SEGMENT_CHUNK_BYTES ? left : SEGMENT_CHUNK_BYTES;
		const char *wanted = (char *)table + at / SEGMENT_CHUNK_BYTES * DIGEST_BYTES;

		r = file_read(segment_fd, v->buffer, bytes, at);
		if (r < 0)
			break;
		digest_of(v->buffer, bytes, found);
		if (memcmp(found, wanted, DIGEST_BYTES) != 0)
			return bad_tell(v, "chunks", "of another segment", segment->chunks);
		r = verify_tell(v, 0, 0);
	}
	return r < 0 ? r : 1;
}

/* 1: it is there and right. */
static int segment_check(struct verifying *v, const struct tree_segment *segment)
{
	bool known = digest_set_find(&v->known, segment->digest) != DIGEST_SET_NONE;
	int fd = -1;
	int r = verify_blob(v, "chunks", segment->chunks, segment_table_bytes(segment->bytes));

	if (r <= 0)
		return r;
	if (v->wish->lazy && store_blob_open(v->store, segment->digest, &fd) == -ENOENT) {
		v->result->absent++;
		return 0;
	}
	auto_close int file = fd;
	r = verify_blob(v, "segment", segment->digest, segment->bytes);
	if (r <= 0 || known)
		return r;
	cleanup_close(&file);
	file = -1;
	r = store_blob_open(v->store, segment->digest, &fd);
	if (r < 0)
		return r;
	file = fd;
	return table_check(v, file, segment);
}

/* ---- files ---- */

/* As seal_files.c takes it. */
static int file_digest_take(struct verifying *v, const struct tree *tree, uint32_t at,
			    const int *fds, uint8_t ret[DIGEST_BYTES])
{
	const struct tree_node *node = &tree->nodes[at];
	int r = 0;

	seal_holes_add(v->digest, node, &tree->extents[node->extent]);
	for (uint32_t i = 0; r >= 0 && i < node->extents; i++) {
		const struct tree_extent *extent = &tree->extents[node->extent + i];

		r = bytes_add(v, fds[extent->segment], (uint64_t)extent->block * TREE_BLOCK_BYTES,
			      seal_extent_bytes(node, extent));
	}
	digest_take(v->digest, ret);
	return r;
}

/* Of the same contents at the same place it is the same, in whatever tree. */
static void file_key(const struct tree *tree, const struct tree_node *node,
		     uint8_t ret[DIGEST_BYTES])
{
	const struct tree_extent *first = &tree->extents[node->extent];
	uint8_t text[2 * DIGEST_BYTES + sizeof first->block];

	memcpy(text, node->digest, DIGEST_BYTES);
	memcpy(text + DIGEST_BYTES, tree->segments[first->segment].digest, DIGEST_BYTES);
	memcpy(text + sizeof text - sizeof first->block, &first->block, sizeof first->block);
	digest_of(text, sizeof text, ret);
}

static bool segments_are_there(const struct tree *tree, const struct tree_node *node,
			       const int *fds)
{
	for (uint32_t i = 0; i < node->extents; i++)
		if (fds[tree->extents[node->extent + i].segment] < 0)
			return false;
	return true;
}

static int file_check(struct verifying *v, const struct tree *tree, uint32_t at, const int *fds)
{
	const struct tree_node *node = &tree->nodes[at];
	uint8_t found[DIGEST_BYTES], key[DIGEST_BYTES];
	uint32_t number;
	int r;

	if (!node->extents || !segments_are_there(tree, node, fds))
		return 0;
	file_key(tree, node, key);
	if (digest_set_find(&v->files, key) != DIGEST_SET_NONE)
		return 0;
	r = file_digest_take(v, tree, at, fds, found);
	if (r < 0)
		return r;
	if (memcmp(found, node->digest, DIGEST_BYTES) != 0) {
		v->manifest_is_bad = true;
		return verify_file_tell(v, tree, at);
	}
	r = digest_set_add(&v->files, key, &number);
	return r < 0 ? r : verify_tell(v, 1, 0);
}

static int files_check(struct verifying *v, const struct tree *tree, int *fds)
{
	int r = 0;

	for (uint32_t at = 0; r >= 0 && at != TREE_NONE; at = tree_walk(tree, at))
		if (tree->nodes[at].type == TREE_FILE && tree->nodes[at].link == TREE_NONE)
			r = file_check(v, tree, at, fds);
	return r;
}

/* ---- a manifest ---- */

static int tree_check(struct verifying *v, const struct store_manifest *manifest, int *fds)
{
	struct tree *tree;
	int r = verify_blob(v, "tree", manifest->tree.digest, manifest->tree.bytes);

	if (r <= 0)
		return r;
	r = store_tree_load(v->store, manifest, &tree);
	if (r == -EBADMSG)
		return bad_tell(v, "tree", "unsound", manifest->tree.digest);
	if (r < 0)
		return r;
	r = files_check(v, tree, fds);
	tree_free(tree);
	return r;
}

static int config_check(struct verifying *v, const struct store_manifest *manifest)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	auto_free void *text = NULL;
	size_t bytes;
	int r = verify_blob(v, "config", manifest->config.digest, manifest->config.bytes);

	if (r <= 0)
		return r;
	if (!record)
		return -ENOMEM;
	r = store_blob_read(v->store, manifest->config.digest, STORE_CONFIG_BYTES_MAX, &text,
			    &bytes);
	if (r >= 0 && store_config_parse(text, bytes, record) < 0)
		return bad_tell(v, "config", "unsound", manifest->config.digest);
	return r;
}

int verify_parts(struct verifying *v, const struct store_manifest *manifest)
{
	uint32_t count = manifest->segment_count;
	auto_free int *fds = malloc((count + 1) * sizeof *fds);
	int r = fds ? config_check(v, manifest) : -ENOMEM;

	for (uint32_t i = 0; fds && i < count; i++)
		fds[i] = -1;
	for (uint32_t i = 0; r >= 0 && i < count; i++) {
		r = segment_check(v, &manifest->segments[i]);
		if (r > 0)
			r = store_blob_open(v->store, manifest->segments[i].digest, &fds[i]);
	}
	if (r >= 0)
		r = tree_check(v, manifest, fds);
	for (uint32_t i = 0; fds && i < count; i++)
		cleanup_close(&fds[i]);
	return r;
}
