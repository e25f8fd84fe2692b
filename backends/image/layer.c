/*
 * One tar applied to the tree: each entry checked and made, later ones in the place of earlier.
 * Called by the unpacker, in the order of layers. Must hold: an entry that cannot be made as it
 * says fails the whole import, but for what a sandbox must not have (device nodes, what lies in
 * /dev, attributes other than user.* and file capabilities), which is left out and counted.
 */
#include "backends/image/layer.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backends/image/path.h"
#include "backends/image/tarball.h"
#include "backends/image/tree.h"
#include "engine/base/cleanup.h"

#define WHITEOUT      ".wh."
#define WHITEOUT_META ".wh..wh."
#define OPAQUE	      ".wh..wh..opq"

enum { XATTR_BYTES_MAX = 4096, LINK_BYTES_MAX = 4095 };

struct file_sink {
	struct import *in;
	const char *name;
	int fd;
};

/* /dev is the engine's: the same nodes in every sandbox, made by root here. */
static bool is_device_path(const char *path)
{
	return !strncmp(path, "dev", 3) && (!path[3] || path[3] == '/');
}

/* What the archive has in /dev that is there anyway is not worth a word. */
static bool is_ours(const char *path)
{
	static const char *const names[] = {
		"dev",	       "dev/null", "dev/zero", "dev/full",  "dev/random",
		"dev/urandom", "dev/tty",  "dev/fd",   "dev/stdin", "dev/stdout",
		"dev/stderr",  "dev/ptmx", "dev/pts",  "dev/shm",
	};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(path, names[i]))
			return true;
	return false;
}

static struct attributes attributes_of(struct archive_entry *entry)
{
	return (struct attributes){
		.mode = archive_entry_perm(entry),
		.uid = (uint64_t)archive_entry_uid(entry),
		.gid = (uint64_t)archive_entry_gid(entry),
		.time = { archive_entry_mtime(entry), archive_entry_mtime_nsec(entry) },
	};
}

/* A capability is written last: a change of owner or contents would take it away. */
static int xattrs_set(struct tree *tree, struct archive_entry *entry, const char *path, int fd)
{
	const char *name;
	const void *value;
	size_t bytes;

	(void)archive_entry_xattr_reset(entry); /* their number */
	while (archive_entry_xattr_next(entry, &name, &value, &bytes) == ARCHIVE_OK) {
		if (fd < 0 || !name ||
		    (strncmp(name, "user.", 5) != 0 && strcmp(name, "security.capability") != 0)) {
			tree->in->report.frame.dropped_xattrs++;
			continue;
		}
		if (bytes > XATTR_BYTES_MAX)
			return import_fail(tree->in, E2BIG, path, "an attribute over 4096 bytes");
		if (fsetxattr(fd, name, value, bytes, 0) < 0)
			return import_fail(tree->in, errno, path,
					   *name == 's' ? "its file capabilities are malformed" :
							  "its attributes cannot be set");
	}
	return 0;
}

