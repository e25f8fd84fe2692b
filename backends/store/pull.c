/*
 * An image of a layout, or a composition, into the store. Called by dsec-store pull. Must hold: the
 * layout came from anywhere; what gets a name in the store has the digest, the size and the chunks
 * that were promised, and a manifest gets one after all that it names.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/store/batch.h"
#include "backends/store/composition.h"
#include "backends/store/copy.h"
#include "backends/store/manifest.h"
#include "backends/store/segment.h"
#include "backends/store/transfer.h"
#include "engine/base/cleanup.h"

/* New contents get their names at each of these: who comes again need not read them again. */
#define STEP_BYTES (4ull << 30)

struct pull {
	struct transfer *transfer;
	struct source source;
	struct copy copy;
	uint64_t uncommitted_bytes;
};

static int pull_failed(struct pull *pull, int error)
{
	pull->transfer->why = pull->copy.why;
	return error;
}

/* Whole blobs that are looked into: small ones, and trees. The caller frees. */
static int blob_read(struct pull *pull, const struct store_blob *blob, char **ret)
{
	const char **why = &pull->transfer->why;
	uint8_t digest[DIGEST_BYTES];
	auto_free char *bytes = NULL;
	struct stream from;
	int r;

	digest_text(blob->digest, pull->transfer->what);
	r = source_blob(&pull->source, blob, &from, why);
	if (r < 0)
		return r;
	bytes = malloc(blob->bytes + 1);
	r = bytes ? stream_read(&from, bytes, blob->bytes, why) : -ENOMEM;
	stream_close(&from);
	if (r < 0)
		return r;
	digest_of(bytes, blob->bytes, digest);
	*why = "a blob whose bytes are not those of its digest";
	if (memcmp(digest, blob->digest, DIGEST_BYTES) != 0)
		return -EBADMSG;
	*why = NULL;
	bytes[blob->bytes] = 0;
	*ret = take_ptr(bytes);
	return 0;
}

static int blob_keep(struct pull *pull, const void *bytes, const struct store_blob *blob)
{
	uint8_t digest[DIGEST_BYTES];

	pull->transfer->new_blobs++;
	return batch_write(pull->copy.to, bytes, blob->bytes, digest);
}

static int config_pull(struct pull *pull, const struct store_manifest *manifest)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	auto_free char *text = NULL;
	int r = record ? blob_read(pull, &manifest->config, &text) : -ENOMEM;

	if (r < 0)
		return r;
	pull->transfer->why = "no config of an image";
	r = store_config_parse(text, manifest->config.bytes, record);
	if (r < 0)
		return r;
	pull->transfer->why = NULL;
	return blob_keep(pull, text, &manifest->config);
}

static int tree_pull(struct pull *pull, const struct store_manifest *manifest)
{
	auto_free char *bytes = NULL;
	struct tree *tree;
	int r = blob_read(pull, &manifest->tree, &bytes);

	if (r < 0)
		return r;
	pull->transfer->why = "no tree, or not one of these segments";
	r = store_tree_parse(bytes, manifest->tree.bytes, manifest, &tree);
	if (r < 0)
		return r;
	tree_free(tree);
	pull->transfer->why = NULL;
	return blob_keep(pull, bytes, &manifest->tree);
}

