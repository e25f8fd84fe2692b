/*
 * Names of an archive's entries as paths in the tree: checking, and ways through links. Called by
 * layer.c and files.c. Must hold: a path is a way from the root of the tree in memory, so nothing
 * leads out of it; nobody else moves in the tree.
 */
#include "backends/image/path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "backends/image/files.h"

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

int path_walk(const struct files *files, const char *path, uint32_t *ret)
{
	const struct tree *tree = files->tree;
	uint32_t at = 0;

	while (*path) {
		size_t bytes = strcspn(path, "/");

		if (tree->nodes[at].type == TREE_SYMLINK)
			return -ELOOP;
		if (tree->nodes[at].type == TREE_WHITEOUT)
			return -ENOENT;
		if (tree->nodes[at].type != TREE_DIRECTORY)
			return -ENOTDIR;
		at = tree_find(tree, at, path, bytes);
		if (at == TREE_NONE)
			return -ENOENT;
		path += bytes + (path[bytes] == '/');
	}
	*ret = at;
	return 0;
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
static int way_follow(const struct files *files, struct way *way)
{
	const struct tree *tree = files->tree;
	const size_t left = strlen(way->left);
	const char *target;
	size_t bytes;
	uint32_t node;
	int r = path_walk(files, way->done, &node);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	node = tree_inode(tree, node);
	if (tree->nodes[node].type != TREE_SYMLINK)
		return 0;
	if (++way->links > LINKS_MAX)
		return -ELOOP;
	target = tree->text + tree->nodes[node].target;
	bytes = strlen(target);
	if (bytes + 1 + left >= sizeof way->left)
		return -ENAMETOOLONG;
	memmove(way->left + bytes + 1, way->left, left + 1);
	memcpy(way->left, target, bytes);
	way->left[bytes] = '/';
	if (*target == '/')
		*way->done = 0;
	else
		way_up(way);
	return 0;
}

int path_resolve(struct files *files, char path[IMPORT_PATH_BYTES])
{
	const char *last = strrchr(path, '/');
	struct way way = { .done = "", .links = 0 };
	char joined[2 * IMPORT_PATH_BYTES];
	uint32_t node;
	int r = 0;

	if (!last)
		return 0;
	memcpy(way.left, path, (size_t)(last - path));
	way.left[last - path] = 0;
	/* Most ways have no link: one walk says so. */
	r = path_walk(files, way.left, &node);
	if (r != -ELOOP && !(r >= 0 && files->tree->nodes[node].type == TREE_SYMLINK))
		return 0;
	r = 0;
	while (*way.left && r >= 0) {
		r = way_step(&way);
		if (r >= 0 && *way.done)
			r = way_follow(files, &way);
	}
	if (r < 0)
		return path_fail(files->in, r, path);
	(void)snprintf(joined, sizeof joined, "%s%s%s", way.done, *way.done ? "/" : "",
		       last + 1); /* fits */
	return path_clean(files->in, joined, path);
}
