/*
 * Bytes of files. Called by all of the store. Must hold: whoever asks for so many bytes has so many
 * or an error; no position of a file is used or changed.
 */
#include "backends/store/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/cleanup.h"

enum { READ_BYTES = 1 << 20 };

int file_write(int fd, const void *bytes, size_t count, uint64_t at)
{
	const char *from = bytes;

	while (count) {
		ssize_t n = pwrite(fd, from, count, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		from += n;
		count -= (size_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

int file_read(int fd, void *ret, size_t count, uint64_t at)
{
	char *to = ret;

	while (count) {
		ssize_t n = pread(fd, to, count, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EBADMSG;
		to += n;
		count -= (size_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

int file_digest(int fd, uint8_t ret[DIGEST_BYTES], uint64_t *ret_bytes)
{
	auto_free char *bytes = malloc(READ_BYTES);
	struct digest *digest = bytes ? digest_new() : NULL;
	uint64_t at = 0;
	int r = digest ? 0 : -ENOMEM;

	while (r >= 0) {
		ssize_t n = pread(fd, bytes, READ_BYTES, (off_t)at);

		if (n == 0)
			break;
		if (n < 0 && errno != EINTR)
			r = -errno;
		if (n < 0)
			continue;
		digest_add(digest, bytes, (size_t)n);
		at += (uint64_t)n;
	}
	if (r >= 0) {
		digest_take(digest, ret);
		*ret_bytes = at;
	}
	digest_free(digest);
	return r;
}
