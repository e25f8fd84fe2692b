/*
 * Image files of manifests. Called by the importer and by dsec-store. Must hold: the same manifests
 * in the same order give the same file; what the store has wrong is found before anything of it is
 * used.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/store/erofs.h"
#include "backends/store/file.h"
#include "backends/store/manifest.h"
#include "backends/store/store.h"
#include "engine/base/cleanup.h"

/* ---- one manifest ---- */

static bool config_says(const struct image_record *record)
{
	return record->env_count || record->entrypoint_count || record->cmd_count ||
	       *record->user || *record->cwd;
}

/* The last that has one counts. */
static int config_take(const struct store *store, const struct store_manifest *manifest,
		       struct image_record *record)
{
	auto_free struct image_record *read = calloc(1, sizeof *read);
	auto_free void *text = NULL;
	size_t bytes;
	int r = read ? store_blob_read(store, manifest->config.digest, STORE_CONFIG_BYTES_MAX,
				       &text, &bytes) :
		       -ENOMEM;

	if (r >= 0)
		r = store_config_parse(text, bytes, read);
	if (r < 0 || !(config_says(read) || !config_says(record)))
		return r;
	memcpy(record->created, read->created, sizeof record->created);
	memcpy(record->user, read->user, sizeof record->user);
	memcpy(record->cwd, read->cwd, sizeof record->cwd);
	memcpy(record->strings, read->strings, sizeof record->strings);
	record->string_bytes = read->string_bytes;
	record->env_count = read->env_count;
	record->entrypoint_count = read->entrypoint_count;
	record->cmd_count = read->cmd_count;
	return 0;
}

/* ---- all of them ---- */

static bool can_be_mounted(const struct tree *tree)
{
	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at))
		if (tree->nodes[at].type == TREE_WHITEOUT || tree->nodes[at].flags & TREE_OPAQUE)
			return false;
	return true;
}

/* The first is taken as it is where it can be. */
static int layer_add(struct tree **tree, struct tree **layer, bool is_lowest)
{
	if (!*tree && (!is_lowest || can_be_mounted(*layer))) {
		*tree = *layer;
		*layer = NULL;
		return 0;
	}
	if (!*tree)
		*tree = tree_new();
	return *tree ? tree_merge(*tree, *layer, is_lowest) : -ENOMEM;
}

static int part_add(const struct store *store, const uint8_t digest[DIGEST_BYTES], bool is_lowest,
		    struct tree **tree, struct image_record *record)
{
	struct store_manifest manifest;
	struct tree *layer = NULL;
	int r = store_manifest_load(store, digest, &manifest);

	if (r < 0)
		return r;
	r = config_take(store, &manifest, record);
	if (r >= 0)
		r = store_tree_load(store, &manifest, &layer);
	if (r >= 0)
		r = layer_add(tree, &layer, is_lowest);
	if (r >= 0) {
		record->layers += manifest.layers;
		memcpy(record->source, manifest.source, sizeof record->source);
		memcpy(record->manifests[record->manifest_count++], digest, DIGEST_BYTES);
	}
	tree_free(layer);
	store_manifest_done(&manifest);
	return r;
}

static void contents_count(const struct tree *tree, struct image_record *record)
{
	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at)) {
		record->files++;
		if (tree->nodes[at].type == TREE_FILE && tree->nodes[at].link == TREE_NONE)
			record->content_bytes += tree->nodes[at].size;
	}
	for (uint32_t i = 0; i < tree->segment_count; i++)
		record->segment_bytes += tree->segments[i].bytes;
	record->segments = tree->segment_count;
}

static int image_write(struct tree *tree, int fd, struct image_record *record)
{
	uint8_t digest[DIGEST_BYTES];
	struct erofs_made made;
	int r = erofs_write(tree, fd, &made);

	if (r >= 0)
		r = file_digest(fd, digest, &record->erofs_bytes);
	if (r >= 0 && record->erofs_bytes != made.bytes)
		r = -EIO;
	if (r < 0)
		return r;
	digest_text(digest, record->digest);
	return image_record_write(fd, record, tree->segments);
}

int store_merge(const struct store *store, const struct store_layers *layers, struct tree **ret,
		struct image_record *record)
{
	struct tree *tree = NULL;
	int r = !layers->count || layers->count > IMAGE_MANIFESTS_MAX ? -EINVAL : 0;

	for (size_t i = 0; r >= 0 && i < layers->count; i++)
		r = part_add(store, layers->manifests[i], layers->is_lowest, &tree, record);
	if (r < 0)
		tree_free(tree);
	else
		*ret = tree;
	return r;
}

int store_compose(const struct store *store, const uint8_t (*manifests)[DIGEST_BYTES], size_t count,
		  int fd, struct image_record *ret)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	struct tree *tree = NULL;
	const struct store_layers layers = { manifests, count, .is_lowest = true };
	int r = record ? store_merge(store, &layers, &tree, record) : -ENOMEM;

	if (r >= 0 && count > 1)
		(void)snprintf(record->source, sizeof record->source, "composed");
	if (r >= 0) {
		tree_drop_segments(tree); /* that later parts hide all of */
		contents_count(tree, record);
		r = image_write(tree, fd, record);
	}
	tree_free(tree);
	if (r >= 0)
		*ret = *record;
	return r;
}
