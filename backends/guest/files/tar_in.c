/*
 * A tar archive into a folder. Called for the verb write with DSEC_FILE_TAR. The archive is
 * hostile. Must hold: what an entry names is reached from the folder by names alone, so a link,
 * whoever made it and when, leads nowhere; a file is written without a name and takes its place
 * whole; an entry that may not be is left out and said, and the rest goes on. The archive is not
 * undone as a whole.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "backends/guest/files/attributes.h"
#include "backends/guest/files/files.h"

enum { MODE_FOLDER = 0755, FOLDERS_KEPT_MAX = 65536 };

/* A folder gets its mode and time when all that it holds is there. */
struct kept {
	struct kept *next;
	mode_t mode;
	struct timespec times[2];
	char name[];
};

struct tar_in {
	struct files *files;
	struct archive *archive;
	struct archive_entry *entry;
	int base_fd;
	long ended;		      /* -errno of a read that failed */
	char *name;		      /* of the entry, checked */
	enum dsec_file_reason reason; /* why the entry is left out, where it is */
	struct kept *kept;
	uint32_t kept_count;
};

static la_ssize_t in_read(struct archive *archive, void *owner, const void **ret)
{
	struct tar_in *in = owner;

	(void)archive;
	in->ended = talk_read(in->files, in->files->buffer, FILES_BUFFER_BYTES);
	*ret = in->files->buffer;
	return in->ended < 0 ? -1 : in->ended;
}

/* ---- names ---- */

static bool part_is(const char *part, size_t bytes, const char *name)
{
	return bytes == strlen(name) && !memcmp(part, name, bytes);
}

/* A name in the folder, in the buffer of its own: without ".", empty parts; NULL: it leads out. */
static char *name_check(const char *given)
{
	char *name = given && *given != '/' ? malloc(strlen(given) + 1) : NULL;
	char *to = name;

	while (name && *given) {
		size_t bytes = strcspn(given, "/");

		if (part_is(given, bytes, "..")) {
			free(name);
			return NULL;
		}
		if (bytes && !part_is(given, bytes, ".")) {
			if (to != name)
				*to++ = '/';
			memcpy(to, given, bytes);
			to += bytes;
		}
		given += bytes + (given[bytes] == '/');
	}
	if (name)
		*to = 0;
	return name;
}

