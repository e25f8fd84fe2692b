/*
 * One tar applied to the tree: each entry checked and made, later ones in the place of earlier.
 * Called by the unpacker, in the order of layers. Must hold: an entry that cannot be made as it
 * says fails the whole import, but for what a sandbox must not have (device nodes, what lies in
 * /dev, attributes other than user.* and file capabilities), which is left out and counted.
 */
#include "backends/image/layer.h"

#include <archive.h>
#include <archive_entry.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "backends/image/files.h"
#include "backends/image/path.h"
#include "backends/image/tarball.h"

#define WHITEOUT      ".wh."
#define WHITEOUT_META ".wh..wh."
#define OPAQUE	      ".wh..wh..opq"

enum {
	XATTR_BYTES_MAX = 4096,
	CAPABILITY_2 = 0x02000000,
	CAPABILITY_3 = 0x03000000,
	CAPABILITY_2_BYTES = 20,
	CAPABILITY_3_BYTES = 24,
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
		.time_s = archive_entry_mtime(entry),
		.time_ns = (uint32_t)archive_entry_mtime_nsec(entry),
	};
}

/* What Linux would set: of the second revision, or the third. */
static bool capability_fits(const void *value, size_t bytes)
{
	uint32_t magic;

	if (bytes != CAPABILITY_2_BYTES && bytes != CAPABILITY_3_BYTES)
		return false;
	memcpy(&magic, value, sizeof magic);
	return (le32toh(magic) & ~1u) ==
	       (bytes == CAPABILITY_2_BYTES ? CAPABILITY_2 : CAPABILITY_3);
}

static int xattrs_set(struct files *files, struct archive_entry *entry, const char *path,
		      uint32_t node)
{
	const char *name;
	const void *value;
	size_t bytes;
	int r;

	(void)archive_entry_xattr_reset(entry); /* their number */
	while (archive_entry_xattr_next(entry, &name, &value, &bytes) == ARCHIVE_OK) {
		bool capability = name && !strcmp(name, "security.capability");

		if (node == TREE_NONE || !name || (strncmp(name, "user.", 5) != 0 && !capability)) {
			files->in->report.frame.dropped_xattrs++;
			continue;
		}
		if (bytes > XATTR_BYTES_MAX)
			return import_fail(files->in, E2BIG, path, "an attribute over 4096 bytes");
		if (capability && !capability_fits(value, bytes))
			return import_fail(files->in, EINVAL, path,
					   "its file capabilities are malformed");
		r = tree_set_xattr(files->tree, node, name, value, bytes);
		if (r < 0)
			return import_fail(files->in, -r, path, "its attributes cannot be set");
	}
	return 0;
}

static int size_check(struct files *files, struct tarball *tarball, struct archive_entry *entry,
		      const char *path)
{
	int64_t bytes = archive_entry_size(entry);

	/* Holes count: nothing may make more than the limit out of a few bytes. */
	if (bytes < 0)
		return import_fail(files->in, EBADMSG, path, "a negative size");
	if ((uint64_t)bytes > files->in->limits.bytes_max ||
	    files->in->record.content_bytes > files->in->limits.bytes_max - (uint64_t)bytes)
		return import_fail(files->in, EFBIG, path, "over the limit of bytes of an image");
	files->in->record.content_bytes += (uint64_t)bytes;
	tarball->data_left = (uint64_t)bytes;
	return 0;
}

static int make_file(struct files *files, struct tarball *tarball, struct archive_entry *entry,
		     const struct place *place)
{
	struct attributes attributes = attributes_of(entry);
	struct contents contents = { .files = files, .name = place->path };
	int r = size_check(files, tarball, entry, place->path);

	if (r >= 0)
		r = files_add(files, place, TREE_FILE, &contents.node);
	if (r >= 0)
		r = tarball_data(tarball, place->path, contents_add, &contents);
	if (r >= 0)
		r = contents_end(&contents, (uint64_t)archive_entry_size(entry));
	if (r >= 0)
		r = files_attributes(files, place, contents.node, &attributes);
	return r < 0 ? r : xattrs_set(files, entry, place->path, contents.node);
}

static int make_directory(struct files *files, struct archive_entry *entry,
			  const struct place *place)
{
	struct attributes attributes = attributes_of(entry);
	uint32_t node;
	int r = files_directory(files, place, &node);

	if (r >= 0)
		r = files_attributes(files, place, node, &attributes);
	return r < 0 ? r : xattrs_set(files, entry, place->path, node);
}

static int make_symlink(struct files *files, struct archive_entry *entry, const struct place *place)
{
	const char *target = archive_entry_symlink(entry);
	struct attributes attributes = attributes_of(entry);
	uint32_t node;
	int r = files_add(files, place, TREE_SYMLINK, &node);

	if (r < 0)
		return r;
	if (!target || tree_set_target(files->tree, node, target) < 0)
		return import_fail(files->in, EINVAL, place->path,
				   "a link with an impossible target");
	r = files_attributes(files, place, node, &attributes);
	return r < 0 ? r : xattrs_set(files, entry, place->path, TREE_NONE);
}

