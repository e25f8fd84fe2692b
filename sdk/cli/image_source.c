/*
 * Where an import's bytes come from: a file or stdin as it is, or a folder, which a process writes
 * as a tar. Called by image_job.c. Must hold: a tar that could not be written whole never ends
 * as if it were.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/image.h"

enum { COPY_BYTES = 64 << 10 };

static const struct {
	const char *prefix, *kind;
	bool is_folder;
} sources[] = {
	{ "dir:", "tree", true },
	{ "tar:", "tree", false },
	{ "docker-archive:", "archive", false },
	{ "oci:", "archive", true },
	{ "oci-archive:", "archive", false },
};

static bool is_there(const char *path)
{
	return !strcmp(path, "-") || access(path, F_OK) == 0;
}

/* The longest path that is there, and what comes after it. */
static int tag_split(struct image_source *source)
{
	char *path, *colon = strrchr(source->path, ':');

	if (!colon || is_there(source->path))
		return 0;
	path = strdup(source->path);
	if (!path)
		return -ENOMEM;
	while ((colon = strrchr(path, ':'))) {
		*colon = 0;
		if (!is_there(path))
			continue;
		if (!source->path[colon - path + 1])
			break; /* nothing follows: the name as a whole is told */
		source->tag = source->path + (colon - path) + 1;
		source->owned = path;
		source->path = path;
		return 0;
	}
	free(path);
	return 0;
}

int image_source_parse(const char *text, struct image_source *ret)
{
	*ret = (struct image_source){ .fd = -1 };
	if (!strcmp(text, "-"))
		return 0;
	for (size_t at = 0; at < sizeof(sources) / sizeof(sources[0]); at++) {
		size_t bytes = strlen(sources[at].prefix);

		if (strncmp(text, sources[at].prefix, bytes) != 0 || !text[bytes])
			continue;
		ret->kind = sources[at].kind;
		ret->is_folder = sources[at].is_folder;
		ret->path = text + bytes;
		if (!strcmp(ret->kind, "archive") && tag_split(ret) < 0)
			return -ENOMEM;
		if (!ret->is_folder && !strcmp(ret->path, "-"))
			ret->path = NULL;
		return 0;
	}
	return -EINVAL;
}

/* ---- a folder as a tar: in a process of its own ---- */

struct folder {
	struct archive *disk, *tar;
	struct archive_entry_linkresolver *links;
};

static int folder_fail(struct archive *archive, const char *path)
{
	(void)fprintf(stderr, "dsec: %s: %s\n", path ? path : "folder",
		      archive_error_string(archive)); /* or nobody hears */
	return -EIO;
}

static int contents_copy(struct folder *folder, const char *path)
{
	const void *bytes;
	size_t count;
	int64_t offset, written = 0;
	int r;

	while ((r = archive_read_data_block(folder->disk, &bytes, &count, &offset)) == ARCHIVE_OK) {
		static const char zeros[COPY_BYTES];

		for (; written < offset; written += COPY_BYTES) {
			int64_t hole = offset - written;

			if (archive_write_data(folder->tar, zeros,
					       (size_t)(hole < COPY_BYTES ? hole : COPY_BYTES)) < 0)
				return folder_fail(folder->tar, path);
		}
		if (archive_write_data(folder->tar, bytes, count) < 0)
			return folder_fail(folder->tar, path);
		written = offset + (int64_t)count;
	}
	return r == ARCHIVE_EOF ? 0 : folder_fail(folder->disk, path);
}

static int entry_write(struct folder *folder, struct archive_entry *entry)
{
	const char *path = archive_entry_pathname(entry);
	int r = archive_write_header(folder->tar, entry);

	if (r == ARCHIVE_FAILED && archive_entry_filetype(entry) == AE_IFSOCK)
		return 0; /* nothing of a socket could be kept */
	/* A warning: the name is no UTF-8, and goes as it is. */
	if (r < ARCHIVE_WARN)
		return folder_fail(folder->tar, path);
	return archive_entry_size(entry) > 0 ? contents_copy(folder, path) : 0;
}