/* The folder of a checked name, made where it is missing. */
static int place_open(struct tar_in *in, char *name, bool make, struct place *ret)
{
	char *last = strrchr(name, '/');
	int r;

	if (strlen(last ? last + 1 : name) > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(ret->name, last ? last + 1 : name, strlen(last ? last + 1 : name) + 1);
	if (last)
		*last = 0;
	ret->fd = path_open_beneath(in->base_fd, last ? name : ".", O_PATH | O_DIRECTORY);
	if (ret->fd == -ENOENT && last && make) {
		struct place above;

		r = place_open(in, name, true, &above);
		if (r == 0) {
			r = mkdirat(above.fd, above.name, MODE_FOLDER) < 0 && errno != EEXIST ?
				    -errno :
				    0;
			place_done(&above);
		}
		ret->fd = r < 0 ? r : path_open_beneath(in->base_fd, name, O_PATH | O_DIRECTORY);
	}
	if (last)
		*last = '/';
	return ret->fd < 0 ? ret->fd : 0;
}

/* ---- entries ---- */

static int owner_put(struct tar_in *in, int dir_fd, const char *name)
{
	if (!(in->files->ask.flags & DSEC_FILE_OWNERS))
		return 0;
	return fchownat(dir_fd, name, (uid_t)archive_entry_uid(in->entry),
			(gid_t)archive_entry_gid(in->entry),
			AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0 ?
		       -errno :
		       0;
}

static void times_take(struct tar_in *in, struct timespec ret[static 2])
{
	ret[0] = (struct timespec){ .tv_nsec = UTIME_OMIT };
	ret[1] = ret[0];
	if (archive_entry_mtime_is_set(in->entry))
		ret[1] = (struct timespec){ archive_entry_mtime(in->entry),
					    archive_entry_mtime_nsec(in->entry) };
}

static int blocks_take(struct tar_in *in, int fd)
{
	struct files *f = in->files;
	const void *block;
	la_int64_t offset;
	size_t bytes;
	int r;

	while ((r = archive_read_data_block(in->archive, &block, &bytes, &offset)) == ARCHIVE_OK) {
		for (size_t at = 0; at < bytes;) {
			ssize_t n = pwrite(fd, (const char *)block + at, bytes - at,
					   (off_t)offset + (off_t)at);

			if (n < 0)
				return -errno;
			at += (size_t)n;
			f->done.bytes += (uint64_t)n;
		}
		if (f->ask.bytes_max && f->done.bytes > f->ask.bytes_max)
			return -EFBIG;
	}
	return r == ARCHIVE_EOF ? 0 : -EBADMSG;
}

/* A name that is taken by what is no folder is given up. */
static int name_free(const struct place *place)
{
	return unlinkat(place->fd, place->name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int file_take(struct tar_in *in, const struct place *place)
{
	auto_close int fd = temporary_open(place);
	struct timespec times[2];
	int r = fd < 0 ? fd : blocks_take(in, fd);

	times_take(in, times);
	if (r == 0 && ftruncate(fd, archive_entry_size(in->entry)) < 0)
		r = -errno;
	if (r == 0)
		r = owner_put(in, fd, "");
	if (r == 0 &&
	    (fchmod(fd, archive_entry_perm(in->entry) & 0777) < 0 || futimens(fd, times) < 0))
		r = -errno;
	/* After its owner and content, whose changes would take capabilities away. */
	if (r == 0)
		r = attributes_put(in->files, fd, in->entry);
	return r < 0 ? r : temporary_put(fd, place, false);
}

static void folder_keep(struct tar_in *in, mode_t mode)
{
	const size_t bytes = strlen(in->name) + 1;
	struct kept *kept = in->kept_count < FOLDERS_KEPT_MAX ? malloc(sizeof *kept + bytes) : NULL;

	if (!kept)
		return; /* its mode was given when it was made; only its time is lost */
	kept->mode = mode;
	times_take(in, kept->times);
	memcpy(kept->name, in->name, bytes);
	kept->next = in->kept;
	in->kept = kept;
	in->kept_count++;
}

static int folder_attributes(struct tar_in *in, const struct place *place)
{
	auto_close int fd = -1;

	if (archive_entry_xattr_count(in->entry) == 0)
		return 0;
	fd = path_open_beneath(place->fd, place->name, O_RDONLY | O_DIRECTORY);
	return fd < 0 ? fd : attributes_put(in->files, fd, in->entry);
}

static int folder_take(struct tar_in *in, const struct place *place)
{
	const mode_t mode = archive_entry_perm(in->entry) & 0777;
	struct stat st;
	int r = 0;

	/* Who makes it must be able to fill it. */
	if (mkdirat(place->fd, place->name, mode | 0700) < 0) {
		if (errno != EEXIST)
			return -errno;
		if (fstatat(place->fd, place->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		if (!S_ISDIR(st.st_mode)) {
			in->reason = S_ISLNK(st.st_mode) ? DSEC_FILE_REASON_LINK :
							   DSEC_FILE_REASON_FAILED;
			return -EEXIST;
		}
	}
	r = owner_put(in, place->fd, place->name);
	if (r == 0)
		r = folder_attributes(in, place);
	if (r == 0)
		folder_keep(in, mode);
	return r;
}

static int link_take(struct tar_in *in, const struct place *place)
{
	const char *target = archive_entry_symlink(in->entry);
	int r;

	if (!target || !*target)
		return -EINVAL;
	r = name_free(place);
	if (r == 0 && symlinkat(target, place->fd, place->name) < 0)
		r = -errno;
	return r < 0 ? r : owner_put(in, place->fd, place->name);
}

static int hard_link_take(struct tar_in *in, const struct place *place)
{
	auto_free char *target = name_check(archive_entry_hardlink(in->entry));
	struct place from;
	struct stat st;
	int r;

	if (!target || !*target) {
		in->reason = DSEC_FILE_REASON_OUTSIDE;
		return -EXDEV;
	}
	r = place_open(in, target, false, &from);
	if (r < 0)
		return r;
	if (fstatat(from.fd, from.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode))
		r = -EMEDIUMTYPE;
	if (r == 0 && linkat(from.fd, from.name, place->fd, place->name, 0) < 0) {
		r = errno == EEXIST ? name_free(place) : -errno;
		if (r == 0 && linkat(from.fd, from.name, place->fd, place->name, 0) < 0)
			r = -errno;
	}
	place_done(&from);
	return r;
}

static int entry_put(struct tar_in *in, const struct place *place)
{
	/* Also where its type says something else. */
	if (archive_entry_hardlink(in->entry))
		return hard_link_take(in, place);
	switch (archive_entry_filetype(in->entry)) {
	case AE_IFREG:
		return file_take(in, place);
	case AE_IFDIR:
		return folder_take(in, place);
	case AE_IFLNK:
		return link_take(in, place);
	default:
		in->reason = DSEC_FILE_REASON_SPECIAL;
		return -EPERM;
	}
}

static int entry_check(struct tar_in *in)
{
	const struct files *f = in->files;
	la_int64_t size = archive_entry_size(in->entry);

	free(in->name);
	in->name = name_check(archive_entry_pathname(in->entry));
	if (!in->name) {
		in->reason = DSEC_FILE_REASON_OUTSIDE;
		return -EXDEV;
	}
	if (size < 0 || (f->ask.bytes_max && (uint64_t)size > f->ask.bytes_max)) {
		in->reason = DSEC_FILE_REASON_SIZE;
		return -EFBIG;
	}
	return 0;
}

static int entry_place(struct tar_in *in)
{
	struct place place;
	int r = entry_check(in);

	if (r < 0 || !*in->name) /* "" is the folder itself */
		return r;
	r = place_open(in, in->name, true, &place);
	if (r < 0) {
		in->reason = r == -ELOOP || r == -EXDEV ? DSEC_FILE_REASON_LINK :
							  DSEC_FILE_REASON_FAILED;
		return r;
	}
	r = entry_put(in, &place);
	place_done(&place);
	return r;
}

/* What ends the whole: the archive's own end, a full disk, a bound. Else only the entry is lost. */
static bool error_is_final(const struct tar_in *in, int error)
{
	return in->ended < 0 || error == -EBADMSG || error == -ENOSPC || error == -EDQUOT ||
	       error == -ENOMEM || (error == -EFBIG && in->reason != DSEC_FILE_REASON_SIZE);
}

static int entry_take(struct tar_in *in)
{
	struct files *f = in->files;
	const char *told = archive_entry_pathname(in->entry);
	int r;

	in->reason = DSEC_FILE_REASON_FAILED;
	r = entry_place(in);
	if (r < 0 && error_is_final(in, r))
		return r;
	if (r < 0)
		return talk_refusal(f, in->reason, r, told);
	f->done.entries++;
	if (archive_entry_perm(in->entry) & 07000 && archive_entry_filetype(in->entry) != AE_IFLNK)
		return talk_refusal(f, DSEC_FILE_REASON_BITS, 0, told);
	return 0;
}

static int entries_take(struct tar_in *in)
{
	for (;;) {
		int r = archive_read_next_header(in->archive, &in->entry);

		if (r == ARCHIVE_EOF)
			return 0;
		if (r == ARCHIVE_RETRY || r == ARCHIVE_FAILED) {
			r = talk_refusal(in->files, DSEC_FILE_REASON_FAILED, -EBADMSG, "");
			if (r < 0)
				return r;
			continue;
		}
		if (r < ARCHIVE_WARN)
			return in->ended < 0 ? (int)in->ended : -EBADMSG;
		r = entry_take(in);
		if (r < 0)
			return in->ended < 0 ? (int)in->ended : r;
	}
}

/* The newest first, so that what lies in a folder comes before it. */
static void folders_finish(struct tar_in *in)
{
	while (in->kept) {
		struct kept *kept = in->kept;
		auto_close int fd =
			path_open_beneath(in->base_fd, kept->name, O_RDONLY | O_DIRECTORY);

		/* Another may be there by now, or none: then there is nothing to finish. */
		if (fd >= 0) {
			(void)fchmod(fd, kept->mode);
			(void)futimens(fd, kept->times);
		}
		in->kept = kept->next;
		free(kept);
	}
}

/* What follows the archive's end is taken, or whoever sends it would wait. */
static int rest_drop(struct files *f)
{
	long n;

	while ((n = talk_read(f, f->buffer, FILES_BUFFER_BYTES)) > 0)
		;
	return n < 0 ? (int)n : talk_commit(f);
}

static int archive_take(struct tar_in *in)
{
	int r;

	in->archive = archive_read_new();
	if (!in->archive || archive_read_support_format_tar(in->archive) != ARCHIVE_OK)
		return -ENOMEM;
	if (archive_read_open(in->archive, in, NULL, in_read, NULL) != ARCHIVE_OK)
		return in->ended < 0 ? (int)in->ended : -EBADMSG;
	r = entries_take(in);
	folders_finish(in);
	return r < 0 ? r : rest_drop(in->files);
}

int verb_tar_in(struct files *f)
{
	struct tar_in in = { .files = f };
	auto_close int base_fd = f->ask.flags & DSEC_FILE_PARENTS ?
					 path_make(f, f->path, MODE_FOLDER) :
					 path_open(f, f->path, O_RDONLY | O_DIRECTORY);
	int r;

	if (base_fd < 0)
		return files_failed(f, GUEST_STEP_OPEN, base_fd);
	in.base_fd = base_fd;
	r = archive_take(&in);
	(void)archive_read_free(in.archive); /* it was only read */
	free(in.name);
	return r < 0 ? files_failed(f, GUEST_STEP_ARCHIVE, r) : 0;
}