static int make_fifo(struct files *files, struct archive_entry *entry, const struct place *place)
{
	struct attributes attributes = attributes_of(entry);
	uint32_t node;
	int r = files_add(files, place, TREE_FIFO, &node);

	return r < 0 ? r : files_attributes(files, place, node, &attributes);
}

/* As overlayfs writes what it hides. */
static bool is_overlay_whiteout(struct archive_entry *entry)
{
	return archive_entry_filetype(entry) == AE_IFCHR && !archive_entry_rdevmajor(entry) &&
	       !archive_entry_rdevminor(entry);
}

static int make_hardlink(struct files *files, struct archive_entry *entry,
			 const struct place *place)
{
	char target[IMPORT_PATH_BYTES];
	int r = path_clean(files->in, archive_entry_hardlink(entry), target);

	if (r >= 0)
		r = path_resolve(files, target);
	if (r < 0)
		return r;
	if (archive_entry_size(entry) > 0)
		return import_fail(files->in, EINVAL, place->path, "a hard link with contents");
	if (is_device_path(target)) {
		files->in->report.frame.dropped_nodes++;
		return 0;
	}
	return files_link(files, place, target);
}

static int make_entry(struct files *files, struct tarball *tarball, struct archive_entry *entry,
		      const struct place *place)
{
	if (archive_entry_hardlink(entry))
		return make_hardlink(files, entry, place);
	if (files->keeps_whiteouts && is_overlay_whiteout(entry))
		return files_hide(files, place);
	switch (archive_entry_filetype(entry)) {
	case AE_IFREG:
		return make_file(files, tarball, entry, place);
	case AE_IFDIR:
		return make_directory(files, entry, place);
	case AE_IFLNK:
		return make_symlink(files, entry, place);
	case AE_IFIFO:
		return make_fifo(files, entry, place);
	case AE_IFCHR:
	case AE_IFBLK:
	case AE_IFSOCK:
		files->in->report.frame.dropped_nodes++;
		return 0;
	default:
		return import_fail(files->in, EINVAL, place->path, "an entry of an unknown kind");
	}
}

/* 1: it was one, and is done; 0: an ordinary entry. */
static int whiteout(struct files *files, struct place *place)
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
		hidden[before ? before - 1 : 0] = 0; /* not the "/" */
		r = files_hide_below(files, hidden);
		return r < 0 ? r : 1;
	}
	if (!strncmp(place->name, WHITEOUT_META, sizeof WHITEOUT_META - 1))
		return 1; /* notes of an aufs to itself */
	if (!place->name[sizeof WHITEOUT - 1] || !strcmp(place->name, WHITEOUT ".") ||
	    !strcmp(place->name, WHITEOUT ".."))
		return import_fail(files->in, EINVAL, place->path, "a whiteout of nothing");
	memcpy(hidden + before, place->name + sizeof WHITEOUT - 1,
	       strlen(place->name) - (sizeof WHITEOUT - 1) + 1);
	r = place_find(files, hidden, &below);
	if (r >= 0 && *below.path)
		r = files_hide(files, &below);
	return r < 0 ? r : 1;
}

static int apply_entry(struct files *files, struct tarball *tarball, struct archive_entry *entry,
		       bool whiteouts)
{
	const char *name = archive_entry_pathname(entry);
	char path[IMPORT_PATH_BYTES];
	struct place place;
	int r;

	if (!name || !*name)
		return import_fail(files->in, EBADMSG, NULL, "an entry without a name");
	r = path_clean(files->in, name, path);
	if (r >= 0)
		r = path_resolve(files, path);
	if (r < 0)
		return r;
	if (is_device_path(path)) {
		files->in->report.frame.dropped_nodes += !is_ours(path);
		return 0;
	}
	if (++files->in->report.frame.files > files->in->limits.files_max)
		return import_fail(files->in, EFBIG, path, "over the limit of files of an image");
	r = place_find(files, path, &place);
	if (r >= 0 && whiteouts)
		r = whiteout(files, &place);
	if (r == 0)
		r = make_entry(files, tarball, entry, &place);
	return r < 0 ? r : 0;
}

int layer_apply(struct files *files, struct tarball *tarball, bool whiteouts)
{
	struct archive_entry *entry;
	int r;

	files_layer_begin(files);
	files->in->report.frame.layers++;
	while ((r = tarball_next(tarball, &entry)) > 0) {
		r = apply_entry(files, tarball, entry, whiteouts);
		if (r < 0)
			return r;
	}
	return r;
}
