/*
 * Which layers an archive's image has: manifest.json of a docker archive, index.json of an OCI
 * layout. Called by the unpacker. Must hold: every name and digest in it leads to a file of the
 * archive or fails the import; a digest is compared with what was computed from the bytes.
 */
#include "backends/image/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/image/choose.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

enum { INDEX_DEPTH_MAX = 4, MEDIA_TYPE_BYTES = 128 };

static int malformed(const struct blobs *blobs, const char *name, const char *reason)
{
	return import_fail(blobs->in, EINVAL, name, reason);
}

/* -ENOENT where it is absent. */
static int text_member(const struct json_value *object, const char *key, char *ret, size_t bytes)
{
	struct json_value value;
	int r = json_member(object, key, &value);

	if (r < 0)
		return r;
	if (value.kind != JSON_STRING)
		return -EINVAL;
	return json_to_string(&value, ret, bytes);
}

static int layer_add(const struct blobs *blobs, struct manifest *m, const struct blob *layer)
{
	const struct blob **grown;

	if (m->layer_count == blobs->in->limits.layers_max)
		return malformed(blobs, layer->name, "over the limit of layers of an image");
	grown = realloc(m->layers, (m->layer_count + 1) * sizeof(const struct blob *));
	if (!grown)
		return import_fail(blobs->in, ENOMEM, NULL, "no memory");
	m->layers = grown;
	grown[m->layer_count++] = layer;
	return 0;
}

void manifest_done(struct manifest *manifest)
{
	free(manifest->layers);
	free(manifest->diffs);
	manifest->layers = NULL;
	manifest->diffs = NULL;
}

const char *manifest_diff(const struct manifest *manifest, uint32_t layer)
{
	return manifest->diffs ? manifest->diffs[layer] : "";
}

/* ---- docker archives ---- */

static int docker_layers(const struct blobs *blobs, const struct json_value *image,
			 struct manifest *m)
{
	struct json_value layers, layer;
	char name[BLOB_NAME_BYTES];
	size_t cursor = 0;
	int r = json_member(image, "Layers", &layers);

	if (r < 0 || layers.kind != JSON_ARRAY)
		return malformed(blobs, "manifest.json", "it lists no layers");
	while ((r = json_next(&layers, &cursor, &layer)) >= 0) {
		const struct blob *blob;

		if (layer.kind != JSON_STRING || json_to_string(&layer, name, sizeof name) < 0)
			return malformed(blobs, "manifest.json", "a layer without a name");
		blob = blobs_find(blobs, name);
		if (!blob)
			return malformed(blobs, name, "a layer that the archive does not hold");
		r = layer_add(blobs, m, blob);
		if (r < 0)
			return r;
	}
	return 0;
}

static int docker_read(const struct blobs *blobs, const char *text, struct manifest *m)
{
	struct json_value all, image;
	char name[BLOB_NAME_BYTES];
	size_t cursor = 0;
	int r;

	if (json_parse(text, strlen(text), &all) < 0 || all.kind != JSON_ARRAY ||
	    json_next(&all, &cursor, &image) < 0)
		return malformed(blobs, "manifest.json", "malformed JSON");
	r = choose_docker(blobs->in, &all, &image);
	if (r < 0)
		return r;
	if (text_member(&image, "Config", name, sizeof name) < 0)
		return malformed(blobs, "manifest.json", "it names no config");
	m->config = blobs_find(blobs, name);
	if (!m->config)
		return malformed(blobs, name, "a config that the archive does not hold");
	m->source = "docker-archive";
	return docker_layers(blobs, &image, m);
}

/* ---- OCI layouts ---- */

