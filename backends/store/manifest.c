/*
 * Manifests of the store. Called by the sealer, by composing, gc, verify, push and pull. Must hold:
 * the same manifest gives the same text; what is parsed came from anywhere, is bounded and says all
 * that a manifest must say.
 */
#include "backends/store/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/digest_set.h"
#include "backends/store/segment.h"
#include "backends/store/store.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

#define CONFIG_TYPE "application/vnd.oci.image.config.v1+json"
#define NOTE_SOURCE "dsec.source"
#define NOTE_LAYERS "dsec.layers"
#define NOTE_FROM   "dsec.provenance"
/* Of packed segments: what they are when they are not. */
#define PACKED_TYPE STORE_SEGMENT_TYPE "+zstd"
#define NOTE_DIGEST "dsec.digest"
#define NOTE_SIZE   "dsec.size"

void store_manifest_done(struct store_manifest *manifest)
{
	free(manifest->segments);
	free(manifest->packed);
	free(manifest->provenance_read);
	memset(manifest, 0, sizeof *manifest);
}

/* ---- writing ---- */

void store_blob_write_json(struct json_writer *w, const char *key, const char *type,
			   const struct store_blob *blob)
{
	char text[DIGEST_TEXT_BYTES];

	digest_text(blob->digest, text);
	json_object(w, key);
	json_string(w, "mediaType", type);
	json_string(w, "digest", text);
	json_unsigned(w, "size", blob->bytes);
	json_end(w);
}

static void packed_write(struct json_writer *w, const struct store_blob *packed,
			 const struct store_blob *segment)
{
	char digest[DIGEST_TEXT_BYTES], unpacked[DIGEST_TEXT_BYTES], size[24];

	digest_text(packed->digest, digest);
	digest_text(segment->digest, unpacked);
	(void)snprintf(size, sizeof size, "%llu", (unsigned long long)segment->bytes);
	json_object(w, NULL);
	json_string(w, "mediaType", PACKED_TYPE);
	json_string(w, "digest", digest);
	json_unsigned(w, "size", packed->bytes);
	json_object(w, "annotations");
	json_string(w, NOTE_DIGEST, unpacked);
	json_string(w, NOTE_SIZE, size);
	json_end(w);
	json_end(w);
}

static struct store_blob blob_of(const uint8_t digest[DIGEST_BYTES], uint64_t bytes)
{
	struct store_blob blob = { .bytes = bytes };

	memcpy(blob.digest, digest, DIGEST_BYTES);
	return blob;
}

/* 1: it is to be written. */
static int layer_is_new(struct digest_set *seen, const struct store_blob *blob)
{
	uint32_t at;

	return seen ? digest_set_add(seen, blob->digest, &at) : 1;
}

static int layer_write(struct json_writer *w, const char *type, const struct store_blob *blob,
		       struct digest_set *seen)
{
	const int r = layer_is_new(seen, blob);

	if (r > 0)
		store_blob_write_json(w, NULL, type, blob);
	return r < 0 ? r : 0;
}

int store_config_write(struct json_writer *w, const char *key,
		       const struct store_manifest *manifest, struct digest_set *seen)
{
	const int r = layer_is_new(seen, &manifest->config);

	if (r > 0)
		store_blob_write_json(w, key, CONFIG_TYPE, &manifest->config);
	return r < 0 ? r : 0;
}

int store_layers_write(struct json_writer *w, const struct store_manifest *manifest,
		       struct digest_set *seen)
{
	int r = layer_write(w, STORE_TREE_TYPE, &manifest->tree, seen);

	for (uint32_t i = 0; r >= 0 && i < manifest->segment_count; i++) {
		const struct tree_segment *s = &manifest->segments[i];
		struct store_blob table = blob_of(s->chunks, segment_table_bytes(s->bytes));
		struct store_blob segment = blob_of(s->digest, s->bytes);

		r = layer_write(w, STORE_CHUNKS_TYPE, &table, seen);
		if (r >= 0 && !manifest->packed)
			r = layer_write(w, STORE_SEGMENT_TYPE, &segment, seen);
		if (r < 0 || !manifest->packed)
			continue;
		r = layer_is_new(seen, &manifest->packed[i]);
		if (r > 0)
			packed_write(w, &manifest->packed[i], &segment);
	}
	return r < 0 ? r : 0;
}

void store_manifest_begin(struct json_writer *w, char *text, const char *artifact)
{
	json_open(w, text, STORE_MANIFEST_BYTES_MAX);
	json_object(w, NULL);
	json_unsigned(w, "schemaVersion", 2);
	json_string(w, "mediaType", STORE_MANIFEST_TYPE);
	json_string(w, "artifactType", artifact);
}

