/*
 * A remote that is a directory: PATH/blobs/sha256/HEX on whatever is mounted there. Called by
 * remote.c and from the shard's loop.
 *
 * Must hold: every call that may ask the file system is the ring's, so a mount that hangs holds
 * threads of the kernel's and never the shard; an op's memory and descriptor stay until the op is
 * over, whether anybody waits for it or not; what was read goes to a buffer of ours first.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/cleanup.h"
#include "engine/base/io.h"
#include "engine/serve/remote_class.h"
#include "engine/shard.h"

#define BLOBS "/blobs/sha256"

/* More than flights: one that is not used can always be found, unless opening or closing hangs. */
enum { FILES = 64 };

enum file_state {
	FILE_NONE,
	FILE_OPENING, /* its folder first, where that is not open */
	FILE_LOOKING, /* at its type and size */
	FILE_OPEN,
	FILE_CLOSING,
};

struct file {
	struct io_op op;
	struct directory *directory;
	enum file_state state;
	int fd;
	uint32_t users; /* flights */
	bool is_bad;	/* a read failed: it is opened anew when nobody uses it */
	uint64_t used;	/* the order of use */
	uint64_t bytes;
	struct statx stat;
	uint8_t blob[DIGEST_BYTES];
	char name[DIGEST_HEX_BYTES];
};

struct flight {
	struct io_op op;
	struct directory *directory;
	struct file *file;	  /* NULL: a free one */
	struct remote_read *read; /* NULL: nobody waits for it any more */
	char *buffer;
	uint64_t offset;
	uint32_t bytes, got;
	bool is_reading;
};

struct directory {
	struct remote remote;
	struct file files[FILES];
	struct flight flights[REMOTE_FLIGHTS];
	struct io_op folder_op;
	int folder_fd;
	bool folder_opening, folder_bad; /* bad: opened anew once nothing is opened by it */
	bool is_closed;
	uint64_t uses;
	char path[]; /* of the folder */
};

static void flight_read(struct flight *flight);
static void file_open(struct file *file);

/* ---- ends ---- */

static bool directory_is_busy(const struct directory *d)
{
	for (const struct file *f = d->files; f < d->files + FILES; f++)
		if (f->state != FILE_NONE && f->state != FILE_OPEN)
			return true;
	for (const struct flight *f = d->flights; f < d->flights + REMOTE_FLIGHTS; f++)
		if (f->file)
			return true;
	return d->folder_opening;
}

/* With the last op of a remote that was closed. */
static bool directory_ends(struct directory *d)
{
	if (!d->is_closed || directory_is_busy(d))
		return false;
	for (struct file *f = d->files; f < d->files + FILES; f++)
		if (f->state == FILE_OPEN)
			(void)close(f->fd); /* was only read */
	if (d->folder_fd >= 0)
		(void)close(d->folder_fd); /* is only a place */
	free(d);
	return true;
}

/* An op is over. */
static void directory_went_on(struct directory *d)
{
	if (!directory_ends(d))
		remote_next(&d->remote);
}

static void file_closed(struct io_op *op, int res)
{
	struct file *file = container_of(op, struct file, op);

	(void)res; /* the descriptor is gone either way */
	file->state = FILE_NONE;
	directory_went_on(file->directory);
}

static void file_close(struct file *file)
{
	file->state = FILE_CLOSING;
	file->op.done = file_closed;
	io_close_fd(file->directory->remote.shard->io, &file->op, take_fd(&file->fd));
}

/* Its buffer and its file are nobody's. */
static void flight_free(struct flight *flight)
{
	struct file *file = flight->file;

	free(take_ptr(flight->buffer));
	flight->file = NULL;
	flight->is_reading = false;
	file->users--;
	if (!file->users && file->is_bad && file->state == FILE_OPEN)
		file_close(file);
}

static void flight_end(struct flight *flight, int result)
{
	struct directory *d = flight->directory;
	struct remote_read *read = flight->read;

	flight->read = NULL;
	if (read && result > 0)
		memcpy(read->buffer, flight->buffer, (size_t)result);
	flight_free(flight);
	if (read)
		remote_end(&d->remote, read, result);
}

/* ---- opening ---- */

