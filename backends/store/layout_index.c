/*
 * index.json of an image layout: found by its tag in it, put into it. Called by push and pull. Must
 * hold: it came from anywhere; a manifest that is replaced is the one of the same tag, and all
 * others stay as they were written.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/manifest.h"
#include "backends/store/transfer.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

#define NOTE_TAG   "org.opencontainers.image.ref.name"
#define INDEX_TYPE "application/vnd.oci.image.index.v1+json"

/* The tag of a descriptor; false: it has none, or one that no tag of ours can be. */
static bool tag_read(const struct json_value *descriptor, char ret[LAYOUT_TAG_BYTES])
{
	struct json_value notes, tag;

	return json_member(descriptor, "annotations", &notes) >= 0 && notes.kind == JSON_OBJECT &&
	       json_member(&notes, NOTE_TAG, &tag) >= 0 && tag.kind == JSON_STRING &&
	       json_to_string(&tag, ret, LAYOUT_TAG_BYTES) >= 0;
}

static int manifests_find(const char *text, size_t bytes, struct json_value *ret_index,
			  struct json_value *ret)
{
	if (bytes > LAYOUT_INDEX_BYTES_MAX || json_parse(text, bytes, ret_index) < 0 ||
	    ret_index->kind != JSON_OBJECT || json_member(ret_index, "manifests", ret) < 0 ||
	    ret->kind != JSON_ARRAY)
		return -EBADMSG;
	return 0;
}

int layout_index_find(const char *text, size_t bytes, const char *tag, struct store_blob *ret,
		      const char **ret_why)
{
	struct json_value index, manifests, one, found = { 0 };
	char its_tag[LAYOUT_TAG_BYTES];
	size_t cursor = 0;

	*ret_why = "index.json: no list of manifests";
	if (manifests_find(text, bytes, &index, &manifests) < 0)
		return -EBADMSG;
	while (json_next(&manifests, &cursor, &one) >= 0) {
		*ret_why = "index.json: a manifest that is no object";
		if (one.kind != JSON_OBJECT)
			return -EBADMSG;
		if (*tag && (!tag_read(&one, its_tag) || strcmp(its_tag, tag) != 0))
			continue;
		*ret_why = *tag ? "index.json: two manifests of this tag" :
				  "several images: name one by its tag";
		if (found.text)
			return -EINVAL;
		found = one;
	}
	*ret_why = *tag ? "index.json: no manifest of this tag" : "index.json: no image";
	if (!found.text)
		return -ENOENT;
	*ret_why = "index.json: not a manifest of an image, with digest and size";
	if (store_blob_parse(&found, STORE_MANIFEST_TYPE, ret) < 0 ||
	    ret->bytes > STORE_MANIFEST_BYTES_MAX)
		return -EBADMSG;
	return 0;
}

struct text {
	char *bytes;
	size_t used, size;
};

static void text_add(struct text *text, const char *bytes, size_t count)
{
	memcpy(text->bytes + text->used, bytes, count);
	text->used += count;
}

static int descriptor_text(const struct layout_entry *entry, char *ret, size_t bytes)
{
	char digest[DIGEST_TEXT_BYTES];
	struct json_writer w;

	digest_text(entry->manifest.digest, digest);
	json_open(&w, ret, bytes);
	json_object(&w, NULL);
	json_string(&w, "mediaType", STORE_MANIFEST_TYPE);
	json_string(&w, "digest", digest);
	json_unsigned(&w, "size", entry->manifest.bytes);
	json_string(&w, "artifactType", entry->artifact);
	json_object(&w, "annotations");
	json_string(&w, NOTE_TAG, entry->tag);
	json_end(&w);
	json_end(&w);
	return json_close(&w);
}

/* Those of other tags, as they stand. */
static int others_add(struct text *text, const struct json_value *manifests, const char *tag)
{
	struct json_value one;
	char its_tag[LAYOUT_TAG_BYTES];
	size_t cursor = 0;

	while (json_next(manifests, &cursor, &one) >= 0) {
		if (one.kind != JSON_OBJECT)
			return -EBADMSG;
		if (tag_read(&one, its_tag) && !strcmp(its_tag, tag))
			continue;
		text_add(text, one.text, one.bytes);
		text_add(text, ",", 1);
	}
	return 0;
}

int layout_index_put(const char *text, size_t bytes, const struct layout_entry *entry, char **ret)
{
	static const char head[] = "{\"schemaVersion\":2,\"mediaType\":\"" INDEX_TYPE "\",";
	struct json_value index, manifests, notes;
	auto_free char *made = malloc(bytes + sizeof head + 2048);
	struct text out = { .bytes = made };
	char descriptor[1024];
	int r;

	if (!made)
		return -ENOMEM;
	r = descriptor_text(entry, descriptor, sizeof descriptor);
	if (r < 0)
		return r;
	text_add(&out, head, sizeof head - 1);
	if (text) {
		r = manifests_find(text, bytes, &index, &manifests);
		if (r >= 0 && json_member(&index, "annotations", &notes) >= 0) {
			text_add(&out, "\"annotations\":", 14);
			text_add(&out, notes.text, notes.bytes);
			text_add(&out, ",", 1);
		}
	}
	text_add(&out, "\"manifests\":[", 13);
	if (text && r >= 0)
		r = others_add(&out, &manifests, entry->tag);
	if (r < 0)
		return r;
	text_add(&out, descriptor, strlen(descriptor));
	text_add(&out, "]}", 3);
	*ret = take_ptr(made);
	return 0;
}
