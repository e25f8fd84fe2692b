/*
 * Sealing: a tree and raw contents become blobs of the store. Called by whatever makes images. Must
 * hold: the same tree over the same store gives the same manifest; nothing has a name before all of
 * it is whole.
 */
#include "backends/store/seal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/store/batch.h"
#include "backends/store/manifest.h"
#include "backends/store/segment.h"
#include "engine/base/cleanup.h"

static void sealing_done(struct sealing *s)
{
	free(s->files);
	free(s->firsts);
	free(s->found);
	digest_set_done(&s->digests);
	digest_set_done(&s->found_set);
	index_close(&s->index);
	segment_writer_free(s->writer);
	free(s->buffer);
	free(s->other);
}

/* ---- what the store has not ---- */

int seal_file_store(struct sealing *s, struct seal_file *file)
{
	const struct tree *tree = s->seal->tree;
	const struct tree_node *node = &tree->nodes[file->node];
	uint64_t together = file->blocks * TREE_BLOCK_BYTES;
	int r = 0;

	for (uint32_t i = 0; r >= 0 && i < node->extents; i++) {
		const struct tree_extent *extent = &tree->extents[node->extent + i];
		uint64_t bytes = seal_extent_bytes(node, extent);
		struct segment_source source = {
			.fd = s->seal->raw_fd,
			.offset = (uint64_t)extent->block * TREE_BLOCK_BYTES,
			.bytes = bytes,
			.together = together,
		};
		struct tree_extent there;

		r = segment_add(s->writer, &source, &there);
		if (r < 0)
			break;
		if (!i) {
			file->block = there.block;
			file->number = there.segment;
		}
		together -= (uint64_t)there.blocks * TREE_BLOCK_BYTES;
		r = seal_tell(s, 0, bytes);
	}
	return r;
}

/* What there is of them at most: some of it may be in the store. */
static uint64_t contents_bytes(const struct tree *tree)
{
	uint64_t bytes = 0;

	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at)) {
		const struct tree_node *node = &tree->nodes[at];

		for (uint32_t i = 0; node->type == TREE_FILE && i < node->extents; i++)
			bytes +=
				(uint64_t)tree->extents[node->extent + i].blocks * TREE_BLOCK_BYTES;
	}
	return bytes;
}

/* What was found and is not used after all comes behind all others. */
static int files_store(struct sealing *s, struct batch *batch, struct tree_segment **ret,
		       uint32_t *ret_count)
{
	int r = index_open(s->store->fd, &s->index);

	if (r >= 0)
		r = segment_writer_new(batch, contents_bytes(s->seal->tree), &s->writer);
	if (r >= 0)
		r = seal_files_read(s);
	if (r >= 0)
		r = seal_found_use(s);
	for (uint32_t i = 0; r >= 0 && i < s->file_count; i++) {
		struct seal_file *file = &s->files[i];

		if (file->same == SEAL_NONE && file->found == SEAL_NONE &&
		    file->number == SEAL_NONE)
			r = seal_file_store(s, file);
	}
	return r < 0 ? r : segment_writer_end(s->writer, ret, ret_count);
}

/* ---- the tree as it is kept ---- */

/* Where a file's contents are now, one behind the other, in the tree's own table of segments. */
static int file_place(struct sealing *s, const struct tree_segment *made, struct seal_file *file)
{
	struct tree *tree = s->seal->tree;
	struct tree_node *node = &tree->nodes[file->node];
	struct tree_extent *extents = &tree->extents[node->extent];
	const struct seal_file *first = file->same == SEAL_NONE ? file : &s->files[file->same];
	uint32_t segment, kept = 0, block = first->block;
	int r = tree_add_segment(tree,
				 first->found == SEAL_NONE ? &made[first->number] :
							     &s->found[first->found].segment,
				 &segment);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < node->extents; i++) {
		struct tree_extent extent = extents[i];

		extent.segment = segment;
		extent.block = block;
		block += extent.blocks;
		if (kept &&
		    extents[kept - 1].file_block + extents[kept - 1].blocks == extent.file_block)
			extents[kept - 1].blocks += extent.blocks;
		else
			extents[kept++] = extent;
	}
	node->extents = kept;
	return 0;
}

