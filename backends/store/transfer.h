/*
 * Images between a store and an OCI image layout: a directory with oci-layout, index.json and
 * blobs/sha256, which registries' tools copy. A manifest is the same bytes in both, and so are its
 * blobs; but a *packed* layout has zstd in the place of segments, and a manifest that says so.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/image.h"
#include "backends/store/digest.h"
#include "backends/store/manifest.h"
#include "backends/store/store.h"

enum {
	LAYOUT_INDEX_BYTES_MAX = 4 << 20,
	LAYOUT_TAG_BYTES = 129,
	LAYOUT_PATH_BYTES = 4096,
};

struct fetch;

/* An image's manifests, the lowest first: of a composition several. */
struct store_images {
	uint8_t manifests[IMAGE_MANIFESTS_MAX][DIGEST_BYTES];
	uint32_t count;
};

/* Zeroed, but for what the caller says. */
struct transfer {
	const struct store *store;
	int layout_fd;
	struct fetch *fetch;			      /* pull: in the place of layout_fd, or NULL */
	const char *tag;			      /* pull: "": the only one there is */
	uint64_t bytes_max;			      /* of contents that are pulled */
	bool is_packed;				      /* push: segments as zstd */
	bool is_lazy;				      /* pull: no segments */
	int (*progress)(void *owner, uint64_t bytes); /* negative: it ends with that */
	void *owner;
	/* how it went */
	uint64_t new_bytes, shared_bytes; /* of segments: copied, or there before */
	uint32_t new_blobs, shared_blobs;
	const char *step;	      /* what was being done, where it failed */
	const char *why;	      /* in words; NULL: as its errno says. Lives as `fetch` does */
	char what[DIGEST_TEXT_BYTES]; /* with which blob; "": none */
};

/* "oci:DIR[:TAG]": -EINVAL, and `ret_why`. DIR is absolute. Without a TAG it is "". */
int layout_address_parse(const char *address, char ret_path[LAYOUT_PATH_BYTES],
			 char ret_tag[LAYOUT_TAG_BYTES], const char **ret_why);

/* The layout is made where it is new; a manifest of that tag there is replaced, others stay. */
int store_push(struct transfer *transfer, const struct store_images *images);
/*
 * Every blob is checked: its size, its digest, the digests of its chunks. What the store has is not
 * read again, so one that ended early goes on where it was. Contents of nothing that failed have a
 * name, but for those of 4 GiB steps.
 */
int store_pull(struct transfer *transfer, struct store_images *ret);

/* ---- index.json; transfer.c's, and for whoever fuzzes it ---- */

/* -ENOENT: none of that tag; -EBADMSG, -EINVAL: several; `ret_why`: in words, static. */
int layout_index_find(const char *text, size_t bytes, const char *tag, struct store_blob *ret,
		      const char **ret_why);
struct layout_entry {
	const char *tag, *artifact; /* its artifactType */
	struct store_blob manifest;
};

/* With this one in the place of its tag's; text NULL: an index of no others. The caller frees. */
int layout_index_put(const char *text, size_t bytes, const struct layout_entry *entry, char **ret);
