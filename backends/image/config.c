/*
 * An image's config: what runs in it, as whom, where, and with which environment. Called by the
 * unpacker. Must hold: a value that no program could be started with fails the import here, by
 * name; the record that comes out is bounded.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/image/manifest.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

static int config_fail(const struct blobs *blobs, const char *field, const char *reason)
{
	return import_fail(blobs->in, EINVAL, field, reason);
}

struct text_room {
	char *at;
	size_t bytes;
};

/* Absent and null are empty. */
static int config_text(const struct blobs *blobs, const struct json_value *object, const char *key,
		       struct text_room *ret)
{
	struct json_value value;
	int r = json_member(object, key, &value);

	if (r == -ENOENT || (r >= 0 && value.kind == JSON_NULL))
		return 0;
	if (r < 0 || value.kind != JSON_STRING)
		return config_fail(blobs, key, "no text in the image's config");
	r = json_to_string(&value, ret->at, ret->bytes);
	return r < 0 ? config_fail(blobs, key, "too long in the image's config") : 0;
}

static int string_add(const struct blobs *blobs, const struct json_value *value, const char *key)
{
	struct image_record *record = &blobs->in->record;
	size_t room = sizeof record->strings - record->string_bytes;
	int r;

	if (value->kind != JSON_STRING)
		return config_fail(blobs, key, "a list of other than texts in the image's config");
	r = json_to_string(value, record->strings + record->string_bytes, room);
	if (r == -ENOSPC ||
	    record->env_count + record->entrypoint_count + record->cmd_count == IMAGE_STRINGS_MAX)
		return config_fail(blobs, key, "over 32 KiB or 512 texts in the image's config");
	if (r < 0)
		return config_fail(blobs, key, "a text with a NUL in the image's config");
	return r;
}

static int config_list(const struct blobs *blobs, const struct json_value *object, const char *key,
		       uint32_t *count)
{
	struct image_record *record = &blobs->in->record;
	struct json_value list, item;
	size_t cursor = 0;
	int r = json_member(object, key, &list);

	if (r == -ENOENT || (r >= 0 && list.kind == JSON_NULL))
		return 0;
	if (r < 0 || list.kind != JSON_ARRAY)
		return config_fail(blobs, key, "no list in the image's config");
	while (json_next(&list, &cursor, &item) >= 0) {
		const char *at = record->strings + record->string_bytes;

		r = string_add(blobs, &item, key);
		if (r < 0)
			return r;
		if (count == &record->env_count && (*at == '=' || !strchr(at, '=')))
			return config_fail(blobs, at, "not NAME=value in the image's environment");
		record->string_bytes += (uint32_t)r + 1;
		++*count;
	}
	return 0;
}

static int config_platform(const struct blobs *blobs, const struct json_value *document)
{
	char os[32] = "", machine[32] = "";
	struct text_room os_text = { os, sizeof os }, machine_text = { machine, sizeof machine };
	int r = config_text(blobs, document, "os", &os_text);

	if (r >= 0)
		r = config_text(blobs, document, "architecture", &machine_text);
	if (r < 0)
		return r;
	if (*os && strcmp(os, "linux") != 0)
		return config_fail(blobs, os, "an image of another system than linux");
#ifdef __x86_64__
	if (*machine && strcmp(machine, "amd64") != 0)
		return config_fail(blobs, machine, "an image for another machine than amd64");
#endif
	return 0;
}

static int config_fields(const struct blobs *blobs, const struct json_value *config)
{
	struct image_record *record = &blobs->in->record;
	struct text_room user = { record->user, sizeof record->user };
	struct text_room cwd = { record->cwd, sizeof record->cwd };
	int r = config_text(blobs, config, "User", &user);

	if (r >= 0)
		r = config_text(blobs, config, "WorkingDir", &cwd);
	if (r >= 0 && *record->cwd && *record->cwd != '/')
		return config_fail(blobs, record->cwd, "WorkingDir is no absolute path");
	/* In this order: so they are packed. */
	if (r >= 0)
		r = config_list(blobs, config, "Env", &record->env_count);
	if (r >= 0)
		r = config_list(blobs, config, "Entrypoint", &record->entrypoint_count);
	if (r >= 0)
		r = config_list(blobs, config, "Cmd", &record->cmd_count);
	return r;
}

static int diffs_read(const struct blobs *blobs, struct manifest *m,
		      const struct json_value *document)
{
	struct json_value rootfs, list, item;
	size_t cursor = 0;
	uint32_t at = 0;

	if (json_member(document, "rootfs", &rootfs) < 0 || rootfs.kind != JSON_OBJECT ||
	    json_member(&rootfs, "diff_ids", &list) < 0 || list.kind != JSON_ARRAY)
		return 0; /* old images have none */
	m->diffs = calloc(m->layer_count, sizeof *m->diffs);
	if (!m->diffs)
		return import_fail(blobs->in, ENOMEM, NULL, "no memory");
	for (; json_next(&list, &cursor, &item) >= 0; at++)
		if (at >= m->layer_count || item.kind != JSON_STRING ||
		    json_to_string(&item, m->diffs[at], sizeof m->diffs[at]) < 0)
			return config_fail(blobs, "rootfs",
					   "its layers are not those of the image");
	return at == m->layer_count ?
		       0 :
		       config_fail(blobs, "rootfs", "its layers are not those of the image");
}

int config_read(const struct blobs *blobs, struct manifest *manifest)
{
	struct image_record *record = &blobs->in->record;
	struct text_room created = { record->created, sizeof record->created };
	struct json_value document, config;
	char *text;
	int r = blob_text(blobs, manifest->config, &text);

	if (r < 0)
		return r;
	auto_free char *owned = text;
	if (json_parse(owned, strlen(owned), &document) < 0 || document.kind != JSON_OBJECT)
		return config_fail(blobs, manifest->config->name, "malformed JSON");
	r = config_platform(blobs, &document);
	if (r >= 0)
		r = config_text(blobs, &document, "created", &created);
	if (r >= 0)
		r = diffs_read(blobs, manifest, &document);
	if (r < 0 || json_member(&document, "config", &config) < 0 || config.kind == JSON_NULL)
		return r;
	if (config.kind != JSON_OBJECT)
		return config_fail(blobs, "config", "no object in the image's config");
	return config_fields(blobs, &config);
}
