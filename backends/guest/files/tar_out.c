/*
 * A file or a tree as tar (pax). Called for the verb read with DSEC_FILE_TAR. Must hold: what is
 * read is a regular file, found by name in a folder that is open; of each no more than it had when
 * it was opened. What is no file, folder or link is left out and said. Links are written as links,
 * and so are the further names of a file, as long as the first ones fit into bounded memory.
 */
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "backends/guest/files/attributes.h"
#include "backends/guest/files/files.h"

enum {
	DEPTH_MAX = 500,
	EXTENTS_MAX = 1024,
	HOLE_BYTES = 1 << 28,
	NAMES_BYTES_MAX = 16 << 20, /* kept of files that have several names */
	NAME_COST_BYTES = 2048,	    /* of one, beside the name itself */
};

struct tar_out {
	struct files *files;
	struct archive *archive;
	struct archive_entry *entry;
	struct archive_entry_linkresolver *names; /* the first one of each file with several */
	size_t names_bytes;
	const char *hole; /* HOLE_BYTES of zeros, never touched where libarchive leaves holes out */
	int lost;	  /* the engine has gone: why */
	char name[GUEST_PATH_BYTES_MAX + NAME_MAX + 2];
};

struct found {
	int dir_fd;
	const char *name;
	struct stat st;
};

static la_ssize_t out_write(struct archive *archive, void *owner, const void *bytes, size_t count)
{
	struct tar_out *out = owner;

	(void)archive;
	out->lost = talk_write(out->files, bytes, count);
	if (!out->lost && out->files->ask.bytes_max) {
		if (count > out->files->ask.bytes_max)
			out->lost = -EFBIG;
		else
			out->files->ask.bytes_max -= count;
	}
	return out->lost ? -1 : (la_ssize_t)count;
}

static int out_failed(struct tar_out *out)
{
	int error = archive_errno(out->archive);

	if (out->lost)
		return out->lost == -EPIPE ? -ECANCELED : out->lost;
	return error > 0 && error < 4096 ? -error : -EIO;
}

