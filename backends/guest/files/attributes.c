/*
 * Extended attributes between files and archives. Called by tar_out.c and tar_in.c. Must hold: only
 * those of user.* and file capabilities come and go, whose effect ends at the sandbox, and of one
 * entry no more than a reader of pax headers takes. What could not be kept is said, once an entry.
 */
#include "backends/guest/files/attributes.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "backends/guest/files/files.h"

enum {
	VALUE_BYTES_MAX = 64 << 10, /* the kernel's own limit, and of the list of names */
	ENTRY_BYTES_MAX = 512 << 10,
};

static bool is_carried(const char *name)
{
	return name && (strncmp(name, "user.", 5) == 0 || strcmp(name, "security.capability") == 0);
}

/* libarchive writes other names encoded, and nobody decodes them. */
static bool is_plain(const char *name)
{
	for (; *name; name++)
		if (*name < 33 || *name > 126 || *name == '%' || *name == '=')
			return false;
	return true;
}

static int attributes_tell(struct files *f, int error, const char *name)
{
	return error ? talk_refusal(f, DSEC_FILE_REASON_ATTRIBUTES, error, name) : 0;
}

/* One of them; *left_bytes is what the entry still takes. */
static int attribute_read(int fd, const char *name, struct archive_entry *entry, char *value,
			  size_t *left_bytes)
{
	ssize_t bytes = fgetxattr(fd, name, value, VALUE_BYTES_MAX);
	size_t cost = strlen(name) + (bytes > 0 ? (size_t)bytes : 0);

	if (bytes < 0)
		return errno == ENODATA ? 0 : -errno; /* it went meanwhile */
	if (!is_plain(name))
		return -EILSEQ;
	if (cost > *left_bytes)
		return -E2BIG;
	*left_bytes -= cost;
	archive_entry_xattr_add_entry(entry, name, value, (size_t)bytes);
	return 0;
}

int attributes_read(struct files *f, int fd, struct archive_entry *entry, const char *name)
{
	char *names = f->buffer, *value = f->buffer + VALUE_BYTES_MAX;
	size_t left_bytes = ENTRY_BYTES_MAX;
	ssize_t bytes = flistxattr(fd, names, VALUE_BYTES_MAX);
	int error = bytes < 0 && errno != EOPNOTSUPP ? -errno : 0;

	_Static_assert((int)FILES_BUFFER_BYTES >= 2 * (int)VALUE_BYTES_MAX, "a list and a value");
	for (ssize_t at = 0; at < bytes; at += (ssize_t)strlen(names + at) + 1) {
		int r = is_carried(names + at) ?
				attribute_read(fd, names + at, entry, value, &left_bytes) :
				0;

		error = error ? error : r;
	}
	return attributes_tell(f, error, name);
}

int attributes_put(struct files *f, int fd, struct archive_entry *entry)
{
	const char *name;
	const void *value;
	size_t bytes;
	int error = 0;

	(void)archive_entry_xattr_reset(entry); /* their number */
	while (archive_entry_xattr_next(entry, &name, &value, &bytes) == ARCHIVE_OK) {
		if (!is_carried(name) || fsetxattr(fd, name, value, bytes, 0) == 0)
			continue;
		/* So many attributes as there is room for, and no file without a word. */
		if (errno == ENOMEM)
			return -errno;
		error = error ? error : -errno;
	}
	return attributes_tell(f, error, archive_entry_pathname(entry));
}
