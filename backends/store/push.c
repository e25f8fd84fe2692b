/*
 * An image of the store, or a composition, into an image layout. Called by dsec-store push. Must
 * hold: the layout's index names a manifest only when all of its blobs are there and synced.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/store/batch.h"
#include "backends/store/composition.h"
#include "backends/store/copy.h"
#include "backends/store/file.h"
#include "backends/store/layout.h"
#include "backends/store/manifest.h"
#include "backends/store/segment.h"
#include "backends/store/transfer.h"
#include "engine/base/cleanup.h"

#define UNFINISHED_INDEX ".index.json.unfinished"

struct push {
	struct transfer *transfer;
	struct store layout;
	struct copy copy;
};

static int push_failed(struct push *push, int error)
{
	push->transfer->why = push->copy.why;
	return error;
}

/* Another name of the same file, where both are on one file system. 1: it has its name. */
static int blob_link(const struct push *push, const struct store_blob *blob)
{
	char name[DIGEST_HEX_BYTES];
	struct stat st;

	digest_hex(blob->digest, name);
	if (fstatat(push->layout.blobs_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISREG(st.st_mode) && (uint64_t)st.st_size == blob->bytes) {
		push->transfer->shared_blobs++;
		return 1;
	}
	if (linkat(push->transfer->store->blobs_fd, name, push->layout.blobs_fd, name, 0) < 0)
		return 0; /* it is copied */
	push->transfer->new_blobs++;
	return 1;
}

static int blob_push(struct push *push, const struct store_blob *blob)
{
	int fd = -1, r;

	digest_text(blob->digest, push->transfer->what);
	r = source_file_open(push->transfer->store->blobs_fd, blob, &fd, &push->copy.why);
	if (r < 0)
		return push_failed(push, r);
	auto_close int file = fd;
	struct stream from = { .fd = file };
	if (blob_link(push, blob))
		return 0;
	r = copy_plain(&push->copy, &from, blob, NULL);
	push->transfer->new_blobs += r >= 0;
	return r < 0 ? push_failed(push, r) : 0;
}

static int blob_pack(struct push *push, const struct store_blob *blob, struct store_blob *ret)
{
	int fd = -1, r;

	digest_text(blob->digest, push->transfer->what);
	r = source_file_open(push->transfer->store->blobs_fd, blob, &fd, &push->copy.why);
	if (r < 0)
		return push_failed(push, r);
	auto_close int file = fd;
	r = copy_pack(&push->copy, file, blob, ret);
	push->transfer->new_blobs += r >= 0;
	return r < 0 ? push_failed(push, r) : 0;
}

static int segments_push(struct push *push, struct store_manifest *manifest)
{
	int r = 0;

	if (push->transfer->is_packed && manifest->segment_count) {
		manifest->packed = calloc(manifest->segment_count, sizeof *manifest->packed);
		if (!manifest->packed)
			return -ENOMEM;
	}
	for (uint32_t i = 0; r >= 0 && i < manifest->segment_count; i++) {
		const struct tree_segment *s = &manifest->segments[i];
		struct store_blob table = { .bytes = segment_table_bytes(s->bytes) };
		struct store_blob segment = { .bytes = s->bytes };

		memcpy(table.digest, s->chunks, DIGEST_BYTES);
		memcpy(segment.digest, s->digest, DIGEST_BYTES);
		r = blob_push(push, &table);
		if (r >= 0)
			r = manifest->packed ? blob_pack(push, &segment, &manifest->packed[i]) :
					       blob_push(push, &segment);
		push->transfer->new_bytes += s->bytes;
	}
	return r;
}

static int manifest_push(struct push *push, const struct store_manifest *manifest,
			 struct store_blob *ret)
{
	auto_free char *text = NULL;
	size_t bytes;
	int r = store_manifest_text(manifest, &text, &bytes);

	if (r >= 0)
		r = batch_write(push->copy.to, text, bytes, ret->digest);
	ret->bytes = bytes;
	return r;
}

/* All that one manifest names, and the manifest as the layout has it. */
static int image_push(struct push *push, struct store_manifest *manifest, struct store_blob *ret)
{
	int r = blob_push(push, &manifest->config);

	if (r >= 0)
		r = blob_push(push, &manifest->tree);
	if (r >= 0)
		r = segments_push(push, manifest);
	return r < 0 ? r : manifest_push(push, manifest, ret);
}

static int composition_push(struct push *push, const struct store_composition *of,
			    const struct store_manifest *manifests, struct store_blob *ret)
{
	auto_free char *text = NULL;
	size_t bytes = 0;
	int r;

	push->transfer->why = "too many segments for one manifest: push its parts";
	r = store_composition_text(of, manifests, &text, &bytes);
	if (r < 0)
		return r;
	push->transfer->why = NULL;
	ret->bytes = bytes;
	return batch_write(push->copy.to, text, bytes, ret->digest);
}

/* Of an image its manifest, of a composition its own. */
static int images_push(struct push *push, const struct store_images *images,
		       struct store_manifest *manifests, struct store_blob *ret)
{
	auto_free struct store_composition *of = calloc(1, sizeof *of);
	struct transfer *t = push->transfer;
	int r = of ? 0 : -ENOMEM;

	for (uint32_t i = 0; r >= 0 && i < images->count; i++) {
		t->step = "image";
		digest_text(images->manifests[i], t->what);
		r = store_manifest_load(t->store, images->manifests[i], &manifests[i]);
		t->step = r < 0 ? t->step : "blobs";
		if (r >= 0)
			r = image_push(push, &manifests[i], &of->parts[of->part_count++]);
	}
	if (r < 0)
		return r;
	*ret = of->parts[0];
	return images->count == 1 ? 0 : composition_push(push, of, manifests, ret);
}

static int blobs_push(struct push *push, const struct store_images *images, struct store_blob *ret)
{
	struct store_manifest *manifests = calloc(images->count, sizeof *manifests);
	int r = manifests ? images_push(push, images, manifests, ret) : -ENOMEM;

	for (uint32_t i = 0; manifests && i < images->count; i++)
		store_manifest_done(&manifests[i]);
	free(manifests);
	if (r >= 0)
		r = batch_commit(push->copy.to);
	/* Of links too. */
	if (r >= 0 && fsync(push->layout.blobs_fd) < 0)
		r = -errno;
	return r;
}

static int index_write(struct push *push, const char *text)
{
	const int folder = push->transfer->layout_fd;
	int r;

	auto_close int fd = openat(folder, UNFINISHED_INDEX,
				   O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	r = fd < 0 ? -errno : file_write(fd, text, strlen(text), 0);
	if (r >= 0 &&
	    (fsync(fd) < 0 || renameat(folder, UNFINISHED_INDEX, folder, LAYOUT_INDEX) < 0 ||
	     fsync(folder) < 0))
		r = -errno;
	if (r < 0)
		(void)unlinkat(folder, UNFINISHED_INDEX, 0); /* or it was never made */
	return r;
}

/* One at a time: the lock of the folder lasts until it is closed. */
static int index_put(struct push *push, const struct layout_entry *entry)
{
	struct transfer *t = push->transfer;
	auto_free char *text = NULL, *made = NULL;
	size_t bytes = 0;
	int r;

	while ((r = flock(t->layout_fd, LOCK_EX)) < 0 && errno == EINTR)
		;
	if (r < 0)
		return -errno;
	r = layout_text_read(t->layout_fd, LAYOUT_INDEX, LAYOUT_INDEX_BYTES_MAX, &text, &bytes);
	if (r == -ENOENT)
		r = 0;
	t->why = "index.json: over 4 MiB, or no file";
	if (r < 0)
		return r;
	t->why = "index.json: no list of manifests";
	r = layout_index_put(text, bytes, entry, &made);
	if (r < 0)
		return r;
	t->why = NULL;
	return index_write(push, made);
}

int store_push(struct transfer *t, const struct store_images *images)
{
	struct layout_entry entry = {
		.tag = t->tag,
		.artifact = images->count == 1 ? STORE_ARTIFACT : STORE_COMPOSITION,
	};
	struct push push = { .transfer = t };
	int r;

	t->step = "layout";
	r = store_open(t->layout_fd, &push.layout);
	if (r < 0)
		return r;
	push.copy.progress = t->progress;
	push.copy.owner = t->owner;
	r = batch_new(push.layout.blobs_fd, &push.copy.to);
	if (r >= 0)
		r = blobs_push(&push, images, &entry.manifest);
	if (r >= 0) {
		t->step = "index";
		*t->what = 0;
		r = index_put(&push, &entry);
	}
	batch_free(push.copy.to);
	store_close(&push.layout);
	return r;
}
