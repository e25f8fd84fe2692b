/*
 * What a regular file is to hold, and what is to be added to one. Called for the verbs write and
 * append. Must hold: nothing can be seen of it before the engine said that it is whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "backends/guest/files/files.h"

enum { MODE_FILE = 0644 };

static int write_all(int fd, const char *at, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, at, bytes);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n < 0)
			continue;
		at += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* The whole input into a file without a name, up to the engine's word that it is whole. */
static int input_take(struct files *f, int fd)
{
	long n;

	while ((n = talk_read(f, f->buffer, FILES_BUFFER_BYTES)) > 0) {
		int r;

		if (f->ask.bytes_max && f->received > f->ask.bytes_max)
			return files_failed(f, GUEST_STEP_WRITE, -EFBIG);
		r = write_all(fd, f->buffer, (size_t)n);
		if (r < 0)
			return files_failed(f, GUEST_STEP_WRITE, r);
	}
	if (n == 0)
		n = talk_commit(f);
	return n < 0 ? files_failed(f, GUEST_STEP_COMMIT, (int)n) : 0;
}

/* The old file, if there is one, may be written by who writes: replacing it needs no such right. */
static int old_check(struct files *f, const struct place *place, struct stat *ret)
{
	int r;

	if (fstatat(place->fd, place->name, ret, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (f->ask.flags & DSEC_FILE_EXCLUSIVE)
		return -EEXIST;
	r = S_ISLNK(ret->st_mode) ? -ELOOP : entry_is_regular(ret);
	if (r == 0 && faccessat(place->fd, place->name, W_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	return r < 0 ? r : 1;
}

/* An old file's owner and mode stay, unless a mode was asked for. */
static int attributes_put(struct files *f, int fd, const struct stat *old)
{
	mode_t mode = f->ask.flags & DSEC_FILE_MODE ? f->ask.mode : MODE_FILE;

	if (old) {
		/* Who may not give files away becomes the owner. */
		if (fchown(fd, old->st_uid, old->st_gid) < 0 && errno != EPERM)
			return -errno;
		if (!(f->ask.flags & DSEC_FILE_MODE))
			mode = old->st_mode & 0777;
	}
	return fchmod(fd, mode) < 0 ? -errno : 0;
}

static int place_open(struct files *f, struct place *ret)
{
	int r = f->ask.flags & DSEC_FILE_NO_FOLLOW ? path_place(f, f->path, ret) :
						     path_place_followed(f, f->path, ret);

	return r < 0 ? files_failed(f, GUEST_STEP_PATH, r == -EBUSY ? -EISDIR : r) : 0;
}

static int write_at(struct files *f, const struct place *place)
{
	struct stat old;
	auto_close int fd = -1;
	int r = old_check(f, place, &old);

	if (r < 0)
		return files_failed(f, GUEST_STEP_OPEN, r);
	fd = temporary_open(place);
	if (fd < 0)
		return files_failed(f, GUEST_STEP_OPEN, fd);
	r = attributes_put(f, fd, r ? &old : NULL);
	if (r < 0)
		return files_failed(f, GUEST_STEP_WRITE, r);
	r = input_take(f, fd);
	if (r < 0)
		return r;
	r = temporary_put(fd, place, f->ask.flags & DSEC_FILE_EXCLUSIVE);
	f->done.bytes = f->received;
	return r < 0 ? files_failed(f, GUEST_STEP_RENAME, r) : 0;
}

int verb_write(struct files *f)
{
	struct place place;
	int r = place_open(f, &place);

	if (r == 0) {
		r = write_at(f, &place);
		place_done(&place);
	}
	return r;
}

/* Room first, so that a full disk is told before anything was added. */
static int append_put(struct files *f, int fd, int from_fd)
{
	struct stat st;

	if (!f->received)
		return 0;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, st.st_size, (off_t)f->received) < 0 &&
	    errno != EOPNOTSUPP)
		return -errno;
	while (f->done.bytes < f->received) {
		ssize_t n = pread(from_fd, f->buffer, FILES_BUFFER_BYTES, (off_t)f->done.bytes);
		int r = n < 0 ? -errno : n == 0 ? -EIO : write_all(fd, f->buffer, (size_t)n);

		if (r < 0)
			return r;
		f->done.bytes += (uint64_t)n;
	}
	return 0;
}

/* Opened without waiting for anybody, made if it is not there. */
static int append_open(struct files *f, const struct place *place)
{
	const int flags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	const mode_t mode = f->ask.flags & DSEC_FILE_MODE ? f->ask.mode : MODE_FILE;
	struct stat st;
	int r, fd;

	r = old_check(f, place, &st);
	if (r < 0)
		return r;
	fd = openat(place->fd, place->name, flags | O_CREAT, mode);
	if (fd < 0)
		return -errno;
	r = fstat(fd, &st) < 0 ? -errno : entry_is_regular(&st);
	if (r < 0)
		cleanup_close(&fd);
	return r < 0 ? r : fd;
}

static int append_at(struct files *f, const struct place *place)
{
	struct stat old;
	auto_close int staged_fd = -1, fd = -1;
	int r = old_check(f, place, &old);

	if (r < 0)
		return files_failed(f, GUEST_STEP_OPEN, r);
	staged_fd = temporary_open(place);
	if (staged_fd < 0)
		return files_failed(f, GUEST_STEP_OPEN, staged_fd);
	r = input_take(f, staged_fd);
	if (r < 0)
		return r;
	fd = append_open(f, place);
	if (fd < 0)
		return files_failed(f, GUEST_STEP_OPEN, fd);
	r = append_put(f, fd, staged_fd);
	return r < 0 ? files_failed(f, GUEST_STEP_WRITE, r) : 0;
}

int verb_append(struct files *f)
{
	struct place place;
	int r = place_open(f, &place);

	if (r == 0) {
		r = append_at(f, &place);
		place_done(&place);
	}
	return r;
}
