/*
 * Manifests and configs of the store, as OCI has them: JSON, written the same way each time, read
 * as hostile.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backends/image.h"
#include "backends/store/digest.h"
#include "backends/store/tree.h"

enum {
	STORE_MANIFEST_BYTES_MAX = 1 << 20,
	STORE_CONFIG_BYTES_MAX = 1 << 20,
	STORE_TREE_BYTES_MAX = 1 << 30,
};

struct store_blob {
	uint8_t digest[DIGEST_BYTES];
	uint64_t bytes;
};

#define STORE_MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"

struct json_value;

struct store_manifest {
	struct store_blob config, tree;
	struct tree_segment *segments; /* owned */
	uint32_t segment_count;
	struct store_blob *packed; /* owned; of a layout: segments as zstd. NULL: as they are */
	char source[sizeof((struct image_record *)0)->source];
	uint32_t layers;	/* that it was made of */
	const char *provenance; /* the sealer's, or what follows; NULL: none */
	char *provenance_read;	/* owned: of one that was parsed */
};

void store_manifest_done(struct store_manifest *manifest);
/* The caller frees. -E2BIG: over STORE_MANIFEST_BYTES_MAX. */
int store_manifest_text(const struct store_manifest *manifest, char **ret, size_t *ret_bytes);
/* -EBADMSG: no manifest of an image of ours; `ret_why`: the field, static. */
int store_manifest_parse(const char *text, size_t bytes, struct store_manifest *ret,
			 const char **ret_why);
/* The same of a layout's, whose segments may be packed: all of them, or none. */
int store_manifest_parse_packed(const char *text, size_t bytes, struct store_manifest *ret,
				const char **ret_why);
/* A descriptor of that media type. -EBADMSG. */
int store_blob_parse(const struct json_value *value, const char *type, struct store_blob *ret);
/* An image config: user, cwd, env, entrypoint, cmd and created are the record's. */
int store_config_text(const struct image_record *record, const struct store_manifest *manifest,
		      char **ret, size_t *ret_bytes);
/* Into a record's user, cwd, env, entrypoint, cmd and created; the rest is left. */
int store_config_parse(const char *text, size_t bytes, struct image_record *record);
