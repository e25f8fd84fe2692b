/*
 * The files of a docker archive or an OCI layout, spooled, since what says their order may come
 * last. Called by the unpacker. Must hold: a name out of the archive is only ever compared with
 * others, never given to the system.
 */
#include "backends/image/blobs.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/store/digest.h"
#include "backends/image/tarball.h"
#include "backends/image/path.h"
#include "engine/base/cleanup.h"

enum { LINKS_MAX = 8 };

struct spool {
	struct blobs *blobs;
	struct digest *digest;
	const char *name;
	int fd;
	uint64_t bytes;
};

static void blob_file_name(const struct blobs *blobs, const struct blob *blob, char ret[16])
{
	(void)snprintf(ret, 16, "%u", (unsigned)(blob - blobs->all));
}

static int spool_write(void *owner, const void *bytes, size_t count, uint64_t offset)
{
	struct spool *spool = owner;
	const char *at = bytes;

	if (offset != spool->bytes)
		return import_fail(spool->blobs->in, EBADMSG, spool->name, "a file with holes");
	digest_add(spool->digest, bytes, count);
	spool->bytes += count;
	while (count) {
		ssize_t n = write(spool->fd, at, count);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return import_fail(spool->blobs->in, errno, spool->name, strerror(errno));
		at += n;
		count -= (size_t)n;
		spool->blobs->in->report.frame.read_bytes += (uint64_t)n;
	}
	return 0;
}

static int blob_file(struct blobs *blobs, struct tarball *tarball, struct archive_entry *entry,
		     struct blob *blob)
{
	struct import *in = blobs->in;
	int64_t bytes = archive_entry_size(entry);
	struct spool spool = { .blobs = blobs, .name = blob->name };
	uint8_t taken[DIGEST_BYTES];
	char file[16];
	int r;

