/*
 * Marking and sweeping. Called by dsec-store. Must hold: the lock is held alone from the first look
 * to the last deletion, and all who make blobs or image files of them hold it shared until the file
 * is in their scratch: so whatever is needed is marked. What cannot be read is needed.
 */
#include "backends/store/gc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "backends/store/digest_set.h"
#include "backends/store/index.h"
#include "backends/store/manifest.h"
#include "backends/store/roots.h"
#include "engine/base/cleanup.h"

/* A composition is made, then mounted: so long nobody has it open. */
enum { COMPOSED_AGE_S = 60 };

struct collecting {
	const struct store *store;
	const struct gc_wish *wish;
	struct gc_result *result;
	struct digest_set kept;
	struct digest_set manifests; /* that are marked; all of them are images' */
	struct image_record *record;
};

static int kept_add(struct collecting *c, const uint8_t digest[DIGEST_BYTES])
{
	uint32_t at;
	int r = digest_set_add(&c->kept, digest, &at);

	return r < 0 ? r : 0;
}

static int segments_mark(struct collecting *c, const struct tree_segment *segments, uint32_t count)
{
	int r = 0;

	for (uint32_t i = 0; r >= 0 && i < count; i++) {
		r = kept_add(c, segments[i].digest);
		if (r >= 0)
			r = kept_add(c, segments[i].chunks);
	}
	return r;
}

/* 1: it is not there, or damaged: there is nothing behind it that anybody could use. */
static int manifest_mark(struct collecting *c, const uint8_t digest[DIGEST_BYTES])
{
	struct store_manifest manifest;
	int r = kept_add(c, digest);

	if (r >= 0)
		r = store_manifest_load(c->store, digest, &manifest);
	if (r == -ENOENT || r == -EBADMSG || r == -EFBIG)
		return 1;
	if (r < 0)
		return r;
	r = kept_add(c, manifest.config.digest);
	if (r >= 0)
		r = kept_add(c, manifest.tree.digest);
	if (r >= 0)
		r = segments_mark(c, manifest.segments, manifest.segment_count);
	store_manifest_done(&manifest);
	return r;
}

static int image_mark(struct collecting *c, const struct root *root)
{
	auto_free struct tree_segment *segments = NULL;
	bool incomplete = false;
	uint32_t count = 0, at;
	int r = image_segments_read(root->fd, &segments, &count);

	if (r >= 0)
		r = segments_mark(c, segments, count);
	for (uint32_t i = 0; r >= 0 && i < c->record->manifest_count; i++) {
		r = digest_set_add(&c->manifests, c->record->manifests[i], &at);
		if (r > 0)
			r = manifest_mark(c, c->record->manifests[i]);
		incomplete |= r > 0;
	}
	if (incomplete) {
		c->result->incomplete++;
		(void)snprintf(c->result->name, sizeof c->result->name, "%s", root->name);
	}
	return r < 0 ? r : 0;
}

/* ---- compositions ---- */

static bool parts_are_marked(const struct collecting *c)
{
	for (uint32_t i = 0; i < c->record->manifest_count; i++)
		if (digest_set_find(&c->manifests, c->record->manifests[i]) == DIGEST_SET_NONE)
			return false;
	return c->record->manifest_count > 0;
}

static bool parts_are_there(const struct collecting *c)
{
	for (uint32_t i = 0; i < c->record->manifest_count; i++) {
		struct store_manifest manifest;
		auto_close int tree = -1;

		if (store_manifest_load(c->store, c->record->manifests[i], &manifest) < 0)
			return false;
		(void)store_blob_open(c->store, manifest.tree.digest, &tree); /* or it stays -1 */
		store_manifest_done(&manifest);
		if (tree < 0)
			return false;
	}
	return c->record->manifest_count > 0;
}