/* In the store, of that size: its bytes were checked when it came there. */
static bool is_there(const struct pull *pull, const struct store_blob *blob)
{
	char name[DIGEST_HEX_BYTES];
	struct stat st;

	digest_hex(blob->digest, name);
	return fstatat(pull->transfer->store->blobs_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISREG(st.st_mode) && (uint64_t)st.st_size == blob->bytes;
}

static int contents_pull(struct pull *pull, const struct store_blob *segment,
			 const struct store_blob *packed, const char *table)
{
	struct stream from;
	int r;

	digest_text(packed ? packed->digest : segment->digest, pull->transfer->what);
	r = source_blob(&pull->source, packed ? packed : segment, &from, &pull->copy.why);
	if (r < 0)
		return pull_failed(pull, r);
	r = packed ? copy_unpack(&pull->copy, &from, packed, segment, table) :
		     copy_plain(&pull->copy, &from, segment, table);
	stream_close(&from);
	if (r < 0)
		return pull_failed(pull, r);
	pull->transfer->new_blobs++;
	pull->transfer->new_bytes += segment->bytes;
	pull->uncommitted_bytes += segment->bytes;
	if (pull->uncommitted_bytes < STEP_BYTES)
		return 0;
	pull->uncommitted_bytes = 0;
	return batch_commit(pull->copy.to);
}

static int segment_pull(struct pull *pull, const struct store_manifest *manifest, uint32_t at)
{
	const struct tree_segment *s = &manifest->segments[at];
	struct store_blob table = { .bytes = segment_table_bytes(s->bytes) };
	struct store_blob segment = { .bytes = s->bytes };
	auto_free char *chunks = NULL;
	int r;

	memcpy(table.digest, s->chunks, DIGEST_BYTES);
	memcpy(segment.digest, s->digest, DIGEST_BYTES);
	r = blob_read(pull, &table, &chunks);
	if (r >= 0)
		r = blob_keep(pull, chunks, &table);
	if (r < 0 || pull->transfer->is_lazy)
		return r;
	if (is_there(pull, &segment)) {
		pull->transfer->shared_blobs++;
		pull->transfer->shared_bytes += segment.bytes;
		return 0;
	}
	return contents_pull(pull, &segment, manifest->packed ? &manifest->packed[at] : NULL,
			     chunks);
}

static int contents_bound(struct transfer *t, const struct store_manifest *manifest)
{
	uint64_t left = t->bytes_max;

	t->why = "contents over the limit of an image: see dsecd --image-max";
	for (uint32_t i = 0; i < manifest->segment_count; i++) {
		if (manifest->segments[i].bytes > left)
			return -EFBIG;
		left -= manifest->segments[i].bytes;
	}
	t->why = NULL;
	return 0;
}

/* As the store has it: of what was packed it is written anew, and so has its digest of before. */
static int manifest_keep(struct pull *pull, struct store_manifest *manifest, const char *text,
			 size_t bytes, uint8_t ret[DIGEST_BYTES])
{
	auto_free char *made = NULL;
	int r;

	if (!manifest->packed)
		return batch_write(pull->copy.to, text, bytes, ret);
	free(manifest->packed);
	manifest->packed = NULL;
	r = store_manifest_text(manifest, &made, &bytes);
	return r < 0 ? r : batch_write(pull->copy.to, made, bytes, ret);
}

static int parts_keep(struct pull *pull, struct store_manifest *manifest, const char *text,
		      size_t bytes, uint8_t ret[DIGEST_BYTES])
{
	struct transfer *t = pull->transfer;
	int r = contents_bound(t, manifest);

	if (r < 0)
		return r;
	t->step = "config";
	r = config_pull(pull, manifest);
	if (r < 0)
		return r;
	t->step = "tree";
	r = tree_pull(pull, manifest);
	if (r < 0)
		return r;
	t->step = "blobs";
	for (uint32_t i = 0; r >= 0 && i < manifest->segment_count; i++)
		r = segment_pull(pull, manifest, i);
	if (r >= 0)
		r = manifest_keep(pull, manifest, text, bytes, ret);
	return r < 0 ? r : batch_commit(pull->copy.to);
}

static int image_pull(struct pull *pull, const char *text, size_t bytes, uint8_t ret[DIGEST_BYTES])
{
	struct store_manifest manifest;
	int r = store_manifest_parse_packed(text, bytes, &manifest, &pull->transfer->why);

	if (r < 0)
		return r;
	pull->transfer->why = NULL;
	r = parts_keep(pull, &manifest, text, bytes, ret);
	store_manifest_done(&manifest);
	return r;
}

static int composition_pull(struct pull *pull, const char *text, size_t bytes,
			    struct store_images *ret)
{
	auto_free struct store_composition *of = calloc(1, sizeof *of);
	int r = of ? store_composition_parse(text, bytes, of, &pull->transfer->why) : -ENOMEM;

	for (uint32_t i = 0; r >= 0 && i < of->part_count; i++) {
		auto_free char *part = NULL;

		pull->transfer->step = "manifest";
		r = blob_read(pull, &of->parts[i], &part);
		if (r >= 0)
			r = image_pull(pull, part, of->parts[i].bytes, ret->manifests[i]);
	}
	if (r >= 0)
		ret->count = of->part_count;
	return r;
}

static int any_pull(struct pull *pull, const struct store_blob *blob, struct store_images *ret)
{
	auto_free char *text = NULL;
	int r;

	pull->transfer->step = "manifest";
	r = blob_read(pull, blob, &text);
	if (r < 0)
		return r;
	if (store_composition_is(text, blob->bytes))
		return composition_pull(pull, text, blob->bytes, ret);
	ret->count = 1;
	return image_pull(pull, text, blob->bytes, ret->manifests[0]);
}

static int index_find(struct pull *pull, struct store_blob *ret)
{
	struct transfer *t = pull->transfer;
	auto_free char *text = NULL;
	size_t bytes;
	int r;

	t->step = "index";
	r = source_index(&pull->source, &text, &bytes, &t->why);
	return r < 0 ? r : layout_index_find(text, bytes, t->tag, ret, &t->why);
}

int store_pull(struct transfer *t, struct store_images *ret)
{
	struct pull pull = {
		.transfer = t,
		.source = { .layout_fd = t->layout_fd, .blobs_fd = -1, .fetch = t->fetch },
		.copy = { .progress = t->progress, .owner = t->owner },
	};
	struct store_blob blob;
	int r = index_find(&pull, &blob);

	t->why = r < 0 ? t->why : NULL;
	if (r >= 0)
		r = source_open(&pull.source, &t->why);
	if (r >= 0)
		r = batch_new(t->store->blobs_fd, &pull.copy.to);
	if (r >= 0)
		r = any_pull(&pull, &blob, ret);
	batch_free(pull.copy.to);
	source_close(&pull.source);
	return r;
}