static void entry_describe(struct tar_out *out, const struct found *found)
{
	const struct stat *st = &found->st;

	archive_entry_set_pathname(out->entry, out->name);
	archive_entry_set_mode(out->entry, st->st_mode);
	archive_entry_set_uid(out->entry, st->st_uid);
	archive_entry_set_gid(out->entry, st->st_gid);
	archive_entry_set_mtime(out->entry, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
	archive_entry_set_size(out->entry, S_ISREG(st->st_mode) ? st->st_size : 0);
}

static int header_write(struct tar_out *out)
{
	/* A warning: the name is no UTF-8, and goes as it is. */
	if (archive_write_header(out->archive, out->entry) < ARCHIVE_WARN)
		return out_failed(out);
	out->files->done.entries++;
	return 0;
}

static int bytes_put(struct tar_out *out, const char *bytes, size_t count)
{
	return archive_write_data(out->archive, bytes, count) != (la_ssize_t)count ?
		       out_failed(out) :
		       0;
}

/* ---- regular files ---- */

/* What it has besides holes; past EXTENTS_MAX the rest counts as data. */
static void extents_find(struct tar_out *out, int fd, off_t size)
{
	off_t end = 0;

	for (int i = 0; i < EXTENTS_MAX && end < size; i++) {
		off_t begin = lseek(fd, end, SEEK_DATA);

		if (begin < 0 || begin >= size)
			begin = size;
		end = begin < size && i < EXTENTS_MAX - 1 ? lseek(fd, begin, SEEK_HOLE) : size;
		if (end < 0 || end > size)
			end = size;
		if (i == 0 && begin == 0 && end == size)
			return; /* no holes */
		archive_entry_sparse_add_entry(out->entry, begin, end - begin);
	}
}

static int hole_put(struct tar_out *out, uint64_t bytes)
{
	int r = 0;

	while (bytes && r == 0) {
		size_t count = bytes < HOLE_BYTES ? (size_t)bytes : HOLE_BYTES;

		r = bytes_put(out, out->hole, count);
		bytes -= count;
	}
	return r;
}

/* Where it has shrunk meanwhile, zeros stand for what is gone: its size was told. */
static int extent_put(struct tar_out *out, int fd, uint64_t at, uint64_t end)
{
	struct files *f = out->files;

	while (at < end) {
		size_t wanted = end - at < FILES_BUFFER_BYTES ? (size_t)(end - at) :
								FILES_BUFFER_BYTES;
		ssize_t n = pread(fd, f->buffer, wanted, (off_t)at);
		int r;

		if (n <= 0)
			return hole_put(out, end - at);
		r = bytes_put(out, f->buffer, (size_t)n);
		if (r < 0)
			return r;
		f->done.bytes += (uint64_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

static int content_put(struct tar_out *out, int fd, uint64_t size)
{
	la_int64_t offset, length;
	uint64_t at = 0;
	int r = 0;

	if (archive_entry_sparse_reset(out->entry) == 0)
		return extent_put(out, fd, 0, size);
	while (r == 0 && archive_entry_sparse_next(out->entry, &offset, &length) == ARCHIVE_OK) {
		r = hole_put(out, (uint64_t)offset - at);
		at = (uint64_t)(offset + length);
		if (r == 0)
			r = extent_put(out, fd, (uint64_t)offset, at);
	}
	return r == 0 ? hole_put(out, size - at) : r;
}

/* It is another name of a file that the archive has already: the entry says so, and no more. */
static bool name_is_further(struct tar_out *out, const struct stat *st)
{
	struct archive_entry *deferred = NULL;

	if (st->st_nlink < 2 || out->names_bytes > NAMES_BYTES_MAX)
		return false;
	archive_entry_set_dev(out->entry, st->st_dev);
	archive_entry_set_ino(out->entry, (la_int64_t)st->st_ino);
	archive_entry_set_nlink(out->entry, (unsigned)st->st_nlink);
	archive_entry_linkify(out->names, &out->entry, &deferred);
	if (archive_entry_hardlink(out->entry))
		return true;
	out->names_bytes += strlen(out->name) + NAME_COST_BYTES;
	return false;
}

static int file_put(struct tar_out *out, struct found *found)
{
	auto_close int fd = openat(found->dir_fd, found->name,
				   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	int r;

	if (fd < 0 || fstat(fd, &found->st) < 0)
		return talk_refusal(out->files, DSEC_FILE_REASON_FAILED, -errno, out->name);
	if (!S_ISREG(found->st.st_mode)) /* another by now */
		return talk_refusal(out->files, DSEC_FILE_REASON_SPECIAL, 0, out->name);
	entry_describe(out, found);
	if (name_is_further(out, &found->st))
		return header_write(out);
	extents_find(out, fd, found->st.st_size); /* those beyond its size are dropped */
	r = attributes_read(out->files, fd, out->entry, out->name);
	if (r == 0)
		r = header_write(out);
	return r < 0 ? r : content_put(out, fd, (uint64_t)found->st.st_size);
}

/* ---- the tree ---- */

static int entry_put(struct tar_out *out, struct found *found, unsigned depth);

static int folder_put(struct tar_out *out, DIR *folder, unsigned depth)
{
	const size_t bytes = strlen(out->name);
	struct dirent *entry;
	int r = 0;

	while (r == 0 && (entry = readdir(folder))) {
		struct found found = { .dir_fd = dirfd(folder), .name = entry->d_name };
		size_t at = depth == 1 ? 0 : bytes;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (at + 1 + strlen(entry->d_name) > GUEST_PATH_BYTES_MAX) {
			r = talk_refusal(out->files, DSEC_FILE_REASON_DEEP, 0, out->name);
			continue;
		}
		if (at)
			out->name[at++] = '/';
		memcpy(out->name + at, entry->d_name, strlen(entry->d_name) + 1);
		r = entry_put(out, &found, depth);
		out->name[depth == 1 ? 0 : bytes] = 0;
	}
	return r;
}

static int folder_enter(struct tar_out *out, const struct found *found, unsigned depth)
{
	DIR *folder;
	int r, fd;

	if (depth == DEPTH_MAX)
		return talk_refusal(out->files, DSEC_FILE_REASON_DEEP, 0, out->name);
	fd = openat(found->dir_fd, found->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return talk_refusal(out->files, DSEC_FILE_REASON_FAILED, -errno, out->name);
	folder = fdopendir(fd);
	if (!folder) {
		cleanup_close(&fd);
		return -ENOMEM;
	}
	entry_describe(out, found);
	r = attributes_read(out->files, fd, out->entry, out->name);
	if (r == 0)
		r = header_write(out);
	if (r == 0)
		r = folder_put(out, folder, depth + 1);
	(void)closedir(folder); /* it was only read */
	return r;
}

static int link_put(struct tar_out *out, const struct found *found)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(found->dir_fd, found->name, target, sizeof target - 1);

	if (n < 0)
		return talk_refusal(out->files, DSEC_FILE_REASON_FAILED, -errno, out->name);
	target[n] = 0;
	entry_describe(out, found);
	archive_entry_set_symlink(out->entry, target);
	return header_write(out);
}

static int entry_put(struct tar_out *out, struct found *found, unsigned depth)
{
	if (fstatat(found->dir_fd, found->name, &found->st, AT_SYMLINK_NOFOLLOW) < 0)
		return talk_refusal(out->files, DSEC_FILE_REASON_FAILED, -errno, out->name);
	archive_entry_clear(out->entry);
	if (S_ISREG(found->st.st_mode))
		return file_put(out, found);
	if (S_ISDIR(found->st.st_mode))
		return folder_enter(out, found, depth);
	if (S_ISLNK(found->st.st_mode))
		return link_put(out, found);
	return talk_refusal(out->files, DSEC_FILE_REASON_SPECIAL, 0, out->name);
}

/* A folder's own entry is ".", its own are named from there; a file has its name. */
static int tree_put(struct tar_out *out)
{
	struct files *f = out->files;
	const int follow = f->ask.flags & DSEC_FILE_NO_FOLLOW ? O_NOFOLLOW : 0;
	struct found found = { .name = "." };
	struct place place;
	int r;
	auto_close int fd = path_open(f, f->path, O_PATH | O_DIRECTORY | follow);

	if (fd >= 0) {
		found.dir_fd = fd;
		out->name[0] = '.';
		return entry_put(out, &found, 0);
	}
	if (fd != -ENOTDIR)
		return files_failed(f, GUEST_STEP_OPEN, fd);
	r = follow ? path_place(f, f->path, &place) : path_place_followed(f, f->path, &place);
	if (r < 0)
		return files_failed(f, GUEST_STEP_PATH, r);
	found.dir_fd = place.fd;
	found.name = place.name;
	memcpy(out->name, place.name, strlen(place.name) + 1);
	r = entry_put(out, &found, 0);
	place_done(&place);
	return r;
}

static int archive_open(struct tar_out *out)
{
	out->archive = archive_write_new();
	out->entry = archive_entry_new();
	out->names = archive_entry_linkresolver_new();
	out->hole = mmap(NULL, HOLE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);
	if (!out->archive || !out->entry || !out->names || out->hole == MAP_FAILED)
		return -ENOMEM;
	archive_entry_linkresolver_set_strategy(out->names, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE);
	if (archive_write_set_format_pax_restricted(out->archive) != ARCHIVE_OK ||
	    archive_write_set_format_option(out->archive, NULL, "xattrheader", "SCHILY") !=
		    ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(out->archive, 64 << 10) != ARCHIVE_OK ||
	    archive_write_open(out->archive, out, NULL, out_write, NULL) != ARCHIVE_OK)
		return -ENOMEM;
	return 0;
}

int verb_tar_out(struct files *f)
{
	struct tar_out *out = calloc(1, sizeof *out);
	int r;

	if (!out)
		return files_failed(f, GUEST_STEP_ARCHIVE, -ENOMEM);
	out->files = f;
	f->done.step = GUEST_STEP_ARCHIVE;
	r = archive_open(out);
	if (r == 0)
		r = tree_put(out);
	if (r == 0 && archive_write_close(out->archive) != ARCHIVE_OK)
		r = out_failed(out);
	if (r < 0 && out->archive)
		(void)archive_write_fail(out->archive); /* so that freeing writes no more */
	archive_entry_free(out->entry);
	archive_entry_linkresolver_free(out->names);
	(void)archive_write_free(out->archive); /* nothing is left to be written */
	free(out);
	return r;
}
