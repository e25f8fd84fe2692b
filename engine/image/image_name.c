/*
 * Names of images, and which file one is. Called from anywhere. Must hold: a name that passes the
 * check names a file below the directory of images, and none of the store's own.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/image/image.h"
#include "engine/image/image_load.h"

bool image_name_is_stores(const char *name)
{
	static const char *const folders[] = { "blobs", "cache", "composed" };
	size_t bytes = strcspn(name, "/");

	for (size_t i = 0; name[bytes] && i < sizeof folders / sizeof *folders; i++)
		if (strlen(folders[i]) == bytes && !memcmp(name, folders[i], bytes))
			return true;
	return false;
}

int image_name_check(const char *name)
{
	bool start = true;

	if (!*name || image_name_is_stores(name))
		return -EINVAL;
	for (const char *at = name; *at; at++) {
		if (start && (*at == '.' || *at == '/'))
			return -EINVAL;
		if (!isalnum((unsigned char)*at) && !strchr("._-:/", *at))
			return -EINVAL;
		start = *at == '/';
	}
	return start ? -EINVAL : 0;
}

size_t image_name_next(const char **at, char ret[IMAGE_NAME_MAX])
{
	size_t bytes = strcspn(*at, "+");

	if (bytes >= IMAGE_NAME_MAX)
		return 0;
	memcpy(ret, *at, bytes);
	ret[bytes] = 0;
	*at = (*at)[bytes] ? *at + bytes + 1 : NULL;
	return bytes;
}

int image_names_check(const char *name)
{
	char part[IMAGE_NAME_MAX];
	uint32_t count = 0;

	for (const char *at = name; at;) {
		if (!image_name_next(&at, part) || image_name_check(part) < 0)
			return -EINVAL;
		if (++count > IMAGE_PARTS_MAX)
			return -E2BIG;
	}
	return 0;
}

/* ---- files ---- */

int image_path(const struct config *config, const char *name, char *ret, size_t bytes)
{
	int r = snprintf(ret, bytes, "%s/%s.erofs", config->images_path, name);

	return r < (int)bytes ? 0 : -ENAMETOOLONG;
}

bool image_file_was_written(const struct image_file *file, const char *path)
{
	struct image_file now = image_file_identify(path);

	return now.device == file->device && now.inode == file->inode &&
	       (now.bytes != file->bytes || now.written_ns != file->written_ns);
}
