/*
 * The store: a directory in the form of an OCI image layout, so that what copies images can copy
 * ours. All blobs are named by the SHA-256 of their bytes and never change.
 *
 *	oci-layout
 *	blobs/sha256/HEX	segments, chunk tables, trees, configs, manifests
 *	NAME.erofs		an image: its metadata (EROFS), record, footer; see image.h
 *	composed/HEX.erofs	images of several, by the digest of their manifests; a cache
 *	cache/			what was fetched of segments of remotes; engine/serve
 *	.import/		scratch
 *	.lock			shared: who adds blobs or needs those that are there; exclusive: gc
 *
 * A manifest is an OCI image manifest of artifact type STORE_ARTIFACT: its config is an image
 * config as OCI has it, its layers are one tree, then chunk tables and segments in the order of
 * the tree's table of segments. Whoever has a manifest can have all of it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/image.h"
#include "backends/store/digest.h"
#include "backends/store/tree.h"

#define STORE_ARTIFACT	   "application/vnd.dsec.image.v1"
#define STORE_TREE_TYPE	   "application/vnd.dsec.tree.v1"
#define STORE_CHUNKS_TYPE  "application/vnd.dsec.chunks.v1"
#define STORE_SEGMENT_TYPE "application/vnd.dsec.segment.v1" /* in transport also "…+zstd" */

struct store {
	int fd, blobs_fd; /* the directory, blobs/sha256 */
	int lock_fd;	  /* held shared, or exclusive */
};

/* Of an open directory, which stays the caller's; made where it is new. It waits while gc runs. */
int store_open(int directory_fd, struct store *ret);
/* From shared to exclusive. -EBUSY: others work with it; the lock may be lost then. */
int store_lock_alone(const struct store *store);
void store_close(struct store *store);

/* ---- blobs ---- */

/* Open for reading. -ENOENT. */
int store_blob_open(const struct store *store, const uint8_t digest[DIGEST_BYTES], int *ret_fd);
/* All of it, checked against its digest. -EBADMSG; -EFBIG: larger than `max`. The caller frees. */
int store_blob_read(const struct store *store, const uint8_t digest[DIGEST_BYTES], size_t max,
		    void **ret, size_t *ret_bytes);
/* Synced and there when it returns; what is there already is left. */
int store_blob_write(const struct store *store, const void *bytes, size_t count,
		     uint8_t ret[DIGEST_BYTES]);

struct digest_set;
struct store_manifest;

/* Checked; the caller has store_manifest_done() to call. -ENOENT, -EBADMSG. */
int store_manifest_load(const struct store *store, const uint8_t digest[DIGEST_BYTES],
			struct store_manifest *ret);
/* Its tree, which needs the segments that the manifest names and no others. */
int store_tree_load(const struct store *store, const struct store_manifest *manifest,
		    struct tree **ret);

/* The same of a tree blob at hand. -EBADMSG. */
int store_tree_parse(const void *bytes, size_t count, const struct store_manifest *manifest,
		     struct tree **ret);

/* ---- one funnel for all that makes images ---- */

/*
 * What the sealer is given: a tree whose extents lie in one file of raw contents (segment 0). The
 * tree is changed: its segments are the store's afterwards, and its digests are right.
 */
struct seal {
	struct tree *tree;
	int raw_fd;
	const struct image_record *record; /* user, cwd, env, …; the rest is filled in */
	const char *provenance;		   /* JSON, where it comes from, or NULL */
	/*
	 * No byte that is not in the tree: of segments that are there only whole ones are used, or
	 * those that are published beside it, if any. The raw contents are whole blocks then.
	 */
	bool is_alone;
	const struct digest_set *beside;
	int (*progress)(void *owner, uint64_t files,
			uint64_t bytes); /* negative: it ends with that */
	void *owner;
};

struct sealed {
	uint8_t manifest[DIGEST_BYTES];
	uint64_t new_bytes, shared_bytes; /* of contents: stored now, or there before */
	uint64_t content_bytes, files;	  /* of contents: a file of several names once */
};

/*
 * Every file's digest is taken from the raw contents, never believed; what the store has is used,
 * the rest becomes segments; tree, chunk tables, config and manifest are written. Until the
 * manifest is named by an image, gc takes all of it.
 */
int store_seal(struct store *store, const struct seal *seal, struct sealed *ret);

/* Manifests, the lowest first. `is_lowest`: nothing lies below, so that no whiteout stays. */
struct store_layers {
	const uint8_t (*manifests)[DIGEST_BYTES];
	size_t count;
	bool is_lowest;
};

/*
 * The tree of these layers, and what the last config says of them that has something. The caller
 * frees the tree.
 */
int store_merge(const struct store *store, const struct store_layers *layers, struct tree **ret,
		struct image_record *record);

/*
 * The image file of these manifests, the lowest first, into `fd`: trees merged, EROFS, record,
 * footer. One manifest is a composition too. The config is the last's that has one.
 */
int store_compose(const struct store *store, const uint8_t (*manifests)[DIGEST_BYTES], size_t count,
		  int fd, struct image_record *ret);
/* The name of a composition in the cache: of the same manifests in the same order the same. */
void store_compose_key(const uint8_t (*manifests)[DIGEST_BYTES], size_t count,
		       char ret[DIGEST_HEX_BYTES]);