static void file_failed(struct file *file, int error)
{
	struct directory *d = file->directory;

	/* The folder may be that of a mount that went. */
	d->folder_bad = true;
	file->is_bad = true;
	for (struct flight *f = d->flights; f < d->flights + REMOTE_FLIGHTS; f++)
		if (f->file == file)
			flight_end(f, error);
}

static void file_looked(struct io_op *op, int res)
{
	struct file *file = container_of(op, struct file, op);
	struct directory *d = file->directory;

	file->state = FILE_OPEN;
	if (res == 0 && !S_ISREG(file->stat.stx_mode))
		res = -EIO;
	/* Of a file the ring's reads may wait, and must. */
	if (res == 0 && fcntl(file->fd, F_SETFL, 0) < 0)
		res = -errno;
	file->bytes = file->stat.stx_size;
	if (res < 0)
		file_failed(file, res);
	/* Nobody may have waited for it by now. */
	if (file->state == FILE_OPEN && file->is_bad && !file->users)
		file_close(file);
	for (struct flight *f = d->flights; res == 0 && f < d->flights + REMOTE_FLIGHTS; f++)
		if (f->file == file)
			flight_read(f);
	directory_went_on(d);
}

static void file_opened(struct io_op *op, int res)
{
	struct file *file = container_of(op, struct file, op);

	if (res < 0) {
		file->state = FILE_NONE;
		file_failed(file, res);
		directory_went_on(file->directory);
		return;
	}
	file->fd = res;
	file->state = FILE_LOOKING;
	file->op.done = file_looked;
	io_stat(file->directory->remote.shard->io, &file->op, file->fd, &file->stat);
}

static void folder_opened(struct io_op *op, int res)
{
	struct directory *d = container_of(op, struct directory, folder_op);

	d->folder_opening = false;
	d->folder_bad = false;
	d->folder_fd = res < 0 ? -1 : res;
	for (struct file *f = d->files; f < d->files + FILES; f++) {
		if (f->state != FILE_OPENING)
			continue;
		if (res >= 0) {
			file_open(f);
			continue;
		}
		f->state = FILE_NONE;
		file_failed(f, res);
	}
	directory_went_on(d);
}

static bool folder_is_used(const struct directory *d)
{
	for (const struct file *f = d->files; f < d->files + FILES; f++)
		if (f->state == FILE_OPENING)
			return true;
	return false;
}

/* Before a file is OPENING. */
static void folder_renew(struct directory *d)
{
	if (d->folder_bad && d->folder_fd >= 0 && !folder_is_used(d)) {
		(void)close(d->folder_fd); /* is only a place: that asks no file system */
		d->folder_fd = -1;
	}
	if (d->folder_fd >= 0 || d->folder_opening)
		return;
	d->folder_opening = true;
	d->folder_op.done = folder_opened;
	io_open_folder(d->remote.shard->io, &d->folder_op, AT_FDCWD, d->path);
}

static void file_open(struct file *file)
{
	struct directory *d = file->directory;

	file->op.done = file_opened;
	io_open_file(d->remote.shard->io, &file->op, d->folder_fd, file->name);
}

/* The one of this blob, else a place for it: NULL when all are used or are being closed. */
static struct file *file_find(struct directory *d, const uint8_t *blob)
{
	struct file *free_one = NULL, *oldest = NULL;
	bool closing = false;

	for (struct file *f = d->files; f < d->files + FILES; f++) {
		if (f->state == FILE_NONE)
			free_one = f;
		closing |= f->state == FILE_CLOSING;
		if (f->state == FILE_NONE || f->state == FILE_CLOSING)
			continue;
		if (!f->is_bad && memcmp(f->blob, blob, DIGEST_BYTES) == 0)
			return f;
		if (f->state == FILE_OPEN && !f->users && (!oldest || f->used < oldest->used))
			oldest = f;
	}
	if (!free_one && oldest && !closing)
		file_close(oldest);
	return free_one;
}

static void file_begin(struct directory *d, struct file *file, const uint8_t *blob)
{
	*file = (struct file){ .directory = d, .fd = -1 };
	memcpy(file->blob, blob, DIGEST_BYTES);
	digest_hex(blob, file->name);
	folder_renew(d);
	file->state = FILE_OPENING;
	if (!d->folder_opening)
		file_open(file);
}

/* ---- reading ---- */