/* Of links to one file the first has the contents. */
static int entry_take(struct folder *folder, struct archive_entry *entry)
{
	struct archive_entry *deferred = NULL;
	int r = 0;

	archive_entry_linkify(folder->links, &entry, &deferred);
	if (entry)
		r = entry_write(folder, entry);
	return r;
}

static int folder_write(struct folder *folder)
{
	int r;

	for (;;) {
		struct archive_entry *entry = archive_entry_new();

		if (!entry)
			return -ENOMEM;
		r = archive_read_next_header2(folder->disk, entry);
		if (r == ARCHIVE_EOF || r != ARCHIVE_OK) {
			r = r == ARCHIVE_EOF ? 1 : folder_fail(folder->disk, NULL);
		} else {
			(void)archive_read_disk_descend(
				folder->disk); /* no folder: nothing to do */
			r = entry_take(folder, entry);
		}
		archive_entry_free(entry);
		if (r)
			return r < 0 ? r : 0;
	}
}

/* Numeric owners, extended attributes, holes; not what is mounted below. */
static int folder_tar(const char *path, int folder_fd, int fd)
{
	struct folder folder = { archive_read_disk_new(), archive_write_new(),
				 archive_entry_linkresolver_new() };
	int r;

	if (!folder.disk || !folder.tar || !folder.links)
		return -ENOMEM;
	if (fchdir(folder_fd) < 0)
		return -errno;
	archive_entry_linkresolver_set_strategy(folder.links, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE);
	if (archive_read_disk_set_symlink_physical(folder.disk) != ARCHIVE_OK ||
	    archive_read_disk_set_behavior(
		    folder.disk, ARCHIVE_READDISK_NO_TRAVERSE_MOUNTS | ARCHIVE_READDISK_NO_ACL |
					 ARCHIVE_READDISK_NO_FFLAGS) != ARCHIVE_OK ||
	    archive_read_disk_open(folder.disk, ".") != ARCHIVE_OK)
		return folder_fail(folder.disk, path);
	if (archive_write_set_format_pax(folder.tar) != ARCHIVE_OK ||
	    archive_write_add_filter_none(folder.tar) != ARCHIVE_OK ||
	    archive_write_open_fd(folder.tar, fd) != ARCHIVE_OK)
		return folder_fail(folder.tar, path);
	r = folder_write(&folder);
	if (r >= 0 && archive_write_close(folder.tar) != ARCHIVE_OK)
		r = folder_fail(folder.tar, path);
	return r;
}

static int folder_open(struct image_source *source)
{
	auto_close int folder = open(source->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ends[2];

	if (folder < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	source->child = fork();
	if (source->child < 0) {
		int r = -errno;

		source->child = 0;
		(void)close(ends[0]); /* nothing went through it */
		(void)close(ends[1]);
		return r;
	}
	if (source->child == 0) {
		(void)signal(SIGPIPE, SIG_DFL); /* nobody reads on: nothing to say */
		(void)close(ends[0]);		/* ours to write to */
		_exit(folder_tar(source->path, folder, ends[1]) < 0 ? 1 : 0);
	}
	(void)close(ends[1]); /* the child's */
	source->fd = ends[0];
	return 0;
}

/* ---- all of them ---- */

int image_source_open(struct image_source *source)
{
	if (source->is_folder)
		return folder_open(source);
	source->fd = source->path ? open(source->path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	return source->fd < 0 ? -errno : 0;
}

static int child_end(struct image_source *source)
{
	int status = -1;

	while (waitpid(source->child, &status, 0) < 0 && errno == EINTR)
		;
	source->child = 0;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

ssize_t image_source_read(struct image_source *source, void *bytes, size_t bytes_max)
{
	ssize_t n = read(source->fd, bytes, bytes_max);

	if (n < 0)
		return -errno;
	return n || !source->child ? n : child_end(source);
}

void image_source_close(struct image_source *source)
{
	if (source->child) {
		(void)kill(source->child, SIGKILL); /* not waited for: its own */
		(void)child_end(source);	    /* it was not to end well */
	}
	if (source->fd > STDIN_FILENO)
		(void)close(source->fd); /* was only read */
	source->fd = -1;
	free(source->owned);
	source->owned = NULL;
}