int store_manifest_text(const struct store_manifest *manifest, char **ret, size_t *ret_bytes)
{
	auto_free char *text = malloc(STORE_MANIFEST_BYTES_MAX);
	struct json_writer w;
	char layers[12];
	int r;

	if (!text)
		return -ENOMEM;
	store_manifest_begin(&w, text, STORE_ARTIFACT);
	(void)store_config_write(&w, "config", manifest, NULL); /* fails with a set alone */
	json_array(&w, "layers");
	(void)store_layers_write(&w, manifest, NULL);
	json_end(&w);
	json_object(&w, "annotations");
	json_string(&w, NOTE_SOURCE, manifest->source);
	(void)snprintf(layers, sizeof layers, "%u", manifest->layers);
	json_string(&w, NOTE_LAYERS, layers);
	if (manifest->provenance)
		json_string(&w, NOTE_FROM, manifest->provenance);
	json_end(&w);
	json_end(&w);
	r = json_close(&w);
	if (r < 0)
		return r == -ENOSPC ? -E2BIG : r;
	*ret_bytes = w.bytes;
	*ret = take_ptr(text);
	return 0;
}

/* ---- reading ---- */

bool store_member_is(const struct json_value *object, const char *key, const char *wanted)
{
	struct json_value value;
	char text[128];

	return json_member(object, key, &value) >= 0 && value.kind == JSON_STRING &&
	       json_to_string(&value, text, sizeof text) >= 0 && !strcmp(text, wanted);
}

int store_blob_parse(const struct json_value *value, const char *type, struct store_blob *ret)
{
	struct json_value member;
	char text[DIGEST_TEXT_BYTES];

	if (value->kind != JSON_OBJECT || !store_member_is(value, "mediaType", type) ||
	    json_member(value, "digest", &member) < 0 || member.kind != JSON_STRING ||
	    json_to_string(&member, text, sizeof text) < 0 ||
	    !digest_text_parse(text, ret->digest) || json_member(value, "size", &member) < 0 ||
	    json_to_unsigned(&member, &ret->bytes) < 0 || ret->bytes > INT64_MAX)
		return -EBADMSG;
	return 0;
}

/* What a packed segment is when it is unpacked. */
static int unpacked_parse(const struct json_value *value, struct store_blob *ret)
{
	struct json_value notes, member;
	char text[DIGEST_TEXT_BYTES];

	if (json_member(value, "annotations", &notes) < 0 || notes.kind != JSON_OBJECT ||
	    json_member(&notes, NOTE_DIGEST, &member) < 0 || member.kind != JSON_STRING ||
	    json_to_string(&member, text, sizeof text) < 0 ||
	    !digest_text_parse(text, ret->digest) || json_member(&notes, NOTE_SIZE, &member) < 0 ||
	    member.kind != JSON_STRING || json_to_string(&member, text, sizeof text) <= 0 ||
	    strspn(text, "0123456789") != strlen(text) || strlen(text) > 18)
		return -EBADMSG;
	ret->bytes = strtoull(text, NULL, 10);
	return 0;
}

/* 1: it is packed. */
static int contents_parse(const struct json_value *value, struct store_blob *ret,
			  struct store_blob *ret_packed)
{
	if (store_blob_parse(value, STORE_SEGMENT_TYPE, ret) >= 0)
		return 0;
	if (store_blob_parse(value, PACKED_TYPE, ret_packed) < 0)
		return -EBADMSG;
	return unpacked_parse(value, ret) < 0 ? -EBADMSG : 1;
}

static int segment_parse(const struct json_value *layers, size_t *cursor,
			 const struct json_value *first, struct store_manifest *manifest)
{
	struct tree_segment *ret = &manifest->segments[manifest->segment_count];
	struct store_blob packed = { .bytes = 0 };
	int is_packed;

	struct store_blob table, segment;
	struct json_value value;

	if (store_blob_parse(first, STORE_CHUNKS_TYPE, &table) < 0 ||
	    json_next(layers, cursor, &value) < 0)
		return -EBADMSG;
	is_packed = contents_parse(&value, &segment, &packed);
	/* All or none. */
	if (is_packed < 0 || (manifest->segment_count && is_packed != !!manifest->packed) ||
	    !segment.bytes || segment.bytes % TREE_BLOCK_BYTES ||
	    table.bytes != segment_table_bytes(segment.bytes))
		return -EBADMSG;
	if (is_packed && !manifest->packed) {
		manifest->packed = calloc(TREE_SEGMENTS_MAX, sizeof *manifest->packed);
		if (!manifest->packed)
			return -ENOMEM;
	}
	if (is_packed)
		manifest->packed[manifest->segment_count] = packed;
	memcpy(ret->digest, segment.digest, DIGEST_BYTES);
	memcpy(ret->chunks, table.digest, DIGEST_BYTES);
	ret->bytes = segment.bytes;
	return 0;
}

