/*
 * Bytes of layouts. Called by push and pull. Must hold: of a directory only regular files beneath
 * it are read, of the size that was promised; what comes by dsec-fetch has the size that was asked
 * for, or it is an error.
 */
#include "backends/store/source.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/store/fetch.h"
#include "backends/store/file.h"
#include "backends/store/layout.h"
#include "backends/store/transfer.h"
#include "engine/base/cleanup.h"

int source_index(const struct source *source, char **ret, size_t *ret_bytes, const char **ret_why)
{
	int r;

	if (source->fetch)
		return fetch_index(source->fetch, LAYOUT_INDEX_BYTES_MAX, ret, ret_bytes, ret_why);
	r = layout_text_read(source->layout_fd, LAYOUT_INDEX, LAYOUT_INDEX_BYTES_MAX, ret,
			     ret_bytes);
	*ret_why = r == -ENOENT ? "no index.json: no image layout" :
		   r < 0	? "index.json: over 4 MiB, or no file" :
				  NULL;
	return r;
}

int source_open(struct source *source, const char **ret_why)
{
	if (source->fetch)
		return 0;
	*ret_why = "no blobs/sha256: no image layout";
	source->blobs_fd = openat(source->layout_fd, LAYOUT_BLOBS,
				  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (source->blobs_fd < 0)
		return -errno;
	*ret_why = NULL;
	return 0;
}

void source_close(struct source *source)
{
	cleanup_close(&source->blobs_fd);
	source->blobs_fd = -1;
}

int source_file_open(int blobs_fd, const struct store_blob *blob, int *ret_fd, const char **ret_why)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	char name[DIGEST_HEX_BYTES];
	struct stat st;

	digest_hex(blob->digest, name);
	*ret_why = "a blob that is not there";
	auto_close int fd = (int)syscall(SYS_openat2, blobs_fd, name, &how, sizeof how);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	*ret_why = "a blob that is no file of the size that its descriptor says";
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != blob->bytes)
		return -EBADMSG;
	*ret_fd = take_fd(&fd);
	return 0;
}

int source_blob(const struct source *source, const struct store_blob *blob, struct stream *ret,
		const char **ret_why)
{
	*ret = (struct stream){ .fd = -1, .fetch = source->fetch };
	if (!source->fetch)
		return source_file_open(source->blobs_fd, blob, &ret->fd, ret_why);
	return fetch_blob(source->fetch, blob->digest, blob->bytes, ret_why);
}

int stream_read(struct stream *stream, void *ret, size_t count, const char **ret_why)
{
	int r;

	if (stream->fetch)
		return fetch_read(stream->fetch, ret, count, ret_why);
	*ret_why = NULL;
	r = file_read(stream->fd, ret, count, stream->at);
	stream->at += count;
	return r;
}

void stream_close(struct stream *stream)
{
	cleanup_close(&stream->fd);
	stream->fd = -1;
}