/* More may be missing than the file has: then it was cut since, and what is there counts. */
static void flight_went_on(struct io_op *op, int res)
{
	struct flight *flight = container_of(op, struct flight, op);
	struct directory *d = flight->directory;

	flight->is_reading = false;
	if (res > 0) {
		flight->got += (uint32_t)res;
		if (flight->read && flight->got < flight->bytes) {
			flight_read(flight);
			return;
		}
		res = 0;
	}
	if (res < 0 && res != -ECANCELED)
		flight->file->is_bad = true;
	flight_end(flight, res < 0 ? res : (int)flight->got);
	directory_went_on(d);
}

static void flight_read(struct flight *flight)
{
	const struct file *file = flight->file;
	struct io_range range;

	if (flight->offset >= file->bytes) {
		flight_end(flight, 0);
		return;
	}
	if (flight->bytes > file->bytes - flight->offset)
		flight->bytes = (uint32_t)(file->bytes - flight->offset);
	flight->op.done = flight_went_on;
	flight->is_reading = true;
	range = (struct io_range){
		.buffer = flight->buffer + flight->got,
		.bytes = flight->bytes - flight->got,
		.offset = flight->offset + flight->got,
	};
	io_read_far(flight->directory->remote.shard->io, &flight->op, file->fd, &range);
}

/* ---- as a remote ---- */

static struct directory *directory_of(struct remote *remote)
{
	return container_of(remote, struct directory, remote);
}

static int directory_check(const char *where, const char **ret_why)
{
	if (*where != '/')
		*ret_why = "dir: wants an absolute path";
	else if (strlen(where) + sizeof BLOBS + DIGEST_HEX_BYTES > PATH_MAX)
		*ret_why = "its path is too long";
	else
		return 0;
	return -EINVAL;
}

static int directory_open(const char *where, struct shard *shard, struct remote **ret)
{
	const size_t bytes = strlen(where) + sizeof BLOBS;
	struct directory *d = calloc(1, sizeof *d + bytes);

	if (!d)
		return -ENOMEM;
	remote_init(&d->remote, &remote_directory, shard);
	d->folder_fd = -1;
	(void)snprintf(d->path, bytes, "%s" BLOBS, where);
	*ret = &d->remote;
	return 0;
}

static int directory_start(struct remote *remote, struct remote_read *read)
{
	struct directory *d = directory_of(remote);
	struct flight *flight = d->flights;
	struct file *file;
	char *buffer;

	while (flight < d->flights + REMOTE_FLIGHTS && flight->file)
		flight++;
	if (flight == d->flights + REMOTE_FLIGHTS)
		return -EAGAIN;
	file = file_find(d, read->blob);
	if (!file)
		return -EAGAIN;
	buffer = malloc(read->bytes);
	if (!buffer)
		return -ENOMEM;
	if (file->state == FILE_NONE)
		file_begin(d, file, read->blob);
	file->users++;
	file->used = ++d->uses;
	*flight = (struct flight){
		.directory = d,
		.file = file,
		.read = read,
		.buffer = buffer,
		.offset = read->offset,
		.bytes = read->bytes,
	};
	read->flight = flight;
	if (file->state == FILE_OPEN)
		flight_read(flight);
	return 0;
}

/* One that reads stays until the kernel has let go of its buffer. */
static void directory_drop(struct remote *remote, struct remote_read *read)
{
	struct flight *flight = read->flight;

	flight->read = NULL;
	if (flight->is_reading)
		io_cancel(remote->shard->io, &flight->op);
	else
		flight_free(flight);
}

static void directory_doubt(struct remote *remote, const uint8_t *blob)
{
	struct directory *d = directory_of(remote);

	for (struct file *f = d->files; f < d->files + FILES; f++) {
		if (f->state != FILE_OPEN || memcmp(f->blob, blob, DIGEST_BYTES) != 0)
			continue;
		f->is_bad = true;
		if (!f->users)
			file_close(f);
	}
}

static void directory_close(struct remote *remote)
{
	struct directory *d = directory_of(remote);

	d->is_closed = true;
	(void)directory_ends(d); /* or with its last op */
}

const struct remote_class remote_directory = {
	.scheme = "dir:",
	.check = directory_check,
	.open = directory_open,
	.start = directory_start,
	.drop = directory_drop,
	.doubt = directory_doubt,
	.close = directory_close,
};