static int layers_parse(const struct json_value *layers, struct store_manifest *manifest,
			const char **ret_why)
{
	struct json_value value;
	size_t cursor = 0;
	int r;

	*ret_why = "layers: its first is no tree";
	if (layers->kind != JSON_ARRAY || json_next(layers, &cursor, &value) < 0 ||
	    store_blob_parse(&value, STORE_TREE_TYPE, &manifest->tree) < 0 ||
	    manifest->tree.bytes > STORE_TREE_BYTES_MAX)
		return -EBADMSG;
	manifest->segments = calloc(TREE_SEGMENTS_MAX, sizeof *manifest->segments);
	if (!manifest->segments)
		return -ENOMEM;
	while (json_next(layers, &cursor, &value) >= 0) {
		*ret_why = "layers: too many segments";
		if (manifest->segment_count == TREE_SEGMENTS_MAX)
			return -EBADMSG;
		*ret_why = "layers: no chunk table with its segment";
		r = segment_parse(layers, &cursor, &value, manifest);
		if (r < 0)
			return r;
		manifest->segment_count++;
	}
	return 0;
}

/* Kept as it is, so that the manifest can be written again. */
static int provenance_parse(const struct json_value *notes, struct store_manifest *manifest)
{
	struct json_value value;

	if (json_member(notes, NOTE_FROM, &value) < 0)
		return 0;
	if (value.kind != JSON_STRING)
		return -EBADMSG;
	manifest->provenance_read = malloc(value.bytes + 1); /* escapes are longer than bytes */
	if (!manifest->provenance_read)
		return -ENOMEM;
	manifest->provenance = manifest->provenance_read;
	return json_to_string(&value, manifest->provenance_read, value.bytes + 1) < 0 ? -EBADMSG :
											0;
}

static int notes_parse(const struct json_value *object, struct store_manifest *manifest)
{
	struct json_value notes, value;
	char layers[12];
	char *end;

	if (json_member(object, "annotations", &notes) < 0 || notes.kind != JSON_OBJECT ||
	    json_member(&notes, NOTE_SOURCE, &value) < 0 || value.kind != JSON_STRING ||
	    json_to_string(&value, manifest->source, sizeof manifest->source) < 0 ||
	    json_member(&notes, NOTE_LAYERS, &value) < 0 || value.kind != JSON_STRING ||
	    json_to_string(&value, layers, sizeof layers) <= 0 ||
	    strspn(layers, "0123456789") != strlen(layers))
		return -EBADMSG;
	manifest->layers = (uint32_t)strtoul(layers, &end, 10);
	return provenance_parse(&notes, manifest);
}

static int parts_parse(const char *text, size_t bytes, struct store_manifest *manifest,
		       const char **ret_why)
{
	struct json_value object, value;
	int r;

	*ret_why = "no JSON object";
	if (bytes > STORE_MANIFEST_BYTES_MAX || json_parse(text, bytes, &object) < 0 ||
	    object.kind != JSON_OBJECT)
		return -EBADMSG;
	*ret_why = "artifactType";
	if (!store_member_is(&object, "artifactType", STORE_ARTIFACT))
		return -EBADMSG;
	*ret_why = "config";
	if (json_member(&object, "config", &value) < 0 ||
	    store_blob_parse(&value, CONFIG_TYPE, &manifest->config) < 0 ||
	    manifest->config.bytes > STORE_CONFIG_BYTES_MAX)
		return -EBADMSG;
	*ret_why = "annotations";
	r = notes_parse(&object, manifest);
	if (r < 0)
		return r;
	*ret_why = "layers";
	if (json_member(&object, "layers", &value) < 0)
		return -EBADMSG;
	return layers_parse(&value, manifest, ret_why);
}

int store_manifest_parse(const char *text, size_t bytes, struct store_manifest *ret,
			 const char **ret_why)
{
	struct store_manifest manifest;
	int r = store_manifest_parse_packed(text, bytes, &manifest, ret_why);

	if (r < 0)
		return r;
	if (manifest.packed) {
		store_manifest_done(&manifest);
		*ret_why = "layers: segments that are packed";
		return -EBADMSG;
	}
	*ret = manifest;
	return 0;
}

int store_manifest_parse_packed(const char *text, size_t bytes, struct store_manifest *ret,
				const char **ret_why)
{
	struct store_manifest manifest = { 0 };
	const char *why;
	int r = parts_parse(text, bytes, &manifest, &why);

	if (r < 0) {
		store_manifest_done(&manifest);
		*ret_why = r == -EBADMSG ? why : "no memory";
		return r;
	}
	*ret = manifest;
	return 0;
}
