/*
 * Manifests of compositions. Called by push and pull. Must hold: the same parts give the same text;
 * what is parsed came from anywhere and is bounded.
 */
#include "backends/store/composition.h"

#include <errno.h>
#include <stdlib.h>

#include "backends/store/digest_set.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

bool store_composition_is(const char *text, size_t bytes)
{
	struct json_value object;

	return bytes <= STORE_MANIFEST_BYTES_MAX && json_parse(text, bytes, &object) >= 0 &&
	       object.kind == JSON_OBJECT &&
	       store_member_is(&object, "artifactType", STORE_COMPOSITION);
}

int store_composition_parse(const char *text, size_t bytes, struct store_composition *ret,
			    const char **ret_why)
{
	struct json_value object, layers, value;
	size_t cursor = 0;

	*ret_why = "layers";
	if (json_parse(text, bytes, &object) < 0 || object.kind != JSON_OBJECT ||
	    json_member(&object, "layers", &layers) < 0 || layers.kind != JSON_ARRAY)
		return -EBADMSG;
	ret->part_count = 0;
	while (json_next(&layers, &cursor, &value) >= 0) {
		if (value.kind != JSON_OBJECT ||
		    !store_member_is(&value, "mediaType", STORE_PART_TYPE))
			break; /* what the parts name */
		*ret_why = "layers: more than 128 parts";
		if (ret->part_count == IMAGE_MANIFESTS_MAX)
			return -EBADMSG;
		*ret_why = "layers: a part without digest and size";
		if (store_blob_parse(&value, STORE_PART_TYPE, &ret->parts[ret->part_count]) < 0 ||
		    ret->parts[ret->part_count].bytes > STORE_MANIFEST_BYTES_MAX)
			return -EBADMSG;
		ret->part_count++;
	}
	*ret_why = "layers: no part";
	return ret->part_count ? 0 : -EBADMSG;
}

int store_composition_text(const struct store_composition *composition,
			   const struct store_manifest *manifests, char **ret, size_t *ret_bytes)
{
	auto_free char *text = malloc(STORE_MANIFEST_BYTES_MAX);
	struct digest_set seen = { 0 };
	struct json_writer w;
	int r = 0;

	if (!text)
		return -ENOMEM;
	store_manifest_begin(&w, text, STORE_COMPOSITION);
	/* As of an image: the last says what runs. */
	store_config_write(&w, "config", &manifests[composition->part_count - 1], NULL);
	json_array(&w, "layers");
	for (uint32_t i = 0; i < composition->part_count; i++)
		store_blob_write_json(&w, NULL, STORE_PART_TYPE, &composition->parts[i]);
	for (uint32_t i = 0; r >= 0 && i < composition->part_count; i++) {
		r = store_config_write(&w, NULL, &manifests[i], &seen);
		if (r >= 0)
			r = store_layers_write(&w, &manifests[i], &seen);
	}
	digest_set_done(&seen);
	json_end(&w);
	json_end(&w);
	if (r >= 0)
		r = json_close(&w);
	if (r < 0)
		return r == -ENOSPC ? -E2BIG : r;
	*ret_bytes = w.bytes;
	*ret = take_ptr(text);
	return 0;
}