/* A lease to write is given to the only one that has a file open: a mount has it open, too. */
static bool is_used(const struct root *root)
{
	struct timespec now;
	struct stat st;

	clock_gettime(CLOCK_REALTIME, &now);
	if (fstat(root->fd, &st) < 0 || now.tv_sec - st.st_mtim.tv_sec < COMPOSED_AGE_S)
		return true;
	if (fcntl(root->fd, F_SETLEASE, F_WRLCK) < 0)
		return true;
	return fcntl(root->fd, F_SETLEASE, F_UNLCK) < 0;
}

/* A cache: what is of images that are there stays, what somebody uses too. */
static int composed_mark(struct collecting *c, const struct root *root, bool damaged)
{
	if (!damaged && parts_are_marked(c))
		return 0;
	if (!damaged && parts_are_there(c) && is_used(root))
		return image_mark(c, root);
	c->result->composed_deleted++;
	if (!c->wish->dry_run && unlinkat(root->folder_fd, root->file, 0) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}

static int root_mark(void *owner, const struct root *root)
{
	struct collecting *c = owner;
	int r = image_record_read(root->fd, c->record);

	c->result->images += root->kind == ROOT_IMAGE;
	if (root->kind == ROOT_COMPOSED && (r >= 0 || r == -EBADMSG || r == -ENODATA))
		return composed_mark(c, root, r < 0);
	if (r == -ENODATA)
		return 0; /* made by other means: it needs nothing of ours */
	if (r >= 0)
		r = image_mark(c, root);
	if (r < 0)
		(void)snprintf(c->result->name, sizeof c->result->name, "%s", root->name);
	return r;
}

/* ---- sweeping ---- */

static int blob_sweep(struct collecting *c, int folder_fd, const char *name)
{
	uint8_t digest[DIGEST_BYTES];
	struct stat st;
	bool blob = digest_parse(name, digest);

	if (fstatat(folder_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(st.st_mode))
		return 0;
	if (blob) {
		c->result->blobs++;
		c->result->bytes += (uint64_t)st.st_blocks * 512;
	} else {
		c->result->temporaries++;
	}
	if (blob && digest_set_find(&c->kept, digest) != DIGEST_SET_NONE)
		return 0;
	c->result->deleted += blob;
	c->result->deleted_bytes += (uint64_t)st.st_blocks * 512;
	if (c->wish->dry_run || unlinkat(folder_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	return -errno;
}

static int blobs_sweep(struct collecting *c)
{
	int fd = openat(c->store->blobs_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		r = -errno;
		cleanup_close(&fd);
		return r;
	}
	while (r >= 0 && (errno = 0, entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		r = blob_sweep(c, dirfd(dir), entry->d_name);
		if (r >= 0 && c->wish->progress)
			r = c->wish->progress(c->wish->owner, c->result->blobs, c->result->bytes);
	}
	if (r >= 0 && errno)
		r = -errno;
	if (r >= 0 && fsync(dirfd(dir)) < 0)
		r = -errno;
	(void)closedir(dir); /* was only read */
	return r;
}

static int index_sweep(struct collecting *c)
{
	struct index index;
	int r = c->wish->dry_run ? 0 : index_open(c->store->fd, &index);

	if (r < 0 || c->wish->dry_run)
		return r;
	r = index_prune(&index, &c->kept);
	index_close(&index);
	return r;
}

int store_gc(const struct store *store, const struct gc_wish *wish, struct gc_result *ret)
{
	struct collecting c = { .store = store, .wish = wish, .result = ret };
	int r = store_lock_alone(store);

	memset(ret, 0, sizeof *ret);
	if (r < 0)
		return r;
	c.record = calloc(1, sizeof *c.record);
	r = c.record ? roots_walk(store->fd, root_mark, &c) : -ENOMEM;
	if (r >= 0)
		r = blobs_sweep(&c);
	if (r >= 0)
		r = index_sweep(&c);
	free(c.record);
	digest_set_done(&c.kept);
	digest_set_done(&c.manifests);
	return r;
}
