/*
 * New blobs on their way into the store. Called by the store, the segment writer and the sealer.
 * Must hold: a name is given to a file that is synced and only then; a name that is there already
 * is left, for others may rely on it, unless its file is not of the size it must have.
 */
#include "backends/store/batch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/store/file.h"
#include "engine/base/cleanup.h"

struct pending {
	int fd;
	uint8_t digest[DIGEST_BYTES];
};

struct batch {
	int blobs_fd;
	uint32_t count;
	struct pending pending[BATCH_FILES_MAX];
};

int batch_new(int blobs_fd, struct batch **ret)
{
	struct batch *batch = calloc(1, sizeof *batch);

	if (!batch)
		return -ENOMEM;
	batch->blobs_fd = blobs_fd;
	*ret = batch;
	return 0;
}

static void pending_drop(struct batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++)
		cleanup_close(&batch->pending[i].fd);
	batch->count = 0;
}

void batch_free(struct batch *batch)
{
	if (!batch)
		return;
	pending_drop(batch);
	free(batch);
}

int batch_file(const struct batch *batch, int *ret_fd)
{
	int fd = openat(batch->blobs_fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0644);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

/* 1: there is one of that name, which is as large as it must be. */
static int is_there(const struct batch *batch, const char *name, int fd)
{
	struct stat there, ours;

	if (fstat(fd, &ours) < 0)
		return -errno;
	if (fstatat(batch->blobs_fd, name, &there, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	return S_ISREG(there.st_mode) && there.st_size == ours.st_size;
}

int batch_keep(struct batch *batch, int fd, const uint8_t digest[DIGEST_BYTES])
{
	auto_close int owned = fd;
	char name[DIGEST_HEX_BYTES];
	int r;

	digest_hex(digest, name);
	r = is_there(batch, name, fd);
	if (r != 0)
		return r < 0 ? r : 0;
	for (uint32_t i = 0; i < batch->count; i++)
		if (!memcmp(batch->pending[i].digest, digest, DIGEST_BYTES))
			return 0;
	if (batch->count == BATCH_FILES_MAX) {
		r = batch_commit(batch);
		if (r < 0)
			return r;
	}
	/* It is on its way to the disk while the next is made. */
	(void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	batch->pending[batch->count].fd = take_fd(&owned);
	memcpy(batch->pending[batch->count++].digest, digest, DIGEST_BYTES);
	return 0;
}

int batch_write(struct batch *batch, const void *bytes, size_t count, uint8_t ret[DIGEST_BYTES])
{
	uint8_t digest[DIGEST_BYTES];
	int fd = -1, r;

	digest_of(bytes, count, digest);
	r = batch_file(batch, &fd);
	if (r < 0)
		return r;
	auto_close int file = fd;
	r = file_write(file, bytes, count, 0);
	if (r >= 0)
		r = batch_keep(batch, take_fd(&file), digest);
	if (r >= 0)
		memcpy(ret, digest, DIGEST_BYTES);
	return r;
}

int batch_adopt(struct batch *batch, int fd, uint8_t ret[DIGEST_BYTES], uint64_t *ret_bytes)
{
	auto_close int file = fd;
	uint8_t digest[DIGEST_BYTES];
	uint64_t bytes;
	int r = file_digest(file, digest, &bytes);

	if (r >= 0)
		r = batch_keep(batch, take_fd(&file), digest);
	if (r < 0)
		return r;
	memcpy(ret, digest, DIGEST_BYTES);
	*ret_bytes = bytes;
	return 0;
}

/* One of that name that is of another size is damaged: it gives way. */
static int name_give(const struct batch *batch, const struct pending *one)
{
	char name[DIGEST_HEX_BYTES];
	int r;

	digest_hex(one->digest, name);
	for (int tries = 0; tries < 3; tries++) {
		if (linkat(one->fd, "", batch->blobs_fd, name, AT_EMPTY_PATH) == 0)
			return 0;
		if (errno != EEXIST)
			return -errno;
		r = is_there(batch, name, one->fd);
		if (r != 0)
			return r < 0 ? r : 0;
		if (unlinkat(batch->blobs_fd, name, 0) < 0 && errno != ENOENT)
			return -errno;
	}
	return -EEXIST;
}

/* All of the bytes first, so that what a file system commits with one is committed with all. */
static int batch_sync(const struct batch *batch)
{
	const unsigned whole = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
			       SYNC_FILE_RANGE_WAIT_AFTER;
	int r = 0;

	/* An error that this is told of fsync() is not. */
	for (uint32_t i = 0; r >= 0 && i < batch->count; i++)
		r = sync_file_range(batch->pending[i].fd, 0, 0, whole) < 0 ? -errno : 0;
	for (uint32_t i = 0; r >= 0 && i < batch->count; i++)
		r = fsync(batch->pending[i].fd) < 0 ? -errno : 0;
	return r;
}

int batch_commit(struct batch *batch)
{
	int r = batch_sync(batch);

	for (uint32_t i = 0; r >= 0 && i < batch->count; i++)
		r = name_give(batch, &batch->pending[i]);
	if (r >= 0 && batch->count && fsync(batch->blobs_fd) < 0)
		r = -errno;
	pending_drop(batch);
	return r;
}
