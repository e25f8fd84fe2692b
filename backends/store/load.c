/*
 * Reading what the store has of an image: its manifest, its tree. Called by composing, gc, verify,
 * push and pack. Must hold: what is given back was checked against its digest, and is sound.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/manifest.h"
#include "backends/store/store.h"
#include "engine/base/cleanup.h"

int store_manifest_load(const struct store *store, const uint8_t digest[DIGEST_BYTES],
			struct store_manifest *ret)
{
	auto_free void *text = NULL;
	const char *why;
	size_t bytes;
	int r = store_blob_read(store, digest, STORE_MANIFEST_BYTES_MAX, &text, &bytes);

	return r < 0 ? r : store_manifest_parse(text, bytes, ret, &why);
}

int store_tree_parse(const void *bytes, size_t count, const struct store_manifest *manifest,
		     struct tree **ret)
{
	struct tree *tree;
	const char *why;
	int r = tree_read(bytes, count, &tree, &why);

	if (r < 0)
		return r;
	/* What the manifest promises is what the tree needs: whoever copied it has all. */
	if (tree->segment_count != manifest->segment_count ||
	    (tree->segment_count && memcmp(tree->segments, manifest->segments,
					   tree->segment_count * sizeof *tree->segments) != 0)) {
		tree_free(tree);
		return -EBADMSG;
	}
	*ret = tree;
	return 0;
}

int store_tree_load(const struct store *store, const struct store_manifest *manifest,
		    struct tree **ret)
{
	auto_free void *bytes = NULL;
	size_t count;
	int r = store_blob_read(store, manifest->tree.digest, STORE_TREE_BYTES_MAX, &bytes, &count);

	return r < 0 ? r : store_tree_parse(bytes, count, manifest, ret);
}