static int file_write(void *owner, const void *bytes, size_t count, uint64_t offset)
{
	struct file_sink *file = owner;
	const char *at = bytes;

	while (count) {
		ssize_t n = pwrite(file->fd, at, count, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return import_fail(file->in, errno, file->name, strerror(errno));
		at += n;
		count -= (size_t)n;
		offset += (uint64_t)n;
		file->in->report.frame.bytes += (uint64_t)n;
	}
	return 0;
}

static int size_check(struct tree *tree, struct tarball *tarball, struct archive_entry *entry,
		      const char *path)
{
	int64_t bytes = archive_entry_size(entry);

	/* Holes count: nothing may make more than the limit out of a few bytes. */
	if (bytes < 0)
		return import_fail(tree->in, EBADMSG, path, "a negative size");
	if ((uint64_t)bytes > tree->in->limits.bytes_max ||
	    tree->in->record.content_bytes > tree->in->limits.bytes_max - (uint64_t)bytes)
		return import_fail(tree->in, EFBIG, path, "over the limit of bytes of an image");
	tree->in->record.content_bytes += (uint64_t)bytes;
	tarball->data_left = (uint64_t)bytes;
	return 0;
}

static int make_file(struct tree *tree, struct tarball *tarball, struct archive_entry *entry,
		     const struct place *place)
{
	struct attributes attributes = attributes_of(entry);
	int fd = -1, r = size_check(tree, tarball, entry, place->path);

	if (r >= 0)
		r = tree_file(tree, place, &fd);
	if (r < 0)
		return r;
	auto_close int file = fd;
	struct file_sink sink = { tree->in, place->path, file };

	r = tarball_data(tarball, place->path, file_write, &sink);
	if (r < 0)
		return r;
	if (ftruncate(file, archive_entry_size(entry)) < 0)
		return import_fail(tree->in, errno, place->path, strerror(errno));
	r = tree_attributes(tree, place, file, &attributes);
	return r < 0 ? r : xattrs_set(tree, entry, place->path, file);
}

static int make_directory(struct tree *tree, struct archive_entry *entry, const struct place *place)
{
	struct attributes attributes = attributes_of(entry);
	int fd = -1, r = tree_directory(tree, place, &fd);

	if (r < 0)
		return r;
	auto_close int directory = fd;

	r = tree_attributes(tree, place, directory, &attributes);
	return r < 0 ? r : xattrs_set(tree, entry, place->path, directory);
}

static int make_symlink(struct tree *tree, struct archive_entry *entry, const struct place *place)
{
	const char *target = archive_entry_symlink(entry);
	struct attributes attributes = attributes_of(entry);
	int r;

	if (!target || !*target || strlen(target) > LINK_BYTES_MAX)
		return import_fail(tree->in, EINVAL, place->path,
				   "a link with an impossible target");
	r = tree_symlink(tree, place, target, &attributes);
	return r < 0 ? r : xattrs_set(tree, entry, place->path, -1);
}

static int make_hardlink(struct tree *tree, struct archive_entry *entry, const struct place *place)
{
	char target[IMPORT_PATH_BYTES];
	int r = path_clean(tree->in, archive_entry_hardlink(entry), target);

	if (r >= 0)
		r = path_resolve(tree, target);
	if (r < 0)
		return r;
	if (archive_entry_size(entry) > 0)
		return import_fail(tree->in, EINVAL, place->path, "a hard link with contents");
	if (is_device_path(target)) {
		tree->in->report.frame.dropped_nodes++;
		return 0;
	}
	return tree_hardlink(tree, place, target);
}

static int make_entry(struct tree *tree, struct tarball *tarball, struct archive_entry *entry,
		      const struct place *place)
{
	struct attributes attributes = attributes_of(entry);

	if (archive_entry_hardlink(entry))
		return make_hardlink(tree, entry, place);
	switch (archive_entry_filetype(entry)) {
	case AE_IFREG:
		return make_file(tree, tarball, entry, place);
	case AE_IFDIR:
		return make_directory(tree, entry, place);
	case AE_IFLNK:
		return make_symlink(tree, entry, place);
	case AE_IFIFO:
		return tree_fifo(tree, place, &attributes);
	case AE_IFCHR:
	case AE_IFBLK:
	case AE_IFSOCK:
		tree->in->report.frame.dropped_nodes++;
		return 0;
	default:
		return import_fail(tree->in, EINVAL, place->path, "an entry of an unknown kind");
	}
}

/* 1: it was one, and is done; 0: an ordinary entry. */
static int whiteout(struct tree *tree, struct place *place)
{
	char hidden[IMPORT_PATH_BYTES];
	size_t before = (size_t)(place->name - place->path);
	struct place below;
	int r;

	if (strncmp(place->name, WHITEOUT, sizeof WHITEOUT - 1) != 0)
		return 0;
	memcpy(hidden, place->path, before);
	hidden[before] = 0;
	if (!strcmp(place->name, OPAQUE)) {
		r = place_open(tree, hidden, &below);
		if (r >= 0)
			r = tree_hide_below(tree, &below);
		place_close(&below);
		return r < 0 ? r : 1;
	}
	if (!strncmp(place->name, WHITEOUT_META, sizeof WHITEOUT_META - 1))
		return 1; /* notes of an aufs to itself */
	if (!place->name[sizeof WHITEOUT - 1] || !strcmp(place->name, WHITEOUT ".") ||
	    !strcmp(place->name, WHITEOUT ".."))
		return import_fail(tree->in, EINVAL, place->path, "a whiteout of nothing");
	memcpy(hidden + before, place->name + sizeof WHITEOUT - 1,
	       strlen(place->name) - (sizeof WHITEOUT - 1) + 1);
	r = place_open(tree, hidden, &below);
	if (r >= 0 && below.dir_fd >= 0)
		r = tree_hide(tree, &below);
	place_close(&below);
	return r < 0 ? r : 1;
}

static int apply_entry(struct tree *tree, struct tarball *tarball, struct archive_entry *entry,
		       bool whiteouts)
{
	const char *name = archive_entry_pathname(entry);
	char path[IMPORT_PATH_BYTES];
	struct place place;
	int r;

	if (!name || !*name)
		return import_fail(tree->in, EBADMSG, NULL, "an entry without a name");
	r = path_clean(tree->in, name, path);
	if (r >= 0)
		r = path_resolve(tree, path);
	if (r < 0)
		return r;
	if (is_device_path(path)) {
		tree->in->report.frame.dropped_nodes += !is_ours(path);
		return 0;
	}
	if (++tree->in->report.frame.files > tree->in->limits.files_max)
		return import_fail(tree->in, EFBIG, path, "over the limit of files of an image");
	r = place_open(tree, path, &place);
	if (r >= 0 && whiteouts)
		r = whiteout(tree, &place);
	if (r == 0)
		r = make_entry(tree, tarball, entry, &place);
	place_close(&place);
	return r < 0 ? r : 0;
}

int layer_apply(struct tree *tree, struct tarball *tarball, bool whiteouts)
{
	struct archive_entry *entry;
	int r;

	tree_layer_begin(tree);
	tree->in->report.frame.layers++;
	while ((r = tarball_next(tarball, &entry)) > 0) {
		r = apply_entry(tree, tarball, entry, whiteouts);
		if (r < 0)
			return r;
	}
	return r;
}
