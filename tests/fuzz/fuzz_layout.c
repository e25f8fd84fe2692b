/*
 * What a pull reads of a layout: its index, then a manifest. Must hold: what is accepted is bounded
 * and can be written again; what is put into an index is found there, and the others stay.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/composition.h"
#include "backends/store/manifest.h"
#include "backends/store/transfer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void index_check(const char *text, size_t bytes)
{
	static const struct layout_entry entry = {
		.tag = "one",
		.artifact = STORE_ARTIFACT,
		.manifest = { .digest = { 7 }, .bytes = 700 },
	};
	struct store_blob found;
	const char *why = NULL;
	char *made;
	int r = layout_index_find(text, bytes, "", &found, &why);

	assert(why);
	assert(r == 0 || r == -EBADMSG || r == -EINVAL || r == -ENOENT);
	assert(r < 0 || found.bytes <= STORE_MANIFEST_BYTES_MAX);
	if (layout_index_put(text, bytes, &entry, &made) < 0)
		return;
	r = layout_index_find(made, strlen(made), "one", &found, &why);
	assert(r == 0);
	assert(found.bytes == 700);
	assert(found.digest[0] == 7);
	free(made);
}

static void manifest_check(const char *text, size_t bytes)
{
	struct store_manifest manifest, again;
	const char *why = NULL;
	char *made;
	size_t made_bytes;
	int r = store_manifest_parse_packed(text, bytes, &manifest, &why);

	if (r < 0) {
		assert(why);
		return;
	}
	assert(manifest.segment_count <= TREE_SEGMENTS_MAX);
	assert(manifest.tree.bytes <= STORE_TREE_BYTES_MAX);
	if (store_manifest_text(&manifest, &made, &made_bytes) >= 0) {
		r = store_manifest_parse_packed(made, made_bytes, &again, &why);
		assert(r == 0);
		assert(again.segment_count == manifest.segment_count);
		assert(!again.packed == !manifest.packed);
		store_manifest_done(&again);
		free(made);
	}
	store_manifest_done(&manifest);
}

static void composition_check(const char *text, size_t bytes)
{
	struct store_composition *of = calloc(1, sizeof *of);
	const char *why = NULL;

	assert(of);
	if (store_composition_is(text, bytes)) {
		int r = store_composition_parse(text, bytes, of, &why);

		assert(why);
		assert(of->part_count <= IMAGE_MANIFESTS_MAX);
		for (uint32_t i = 0; r >= 0 && i < of->part_count; i++)
			assert(of->parts[i].bytes <= STORE_MANIFEST_BYTES_MAX);
	}
	free(of);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char *text = malloc(bytes + 1);

	memcpy(text, data, bytes);
	text[bytes] = 0;
	index_check(text, bytes);
	manifest_check(text, bytes);
	composition_check(text, bytes);
	free(text);
	return 0;
}