static void files_count(const struct sealing *s, struct sealed *ret)
{
	for (uint32_t i = 0; i < s->file_count; i++) {
		const struct seal_file *file = &s->files[i];

		ret->content_bytes += file->bytes;
		if (file->same == SEAL_NONE && file->found == SEAL_NONE)
			ret->new_bytes += file->bytes;
		else
			ret->shared_bytes += file->bytes;
	}
	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(s->seal->tree, at))
		ret->files++;
}

static int tree_store(struct sealing *s, struct batch *batch, struct store_blob *ret)
{
	int fd = -1, r = batch_file(batch, &fd);

	if (r < 0)
		return r;
	auto_close int file = fd;
	r = tree_write(s->seal->tree, file);
	return r < 0 ? r : batch_adopt(batch, take_fd(&file), ret->digest, &ret->bytes);
}

static int manifest_store(struct sealing *s, struct batch *batch, struct store_manifest *manifest,
			  uint8_t ret[DIGEST_BYTES])
{
	auto_free char *config = NULL, *text = NULL;
	size_t config_bytes, bytes;
	int r = store_config_text(s->seal->record, manifest, &config, &config_bytes);

	if (r >= 0)
		r = batch_write(batch, config, config_bytes, manifest->config.digest);
	if (r < 0)
		return r;
	manifest->config.bytes = config_bytes;
	r = store_manifest_text(manifest, &text, &bytes);
	return r < 0 ? r : batch_write(batch, text, bytes, ret);
}

static int all_store(struct sealing *s, struct batch *batch, uint8_t ret[DIGEST_BYTES])
{
	struct tree *tree = s->seal->tree;
	struct store_manifest manifest = { .layers = s->seal->record->layers,
					   .provenance = s->seal->provenance };
	int r = tree_store(s, batch, &manifest.tree);

	if (r < 0)
		return r;
	memcpy(manifest.source, s->seal->record->source, sizeof manifest.source);
	manifest.segments = tree->segments; /* the tree's */
	manifest.segment_count = tree->segment_count;
	r = manifest_store(s, batch, &manifest, ret);
	return r < 0 ? r : batch_commit(batch);
}

/* What is new can be found from now on. A hint that is not written costs room, later. */
static void places_add(const struct sealing *s, const struct tree_segment *made)
{
	auto_free struct place *places = calloc(s->file_count + 1, sizeof *places);
	struct index index;
	uint32_t count = 0;

	for (uint32_t i = 0; places && i < s->file_count; i++) {
		const struct seal_file *file = &s->files[i];
		struct place *place = &places[count];

		if (file->same != SEAL_NONE || file->found != SEAL_NONE)
			continue;
		/* Of what may not be shared the others go on to be found: they share more. */
		if (s->seal->is_alone && file->has_other)
			continue;
		memcpy(place->file, s->seal->tree->nodes[file->node].digest, DIGEST_BYTES);
		place->segment = made[file->number];
		place->block = file->block;
		place->blocks = (uint32_t)file->blocks;
		count++;
	}
	if (!count || index_open(s->store->fd, &index) < 0)
		return;
	(void)index_add(&index, places, count); /* as said */
	index_close(&index);
}

static int sealing_run(struct sealing *s, struct batch *batch, struct sealed *ret)
{
	auto_free struct tree_segment *made = NULL;
	uint32_t count;
	int r = files_store(s, batch, &made, &count);

	s->seal->tree->segment_count = 0;
	for (uint32_t i = 0; r >= 0 && i < s->file_count; i++)
		r = file_place(s, made, &s->files[i]);
	if (r >= 0)
		r = all_store(s, batch, ret->manifest);
	if (r < 0)
		return r;
	files_count(s, ret);
	places_add(s, made);
	return 0;
}

int store_seal(struct store *store, const struct seal *seal, struct sealed *ret)
{
	struct sealing s = { .store = store, .seal = seal, .index = { .fd = -1 } };
	struct sealed sealed = { 0 };
	struct batch *batch = NULL;
	int r = batch_new(store->blobs_fd, &batch);

	s.buffer = malloc(SEAL_BUFFER_BYTES);
	s.other = malloc(SEAL_BUFFER_BYTES);
	if (r >= 0 && (!s.buffer || !s.other))
		r = -ENOMEM;
	if (r >= 0) {
		tree_sort(seal->tree);
		r = sealing_run(&s, batch, &sealed);
	}
	sealing_done(&s);
	batch_free(batch);
	if (r >= 0)
		*ret = sealed;
	return r;
}
