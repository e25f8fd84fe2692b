/*
 * Image configs of the store: what OCI's has of user, folder, environment and commands. Called with
 * manifests. Must hold: what is read fits a record, or is refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/manifest.h"
#include "backends/store/strings.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

#ifdef __aarch64__
#define ARCHITECTURE "arm64"
#else
#define ARCHITECTURE "amd64"
#endif

/* ---- writing ---- */

/* OCI has no empty lists: what is not said is not there. */
static const char *list_write(struct json_writer *w, const char *key, const char *at,
			      uint32_t count)
{
	return count ? strings_write(w, key, at, count) : at;
}

static void diff_write(struct json_writer *w, const uint8_t digest[DIGEST_BYTES])
{
	char text[DIGEST_TEXT_BYTES];

	digest_text(digest, text);
	json_string(w, NULL, text);
}

int store_config_text(const struct image_record *record, const struct store_manifest *manifest,
		      char **ret, size_t *ret_bytes)
{
	auto_free char *text = malloc(STORE_CONFIG_BYTES_MAX);
	const char *at = record->strings;
	struct json_writer w;
	int r;

	if (!text)
		return -ENOMEM;
	json_open(&w, text, STORE_CONFIG_BYTES_MAX);
	json_object(&w, NULL);
	if (*record->created)
		json_string(&w, "created", record->created);
	json_string(&w, "architecture", ARCHITECTURE);
	json_string(&w, "os", "linux");
	json_object(&w, "config");
	if (*record->user)
		json_string(&w, "User", record->user);
	at = list_write(&w, "Env", at, record->env_count);
	at = list_write(&w, "Entrypoint", at, record->entrypoint_count);
	(void)list_write(&w, "Cmd", at, record->cmd_count);
	if (*record->cwd)
		json_string(&w, "WorkingDir", record->cwd);
	json_end(&w);
	json_object(&w, "rootfs");
	json_string(&w, "type", "layers");
	json_array(&w, "diff_ids");
	diff_write(&w, manifest->tree.digest);
	for (uint32_t i = 0; i < manifest->segment_count; i++) {
		diff_write(&w, manifest->segments[i].chunks);
		diff_write(&w, manifest->segments[i].digest);
	}
	json_end(&w);
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

static int text_take(const struct json_value *object, const char *key, char *ret, size_t bytes)
{
	struct json_value value;
	int r = json_member(object, key, &value);

	*ret = 0;
	if (r == -ENOENT)
		return 0;
	if (r < 0 || value.kind != JSON_STRING || json_to_string(&value, ret, bytes) < 0)
		return -EBADMSG;
	return 0;
}

static int list_take(const struct json_value *object, const char *key, struct image_record *record,
		     uint32_t *ret_count)
{
	struct json_value list;
	int r = json_member(object, key, &list);

	if (r == -ENOENT)
		return 0;
	return r < 0 ? -EBADMSG : strings_read(&list, record, ret_count);
}

int store_config_parse(const char *text, size_t bytes, struct image_record *record)
{
	struct json_value object, config;

	record->string_bytes = record->env_count = record->entrypoint_count = record->cmd_count = 0;
	if (bytes > STORE_CONFIG_BYTES_MAX || json_parse(text, bytes, &object) < 0 ||
	    object.kind != JSON_OBJECT || json_member(&object, "config", &config) < 0 ||
	    config.kind != JSON_OBJECT ||
	    text_take(&object, "created", record->created, sizeof record->created) < 0 ||
	    text_take(&config, "User", record->user, sizeof record->user) < 0 ||
	    text_take(&config, "WorkingDir", record->cwd, sizeof record->cwd) < 0 ||
	    (*record->cwd && *record->cwd != '/') ||
	    list_take(&config, "Env", record, &record->env_count) < 0 ||
	    list_take(&config, "Entrypoint", record, &record->entrypoint_count) < 0 ||
	    list_take(&config, "Cmd", record, &record->cmd_count) < 0)
		return -EBADMSG;
	return 0;
}
