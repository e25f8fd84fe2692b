/*
 * Manifests and configs of the store, as OCI has them: JSON, written the same way each time, read
 * as hostile.
 */
#pragma once

#include <stdbool.h>
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
/* A text of an object's is this one. */
bool store_member_is(const struct json_value *object, const char *key, const char *wanted);
/* A descriptor of that media type. -EBADMSG. */
int store_blob_parse(const struct json_value *value, const char *type, struct store_blob *ret);
/* ---- descriptors; for compositions: `seen` NULL, or what was written goes into it, once ---- */

struct digest_set;
struct json_writer;

void store_blob_write_json(struct json_writer *w, const char *key, const char *type,
			   const struct store_blob *blob);
/* What all manifests begin with; `text` has STORE_MANIFEST_BYTES_MAX bytes. */
void store_manifest_begin(struct json_writer *w, char *text, const char *artifact);
int store_config_write(struct json_writer *w, const char *key,
		       const struct store_manifest *manifest, struct digest_set *seen);
int store_layers_write(struct json_writer *w, const struct store_manifest *manifest,
		       struct digest_set *seen);

/* An image config: user, cwd, env, entrypoint, cmd and created are the record's. */
int store_config_text(const struct image_record *record, const struct store_manifest *manifest,
		      char **ret, size_t *ret_bytes);
/* Into a record's user, cwd, env, entrypoint, cmd and created; the rest is left. */
int store_config_parse(const char *text, size_t bytes, struct image_record *record);
