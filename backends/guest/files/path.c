/*
 * From names to descriptors. Called by the verbs. Must hold: every look-up is the kernel's, by
 * openat2 from the root's descriptor, so that no race with a rename or a link leads out of it; what
 * is looked up later goes by descriptor and one name. A path may be longer than one look-up takes:
 * then it is walked in pieces, and in all but the first a link must not lead out of the folder that
 * the pieces before it named.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "backends/guest/files/files.h"

enum { PIECE_BYTES_MAX = 4000, LINKS_MAX = 40, TRIES_MAX = 1000, FOLDER = O_PATH | O_DIRECTORY };

/* Where names on the way are changed meanwhile the kernel asks to be asked again. */
static int lookup(int dir_fd, const char *path, int flags, uint64_t resolve)
{
	const struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NOCTTY)),
		.resolve = resolve | RESOLVE_NO_MAGICLINKS,
	};
	long fd = -1;

	for (int i = 0; i < TRIES_MAX && fd < 0; i++) {
		fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
		if (fd < 0 && errno != EAGAIN && errno != EINTR)
			break;
	}
	return fd < 0 ? -errno : (int)fd;
}

/* How much of a path one look-up takes: up to a slash, or all of it. */
static size_t piece_bytes(const char *path)
{
	size_t bytes = strlen(path);

	if (bytes <= PIECE_BYTES_MAX)
		return bytes;
	bytes = PIECE_BYTES_MAX;
	while (bytes && path[bytes] != '/')
		bytes--;
	return bytes;
}

struct walk {
	int dir_fd;
	uint64_t first, rest; /* RESOLVE_… of the first piece, and of those after it */
};

static int walk_open(const struct walk *walk, const char *path, int flags)
{
	char piece[PIECE_BYTES_MAX + 1];
	auto_close int at_fd = -1;
	uint64_t resolve = walk->first;
	size_t bytes;

	if (!*path)
		return -ENOENT;
	while (path[bytes = piece_bytes(path)]) {
		int fd;

		if (!bytes) /* one name fills it */
			return -ENAMETOOLONG;
		memcpy(piece, path, bytes);
		piece[bytes] = 0;
		fd = lookup(at_fd < 0 ? walk->dir_fd : at_fd, piece, FOLDER, resolve);
		if (fd < 0)
			return fd;
		cleanup_close(&at_fd);
		at_fd = fd;
		resolve = walk->rest;
		path += bytes;
		while (*path == '/')
			path++;
	}
	return lookup(at_fd < 0 ? walk->dir_fd : at_fd, *path ? path : ".", flags, resolve);
}

int path_open(const struct files *f, const char *path, int flags)
{
	const uint64_t links = f->ask.flags & DSEC_FILE_NO_LINKS ? RESOLVE_NO_SYMLINKS : 0;
	const struct walk walk = {
		.dir_fd = f->root_fd,
		.first = RESOLVE_IN_ROOT | links,
		.rest = RESOLVE_BENEATH | links,
	};

	return walk_open(&walk, path, flags);
}

int path_open_beneath(int dir_fd, const char *path, int flags)
{
	const uint64_t resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;

	return walk_open(&(struct walk){ dir_fd, resolve, resolve }, path, flags);
}

void place_done(struct place *place)
{
	cleanup_close(&place->fd);
	place->fd = -1;
}

/* The last name of a path: where it begins, and its bytes. */
static const char *path_last(const char *path, size_t *ret_bytes)
{
	size_t end = strlen(path), begin;

	while (end && path[end - 1] == '/')
		end--;
	begin = end;
	while (begin && path[begin - 1] != '/')
		begin--;
	*ret_bytes = end - begin;
	return path + begin;
}

int path_place(const struct files *f, const char *path, struct place *ret)
{
	size_t bytes;
	const char *last = path_last(path, &bytes);
	auto_free char *folder = strndup(path, (size_t)(last - path));

	if (!folder)
		return -ENOMEM;
	if (!*path)
		return -ENOENT;
	if (!bytes)
		return -EBUSY;
	if (bytes > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(ret->name, last, bytes);
	ret->name[bytes] = 0;
	if (!strcmp(ret->name, ".") || !strcmp(ret->name, ".."))
		return -EBUSY;
	ret->fd = path_open(f, *folder ? folder : "/", FOLDER);
	return ret->fd < 0 ? ret->fd : 0;
}

/* The path that a link at `path` stands for; NULL: there is none. */
static int link_follow(const struct place *place, const char *path, char **ret)
{
	char target[PATH_MAX];
	const char *last;
	size_t bytes;
	ssize_t n = readlinkat(place->fd, place->name, target, sizeof target);

	*ret = NULL;
	if (n < 0)
		return errno == EINVAL || errno == ENOENT ? 0 : -errno;
	if (n == 0 || n == sizeof target)
		return -ENAMETOOLONG;
	target[n] = 0;
	last = path_last(path, &bytes);
	bytes = *target == '/' ? 0 : (size_t)(last - path);
	if (bytes + (size_t)n > 2 * GUEST_PATH_BYTES_MAX)
		return -ENAMETOOLONG;
	return asprintf(ret, "%.*s%s", (int)bytes, path, target) < 0 ? -ENOMEM : 0;
}

int path_place_followed(const struct files *f, const char *path, struct place *ret)
{
	auto_free char *at = NULL;

	for (int links = 0; links <= LINKS_MAX; links++) {
		char *next;
		int r = path_place(f, at ? at : path, ret);

		if (r == 0)
			r = link_follow(ret, at ? at : path, &next);
		if (r < 0) {
			place_done(ret);
			return r;
		}
		if (!next)
			return 0;
		place_done(ret);
		free(at);
		at = next;
		if (f->ask.flags & DSEC_FILE_NO_LINKS)
			break;
	}
	return -ELOOP;
}

/* One folder at a path whose own folder is there. */
static int folder_make(const struct files *f, const char *path, mode_t mode)
{
	struct place place;
	int r = path_place(f, path, &place);

	if (r < 0)
		return r == -EBUSY ? 0 : r; /* ".", ".." or the root: the look-up decides */
	r = mkdirat(place.fd, place.name, mode) < 0 && errno != EEXIST ? -errno : 0;
	place_done(&place);
	return r;
}

int path_make(const struct files *f, const char *path, mode_t mode)
{
	auto_free char *at = strdup(path);
	size_t end = 0;
	int fd;

	if (!at)
		return -ENOMEM;
	do {
		int r;
		char kept;

		while (at[end] == '/')
			end++;
		while (at[end] && at[end] != '/')
			end++;
		kept = at[end];
		at[end] = 0;
		r = folder_make(f, at, mode);
		at[end] = kept;
		if (r < 0)
			return r;
	} while (at[end]);
	fd = path_open(f, path, O_RDONLY | O_DIRECTORY);
	return fd;
}
