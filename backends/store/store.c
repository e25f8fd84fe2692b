/*
 * The store as a directory: what is in it, its lock, its blobs. Called by whoever makes, checks or
 * copies images. Must hold: a blob has its name only when it is whole and synced; what is read
 * whole is checked against its name.
 */
#include "backends/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "backends/store/batch.h"
#include "backends/store/file.h"
#include "engine/base/cleanup.h"

#define LAYOUT	    "oci-layout"
#define LAYOUT_TEXT "{\"imageLayoutVersion\":\"1.0.0\"}"

static int folder_make(int parent_fd, const char *name, int *ret_fd)
{
	int fd;

	if (mkdirat(parent_fd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

/* Whole or not there. */
static int layout_make(int directory_fd)
{
	auto_close int fd = -1;
	int r;

	if (faccessat(directory_fd, LAYOUT, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	fd = openat(directory_fd, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644);
	r = fd < 0 ? -errno : file_write(fd, LAYOUT_TEXT, sizeof LAYOUT_TEXT - 1, 0);
	if (r >= 0 && linkat(fd, "", directory_fd, LAYOUT, AT_EMPTY_PATH) < 0 && errno != EEXIST)
		r = -errno;
	return r;
}

static int lock_take(int fd, int how)
{
	while (flock(fd, how) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

int store_open(int directory_fd, struct store *ret)
{
	auto_close int blobs = -1;
	auto_close int all = -1;
	auto_close int lock = -1;
	int r = folder_make(directory_fd, "blobs", &blobs);

	if (r >= 0)
		r = folder_make(blobs, "sha256", &all);
	if (r >= 0)
		r = layout_make(directory_fd);
	if (r < 0)
		return r;
	lock = openat(directory_fd, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	r = lock < 0 ? -errno : lock_take(lock, LOCK_SH);
	if (r < 0)
		return r;
	ret->fd = directory_fd;
	ret->blobs_fd = take_fd(&all);
	ret->lock_fd = take_fd(&lock);
	return 0;
}

int store_lock_alone(const struct store *store)
{
	int r = lock_take(store->lock_fd, LOCK_EX | LOCK_NB);

	return r == -EWOULDBLOCK ? -EBUSY : r;
}

void store_close(struct store *store)
{
	cleanup_close(&store->blobs_fd);
	cleanup_close(&store->lock_fd);
	store->blobs_fd = store->lock_fd = -1;
}

/* ---- blobs ---- */

int store_blob_open(const struct store *store, const uint8_t digest[DIGEST_BYTES], int *ret_fd)
{
	char name[DIGEST_HEX_BYTES];
	struct stat st;

	digest_hex(digest, name);
	auto_close int fd =
		openat(store->blobs_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	*ret_fd = take_fd(&fd);
	return 0;
}

int store_blob_read(const struct store *store, const uint8_t digest[DIGEST_BYTES], size_t max,
		    void **ret, size_t *ret_bytes)
{
	uint8_t found[DIGEST_BYTES];
	struct stat st;
	int fd, r = store_blob_open(store, digest, &fd);

	if (r < 0)
		return r;
	auto_close int file = fd;
	if (fstat(file, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size > max)
		return -EFBIG;
	auto_free char *bytes = malloc((size_t)st.st_size + 1);
	if (!bytes)
		return -ENOMEM;
	r = file_read(file, bytes, (size_t)st.st_size, 0);
	if (r < 0)
		return r;
	digest_of(bytes, (size_t)st.st_size, found);
	if (memcmp(found, digest, DIGEST_BYTES) != 0)
		return -EBADMSG;
	bytes[st.st_size] = 0;
	*ret = take_ptr(bytes);
	*ret_bytes = (size_t)st.st_size;
	return 0;
}

int store_blob_write(const struct store *store, const void *bytes, size_t count,
		     uint8_t ret[DIGEST_BYTES])
{
	struct batch *batch;
	int r = batch_new(store->blobs_fd, &batch);

	if (r < 0)
		return r;
	r = batch_write(batch, bytes, count, ret);
	if (r >= 0)
		r = batch_commit(batch);
	batch_free(batch);
	return r;
}