	if (bytes < 0 || (uint64_t)bytes > in->limits.bytes_max ||
	    in->report.frame.read_bytes > in->limits.bytes_max - (uint64_t)bytes)
		return import_fail(in, EFBIG, blob->name, "over the limit of bytes of an image");
	tarball->data_left = (uint64_t)bytes;
	blob_file_name(blobs, blob, file);
	auto_close int fd = openat(blobs->directory_fd, file,
				   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return import_fail(in, errno, blob->name, strerror(errno));
	spool.fd = fd;
	spool.digest = digest_new();
	if (!spool.digest)
		return import_fail(in, ENOMEM, blob->name, "no memory");
	r = tarball_data(tarball, blob->name, spool_write, &spool);
	digest_take(spool.digest, taken);
	digest_text(taken, blob->digest);
	digest_free(spool.digest);
	blob->bytes = spool.bytes;
	if (r >= 0 && spool.bytes != (uint64_t)bytes)
		return import_fail(in, EBADMSG, blob->name, "a file with holes");
	return r;
}

static int blob_add(struct blobs *blobs, const char *path, struct blob **ret)
{
	struct blob *grown = blobs->all;

	if (strlen(path) >= BLOB_NAME_BYTES)
		return import_fail(blobs->in, ENAMETOOLONG, path, "a name too long for an archive");
	if (blobs->count == IMPORT_BLOBS_MAX)
		return import_fail(blobs->in, E2BIG, path, "an archive of over 16384 files");
	if (blobs->count == blobs->size) {
		blobs->size = blobs->size ? blobs->size * 2 : 64;
		grown = realloc(grown, blobs->size * sizeof *grown);
		if (!grown)
			return import_fail(blobs->in, ENOMEM, path, "no memory");
		blobs->all = grown;
	}
	*ret = &grown[blobs->count++];
	memset(*ret, 0, sizeof **ret);
	memcpy((*ret)->name, path, strlen(path) + 1);
	return 0;
}

/* Old docker archives have a layer twice as a link: "../ID/layer.tar". */
static int link_resolve(struct blob *blob, const char *target)
{
	char name[2 * BLOB_NAME_BYTES];
	const char *slash = strrchr(blob->name, '/');
	size_t used = slash ? (size_t)(slash - blob->name) : 0;

	if (strlen(target) >= BLOB_NAME_BYTES || *target == '/')
		return -EINVAL;
	memcpy(name, blob->name, used);
	while (*target) {
		size_t bytes = strcspn(target, "/");

		if (bytes == 2 && !strncmp(target, "..", 2)) {
			if (!used)
				return -EINVAL;
			while (used && name[--used] != '/')
				;
		} else if (bytes && !(bytes == 1 && *target == '.')) {
			if (used)
				name[used++] = '/';
			memcpy(name + used, target, bytes);
			used += bytes;
		}
		target += bytes;
		target += strspn(target, "/");
	}
	if (!used || used >= BLOB_NAME_BYTES)
		return -EINVAL;
	memcpy(blob->link, name, used);
	blob->link[used] = 0;
	return 0;
}

static int blob_take(struct blobs *blobs, struct tarball *tarball, struct archive_entry *entry)
{
	const char *name = archive_entry_pathname(entry), *target;
	char path[IMPORT_PATH_BYTES];
	struct blob *blob = NULL;
	int r;

	if (!name)
		return import_fail(blobs->in, EBADMSG, NULL, "an entry without a name");
	r = path_clean(blobs->in, name, path);
	if (r < 0 || !*path || archive_entry_filetype(entry) == AE_IFDIR)
		return r;
	r = blob_add(blobs, path, &blob);
	if (r < 0)
		return r;
	if (archive_entry_hardlink(entry)) {
		r = path_clean(blobs->in, archive_entry_hardlink(entry), path);
		if (r >= 0 && strlen(path) >= BLOB_NAME_BYTES)
			return import_fail(blobs->in, ENAMETOOLONG, path,
					   "a link out of the archive");
		if (r >= 0)
			memcpy(blob->link, path, strlen(path) + 1);
		return r;
	}
	switch (archive_entry_filetype(entry)) {
	case AE_IFREG:
		return blob_file(blobs, tarball, entry, blob);
	case AE_IFLNK:
		target = archive_entry_symlink(entry);
		if (!target || link_resolve(blob, target) < 0)
			return import_fail(blobs->in, EINVAL, name, "a link out of the archive");
		return 0;
	default:
		return import_fail(blobs->in, EINVAL, name,
				   "neither a file nor a link, in an archive of layers");
	}
}

int blobs_spool(struct blobs *blobs, struct import *in, struct tarball *tarball)
{
	struct archive_entry *entry;
	int r;

	*blobs = (struct blobs){ .in = in, .directory_fd = in->blobs_fd };
	while ((r = tarball_next(tarball, &entry)) > 0) {
		r = blob_take(blobs, tarball, entry);
		if (r < 0)
			return r;
	}
	return r;
}

void blobs_done(struct blobs *blobs)
{
	free(blobs->all);
	blobs->all = NULL;
}

/* The last of a name counts, as in any tar. */
static const struct blob *blob_named(const struct blobs *blobs, const char *name)
{
	for (uint32_t i = blobs->count; i-- > 0;)
		if (!strcmp(blobs->all[i].name, name))
			return &blobs->all[i];
	return NULL;
}

const struct blob *blobs_find(const struct blobs *blobs, const char *name)
{
	const struct blob *blob = blob_named(blobs, name);

	for (int i = 0; blob && *blob->link && i < LINKS_MAX; i++)
		blob = blob_named(blobs, blob->link);
	return blob && !*blob->link ? blob : NULL;
}

int blob_open(const struct blobs *blobs, const struct blob *blob, int *ret_fd)
{
	char file[16];
	int fd;

	blob_file_name(blobs, blob, file);
	fd = openat(blobs->directory_fd, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) /* a layer that is named twice was dropped after the first time */
		return import_fail(blobs->in, errno, blob->name, strerror(errno));
	*ret_fd = fd;
	return 0;
}

int blob_text(const struct blobs *blobs, const struct blob *blob, char **ret)
{
	int fd, r;
	size_t used = 0;

	if (blob->bytes > BLOB_TEXT_BYTES_MAX)
		return import_fail(blobs->in, EFBIG, blob->name, "over 4 MiB of JSON");
	r = blob_open(blobs, blob, &fd);
	if (r < 0)
		return r;
	auto_close int file = fd;
	auto_free char *text = malloc(blob->bytes + 1);
	if (!text)
		return import_fail(blobs->in, ENOMEM, blob->name, "no memory");
	while (used < blob->bytes) {
		ssize_t n = read(file, text + used, blob->bytes - used);

		if (n <= 0)
			return import_fail(blobs->in, EIO, blob->name, "it cannot be read back");
		used += (size_t)n;
	}
	text[used] = 0;
	*ret = take_ptr(text);
	return 0;
}

void blob_drop(const struct blobs *blobs, const struct blob *blob)
{
	char file[16];

	blob_file_name(blobs, blob, file);
	(void)unlinkat(blobs->directory_fd, file, 0); /* the scratch goes as a whole anyway */
}
