/*
 * What a regular file holds. Called for the verb read. Must hold: nothing but a regular file is
 * opened for reading, and no more of it is read than it had when it was opened, so a file that
 * grows for ever ends too. Files of proc say that they hold nothing: those are read to their end,
 * up to a bound.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "backends/guest/files/files.h"

enum { UNSIZED_BYTES_MAX = 16 << 20 };

static int read_open(struct files *f, struct stat *ret)
{
	const int flags = O_RDONLY | O_NONBLOCK;
	const int follow = f->ask.flags & DSEC_FILE_NO_FOLLOW ? O_NOFOLLOW : 0;
	auto_close int path_fd = path_open(f, f->path, O_PATH | follow), fd = -1;
	int r;

	/* A device or a FIFO may do something when it is opened. */
	if (path_fd < 0)
		return path_fd;
	if (fstat(path_fd, ret) < 0)
		return -errno;
	r = S_ISLNK(ret->st_mode) ? -ELOOP : entry_is_regular(ret);
	if (r < 0)
		return r;
	fd = path_open(f, f->path, flags | follow);
	if (fd < 0)
		return fd;
	/* It may be another by now. */
	if (fstat(fd, ret) < 0)
		return -errno;
	r = entry_is_regular(ret);
	return r < 0 ? r : take_fd(&fd);
}

static uint64_t read_amount(const struct files *f, uint64_t size)
{
	uint64_t bytes = size ? size : f->ask.offset + UNSIZED_BYTES_MAX;

	bytes = bytes > f->ask.offset ? bytes - f->ask.offset : 0;
	return f->ask.bytes_max && f->ask.bytes_max < bytes ? f->ask.bytes_max : bytes;
}

int verb_read(struct files *f)
{
	struct stat st;
	auto_close int fd = read_open(f, &st);
	uint64_t left;

	if (fd < 0)
		return files_failed(f, GUEST_STEP_OPEN, fd);
	if (f->ask.offset > INT64_MAX - UNSIZED_BYTES_MAX)
		return files_failed(f, GUEST_STEP_READ, -EINVAL);
	left = read_amount(f, (uint64_t)st.st_size);
	while (left) {
		size_t wanted = left < FILES_BUFFER_BYTES ? (size_t)left : FILES_BUFFER_BYTES;
		ssize_t n = pread(fd, f->buffer, wanted, (off_t)(f->ask.offset + f->done.bytes));
		int r;

		if (n < 0)
			return files_failed(f, GUEST_STEP_READ, -errno);
		if (n == 0) /* it shrank */
			break;
		r = talk_write(f, f->buffer, (size_t)n);
		if (r < 0)
			return r == -EPIPE ? -ECANCELED : files_failed(f, GUEST_STEP_READ, r);
		f->done.bytes += (uint64_t)n;
		left -= (uint64_t)n;
	}
	return 0;
}
