/*
 * Names of an archive's entries as paths in the tree: checking, and ways through links. Called by
 * layer.c and tree.c. Must hold: a path is opened from the root with RESOLVE_BENEATH and
 * RESOLVE_NO_SYMLINKS, so resolving one has no part in keeping it inside; nobody else moves in the
 * tree.
 */
#include "backends/image/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/image/tree.h"
#include "engine/base/cleanup.h"

enum { LINKS_MAX = 40 };

int path_clean(struct import *in, const char *name, char ret[IMPORT_PATH_BYTES])
{
	size_t used = 0, parts = 0;

	if (*name == '/')
		return import_fail(in, EINVAL, name, "an absolute name");
	while (*name) {
		size_t bytes = strcspn(name, "/");

		if (bytes == 2 && name[0] == '.' && name[1] == '.')
			return import_fail(in, EINVAL, name, "a name with \"..\"");
		if (bytes > NAME_MAX)
			return import_fail(in, ENAMETOOLONG, name, "a name over 255 bytes");
		if (bytes && !(bytes == 1 && *name == '.')) {
			if (used + bytes + 2 > IMPORT_PATH_BYTES || ++parts > IMPORT_DEPTH_MAX)
				return import_fail(in, ENAMETOOLONG, name, "a path too long");
			if (used)
				ret[used++] = '/';
			memcpy(ret + used, name, bytes);
			used += bytes;
		}
		name += bytes;
		name += strspn(name, "/");
	}
	ret[used] = 0;
	return 0;
}

int path_open(const struct tree *tree, const char *path, uint64_t flags)
{
	const struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	long fd = syscall(SYS_openat2, tree->root_fd, *path ? path : ".", &how, sizeof how);

	return fd < 0 ? -errno : (int)fd;
}

int path_fail(struct import *in, int r, const char *path)
{
	switch (r) {
	case -ELOOP:
		return import_fail(in, ELOOP, path, "its way leads through too many links");
	case -ENOTDIR:
		return import_fail(in, ENOTDIR, path, "its parent is no directory");
	default:
		return import_fail(in, -r, path, strerror(-r));
	}
}

/* ---- links on the way ---- */

/* A path in two parts: what is done has no links, what is left may have. */
struct way {
	char done[IMPORT_PATH_BYTES], left[IMPORT_PATH_BYTES];
	unsigned links;
};

static void way_up(struct way *way)
{
	char *last = strrchr(way->done, '/');

	*(last ? last : way->done) = 0; /* the root is above itself */
}

/* The next part of `left` goes to the end of `done`. */
static int way_step(struct way *way)
{
	size_t bytes = strcspn(way->left, "/"), used = strlen(way->done);
	size_t rest = bytes + strspn(way->left + bytes, "/");

	if (bytes == 2 && !memcmp(way->left, "..", 2)) {
		way_up(way);
	} else if (bytes && !(bytes == 1 && *way->left == '.')) {
		if (used + 1 + bytes >= sizeof way->done)
			return -ENAMETOOLONG;
		if (used)
			way->done[used++] = '/';
		memcpy(way->done + used, way->left, bytes);
		way->done[used + bytes] = 0;
	}
	memmove(way->left, way->left + rest, strlen(way->left + rest) + 1);
	return 0;
}

/* Where `done` ends in a link, what it says comes first of all that is left. */
static int way_follow(const struct tree *tree, struct way *way)
{
	char target[IMPORT_PATH_BYTES];
	const size_t left = strlen(way->left);
	struct stat st;
	ssize_t bytes;
	auto_close int fd = path_open(tree, way->done, O_PATH | O_NOFOLLOW);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISLNK(st.st_mode))
		return 0;
	bytes = readlinkat(fd, "", target, sizeof target);
	if (bytes < 0)
		return -errno;
	if (++way->links > LINKS_MAX)
		return -ELOOP;
	if ((size_t)bytes + 1 + left >= sizeof way->left)
		return -ENAMETOOLONG;
	memmove(way->left + bytes + 1, way->left, left + 1);
	memcpy(way->left, target, (size_t)bytes);
	way->left[bytes] = '/';
	if (*target == '/')
		*way->done = 0;
	else
		way_up(way);
	return 0;
}

int path_resolve(struct tree *tree, char path[IMPORT_PATH_BYTES])
{
	const char *last = strrchr(path, '/');
	struct way way = { .done = "", .links = 0 };
	char joined[2 * IMPORT_PATH_BYTES];
	int r = 0;

	if (!last)
		return 0;
	memcpy(way.left, path, (size_t)(last - path));
	way.left[last - path] = 0;
	/* Most ways have no link: one look says so. */
	auto_close int there = path_open(tree, way.left, O_PATH | O_DIRECTORY);
	if (there != -ELOOP)
		return 0;
	while (*way.left && r >= 0) {
		r = way_step(&way);
		if (r >= 0 && *way.done)
			r = way_follow(tree, &way);
	}
	if (r < 0)
		return path_fail(tree->in, r, path);
	(void)snprintf(joined, sizeof joined, "%s%s%s", way.done, *way.done ? "/" : "",
		       last + 1); /* fits */
	return path_clean(tree->in, joined, path);
}