/* A descriptor's blob, with the digest and the size it says. */
static int descriptor_find(const struct blobs *blobs, const struct json_value *descriptor,
			   const struct blob **ret)
{
	char digest[IMAGE_DIGEST_BYTES], name[BLOB_NAME_BYTES];
	struct json_value value;
	const struct blob *blob;
	uint64_t bytes;

	if (text_member(descriptor, "digest", digest, sizeof digest) < 0)
		return malformed(blobs, "index.json", "a descriptor without a digest");
	if (strncmp(digest, "sha256:", 7) != 0 || strlen(digest) != IMAGE_DIGEST_BYTES - 1 ||
	    strspn(digest + 7, "0123456789abcdef") != 64)
		return malformed(blobs, digest, "not a sha256 digest");
	(void)snprintf(name, sizeof name, "blobs/sha256/%s", digest + 7);
	blob = blobs_find(blobs, name);
	if (!blob)
		return malformed(blobs, digest, "a blob that the archive does not hold");
	if (strcmp(blob->digest, digest) != 0)
		return import_fail(blobs->in, EBADMSG, name, "its contents have another digest");
	if (json_member(descriptor, "size", &value) < 0 || json_to_unsigned(&value, &bytes) < 0 ||
	    bytes != blob->bytes)
		return import_fail(blobs->in, EBADMSG, name, "it has another size");
	*ret = blob;
	return 0;
}

static int oci_manifest(const struct blobs *blobs, const struct json_value *document,
			struct manifest *m)
{
	struct json_value config, layers, layer;
	const struct blob *blob;
	size_t cursor = 0;
	int r;

	if (json_member(document, "config", &config) < 0 || config.kind != JSON_OBJECT ||
	    json_member(document, "layers", &layers) < 0 || layers.kind != JSON_ARRAY)
		return malformed(blobs, "manifest", "it names no config or no layers");
	r = descriptor_find(blobs, &config, &m->config);
	while (r >= 0 && json_next(&layers, &cursor, &layer) >= 0) {
		if (layer.kind != JSON_OBJECT)
			return malformed(blobs, "manifest", "a layer that is no descriptor");
		r = descriptor_find(blobs, &layer, &blob);
		if (r >= 0)
			r = layer_add(blobs, m, blob);
	}
	return r;
}

static int oci_read(const struct blobs *blobs, const char *index_text, struct manifest *m)
{
	const char *text = index_text;
	char *owned = NULL;
	int r = -EINVAL;

	m->source = "oci";
	for (int depth = 0; depth < INDEX_DEPTH_MAX; depth++) {
		struct json_value document, descriptor;
		const struct blob *blob;

		if (json_parse(text, strlen(text), &document) < 0 || document.kind != JSON_OBJECT) {
			r = malformed(blobs, "index.json", "malformed JSON");
			break;
		}
		r = choose_descriptor(blobs->in, &document, depth == 0, &descriptor);
		if (r == 0) /* no list of manifests: it is one */
			r = oci_manifest(blobs, &document, m);
		else if (r > 0)
			r = descriptor_find(blobs, &descriptor, &blob);
		if (r < 0 || m->config)
			break;
		free(owned);
		owned = NULL;
		r = blob_text(blobs, blob, &owned);
		if (r < 0)
			break;
		text = owned;
	}
	free(owned);
	return r >= 0 && !m->config ? malformed(blobs, "index.json", "indexes within indexes") : r;
}

int manifest_read(const struct blobs *blobs, struct manifest *ret)
{
	const struct blob *index = blobs_find(blobs, "index.json");
	const struct blob *docker = blobs_find(blobs, "manifest.json");
	bool is_oci = index && blobs_find(blobs, "oci-layout");
	char *text = NULL;
	int r;

	*ret = (struct manifest){ 0 };
	/* Newer docker writes both; an index it writes may name what it did not save. */
	if (!docker && !is_oci)
		return malformed(blobs, NULL, "neither manifest.json nor index.json: no image");
	r = blob_text(blobs, docker ? docker : index, &text);
	if (r >= 0)
		r = docker ? docker_read(blobs, text, ret) : oci_read(blobs, text, ret);
	free(text);
	if (r >= 0 && !ret->layer_count)
		r = malformed(blobs, NULL, "an image without layers");
	blobs->in->report.frame.layers_total = ret->layer_count;
	return r;
}
