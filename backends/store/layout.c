/*
 * Layouts: their addresses, their texts. Called by push and pull. Must hold: what is accepted names
 * one directory, from the root, and a tag that an index can hold; nothing beneath leads out of it.
 */
#include "backends/store/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/store/file.h"
#include "backends/store/transfer.h"
#include "engine/base/cleanup.h"

static bool tag_is_sound(const char *tag)
{
	return strspn(tag, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
			   "-._:@/+") == strlen(tag);
}

int layout_address_parse(const char *address, char ret_path[LAYOUT_PATH_BYTES],
			 char ret_tag[LAYOUT_TAG_BYTES], const char **ret_why)
{
	const char *path = address + 4, *tag;
	size_t bytes;

	*ret_why = "an address is oci:DIR[:TAG]";
	if (strncmp(address, "oci:", 4) != 0)
		return -EINVAL;
	bytes = strcspn(path, ":");
	tag = path[bytes] ? path + bytes + 1 : "";
	*ret_why = "oci: wants an absolute path";
	if (*path != '/' || bytes >= LAYOUT_PATH_BYTES)
		return -EINVAL;
	*ret_why = "its tag is no tag: letters, digits and -._:@/+, at most 128";
	if ((path[bytes] && !*tag) || strlen(tag) >= LAYOUT_TAG_BYTES || !tag_is_sound(tag))
		return -EINVAL;
	(void)snprintf(ret_path, LAYOUT_PATH_BYTES, "%.*s", (int)bytes, path);
	(void)snprintf(ret_tag, LAYOUT_TAG_BYTES, "%s", tag);
	return 0;
}

int layout_text_read(int folder_fd, const char *path, size_t max, char **ret, size_t *ret_bytes)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	auto_close int fd = (int)syscall(SYS_openat2, folder_fd, path, &how, sizeof how);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	if ((uint64_t)st.st_size > max)
		return -EFBIG;
	auto_free char *text = malloc((size_t)st.st_size + 1);
	if (!text)
		return -ENOMEM;
	r = file_read(fd, text, (size_t)st.st_size, 0);
	if (r < 0)
		return r;
	text[st.st_size] = 0;
	*ret = take_ptr(text);
	*ret_bytes = (size_t)st.st_size;
	return 0;
}
