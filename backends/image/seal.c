/*
 * From the unpacker's tree and contents to an image of the store. Called by the program's sealer,
 * after the unpacker has ended. Must hold: the tree is read as the hostile bytes that it is; the
 * file is synced, and IMPORT_RESULT is whole wherever it exists.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "backends/image/import.h"
#include "backends/store/store.h"
#include "backends/store/tree.h"
#include "engine/base/cleanup.h"

#define UNFINISHED "unfinished"

/* ---- /dev ---- */

/* Of every image: what the backend expects of one that has a /dev/pts. */
static const struct {
	const char *name;
	unsigned major, minor;
} nodes[] = { { "null", 1, 3 },	  { "zero", 1, 5 },    { "full", 1, 7 },
	      { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 } };

static const char *const links[][2] = {
	{ "fd", "/proc/self/fd" },	 { "stdin", "/proc/self/fd/0" },
	{ "stdout", "/proc/self/fd/1" }, { "stderr", "/proc/self/fd/2" },
	{ "ptmx", "pts/ptmx" },
};

static const struct {
	const char *name;
	uint32_t mode;
} folders[] = { { "pts", 0755 }, { "shm", 01777 } };

static int dev_fill(struct tree *tree, uint32_t dev)
{
	uint32_t node;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < sizeof nodes / sizeof *nodes; i++) {
		r = tree_add(tree, dev, nodes[i].name, TREE_CHARACTER, &node);
		if (r < 0)
			break;
		tree->nodes[node].mode = 0666;
		tree->nodes[node].rdev_major = nodes[i].major;
		tree->nodes[node].rdev_minor = nodes[i].minor;
	}
	for (size_t i = 0; r >= 0 && i < sizeof links / sizeof *links; i++) {
		r = tree_add(tree, dev, links[i][0], TREE_SYMLINK, &node);
		if (r < 0)
			break;
		tree->nodes[node].mode = 0777;
		r = tree_set_target(tree, node, links[i][1]);
	}
	for (size_t i = 0; r >= 0 && i < sizeof folders / sizeof *folders; i++) {
		r = tree_add(tree, dev, folders[i].name, TREE_DIRECTORY, &node);
		if (r >= 0)
			tree->nodes[node].mode = folders[i].mode;
	}
	return r;
}

/* Nothing of an archive is ever made below /dev, so it is ours to make. */
static int dev_make(struct tree *tree)
{
	uint32_t dev;
	int r = tree_add(tree, 0, "dev", TREE_DIRECTORY, &dev);

	if (r < 0)
		return r;
	tree->nodes[dev].mode = 0755;
	return dev_fill(tree, dev);
}

/* ---- the tree ---- */

/* One segment, the raw contents: what is behind their end is nothing that was unpacked. */
static const char *contents_check(const struct import *in, const struct tree *tree)
{
	struct stat st;

	if (fstat(in->raw_fd, &st) < 0)
		return "its contents cannot be looked at";
	if (tree->segment_count > 1 ||
	    (tree->segment_count && tree->segments[0].bytes > (uint64_t)st.st_size))
		return "contents that were not unpacked";
	return NULL;
}

static int tree_take(struct import *in, struct tree **ret)
{
	const char *why = "it is empty";
	struct stat st;
	void *bytes;
	int r = -EBADMSG;

	if (fstat(in->tree_fd, &st) < 0)
		return -errno;
	if (st.st_size) {
		bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, in->tree_fd, 0);
		if (bytes == MAP_FAILED)
			return -errno;
		r = tree_read(bytes, (size_t)st.st_size, ret, &why);
		(void)munmap(bytes, (size_t)st.st_size); /* it was all read */
	}
	if (r >= 0)
		why = contents_check(in, *ret);
	return r == -EBADMSG || (r >= 0 && why) ? import_fail(in, EIO, "tree", why) : r;
}

/* What is new takes its room once more, while the raw contents are still there. */
static int room_look(struct import *in, const struct tree *tree)
{
	uint64_t bytes = tree->segment_count ? tree->segments[0].bytes : 0;
	struct statfs fs;

	if (fstatfs(in->raw_fd, &fs) < 0)
		return -errno;
	if ((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < in->limits.free_min + bytes)
		return import_fail(in, ENOSPC, NULL,
				   "the disk of images would be full to its mark");
	return 0;
}

/* ---- what the image says ---- */

static bool ends(const char *text, size_t bytes)
{
	return memchr(text, 0, bytes) != NULL;
}

/* Of what the unpacker wrote only what a config says, and only where it is whole. */
static int record_take(const struct import *in, struct image_record *ret)
{
	const struct image_record *from = &in->record;
	auto_free char *text = malloc(IMAGE_RECORD_BYTES_MAX);

	if (!text)
		return -ENOMEM;
	memcpy(ret->source, from->source, sizeof ret->source);
	memcpy(ret->created, from->created, sizeof ret->created);
	memcpy(ret->user, from->user, sizeof ret->user);
	memcpy(ret->cwd, from->cwd, sizeof ret->cwd);
	memcpy(ret->strings, from->strings, sizeof ret->strings);
	ret->string_bytes = from->string_bytes;
	ret->env_count = from->env_count;
	ret->entrypoint_count = from->entrypoint_count;
	ret->cmd_count = from->cmd_count;
	ret->layers = from->layers;
	if (!ends(ret->source, sizeof ret->source) || !ends(ret->created, sizeof ret->created) ||
	    !ends(ret->user, sizeof ret->user) || !ends(ret->cwd, sizeof ret->cwd))
		return -EIO;
	return image_record_text(ret, text, IMAGE_RECORD_BYTES_MAX) < 0 ? -EIO : 0;
}

/* ---- the image ---- */

static int sealing(void *owner, uint64_t files, uint64_t bytes)
{
	(void)files; /* those of the archive are told */
	(void)bytes;
	return import_progress(owner);
}

static int image_make(struct import *in, const struct store *store, const struct sealed *sealed,
		      int out_fd)
{
	auto_close int file =
		openat(out_fd, UNFINISHED, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	int r;

	if (file < 0)
		return -errno;
	r = store_compose(store, &sealed->manifest, 1, file, &in->record);
	if (r >= 0 && (fsync(file) < 0 || renameat(out_fd, UNFINISHED, out_fd, IMPORT_RESULT) < 0))
		r = -errno;
	return r;
}

static int tree_seal(struct import *in, struct tree *tree, int out_fd, int images_fd)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	const struct seal seal = { .tree = tree,
				   .raw_fd = in->raw_fd,
				   .record = record,
				   .progress = sealing,
				   .owner = in };
	struct sealed sealed;
	struct store store;
	int r = record ? record_take(in, record) : -ENOMEM;

	if (r >= 0)
		r = store_open(images_fd, &store);
	if (r < 0)
		return r;
	r = store_seal(&store, &seal, &sealed);
	if (r >= 0) {
		in->report.frame.new_bytes = sealed.new_bytes;
		in->report.frame.shared_bytes = sealed.shared_bytes;
		r = image_make(in, &store, &sealed, out_fd);
	}
	store_close(&store);
	return r;
}

int import_seal(struct import *in, int out_fd, int images_fd)
{
	struct tree *tree = NULL;
	int r;

	in->report.step = "seal";
	r = tree_take(in, &tree);
	if (r >= 0)
		r = room_look(in, tree);
	if (r >= 0 && !(in->flags & IMAGE_LAYER))
		r = dev_make(tree);
	if (r >= 0)
		r = tree_seal(in, tree, out_fd, images_fd);
	tree_free(tree);
	return r < 0 ? import_fail(in, -r, NULL, strerror(-r)) : 0;
}
