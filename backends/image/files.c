/*
 * Making, replacing and hiding entries of the tree that layers are merged into. Called by the
 * unpacker. Must hold: what exists is never changed but a directory: it is taken away first; what
 * an archive does not name and is on the way to what it names is root's, and as old as can be.
 */
#include "backends/image/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/image/path.h"

enum { MADE_SIZE_FIRST = 4096 };

static int failed(struct files *files, const struct place *place, int r)
{
	return r < 0 ? import_fail(files->in, -r, *place->path ? place->path : ".", strerror(-r)) :
		       0;
}

/* ---- what this layer made ---- */

static bool is_ours(const struct files *files, uint32_t node)
{
	return node < files->made_size && files->made[node] == files->layer;
}

static int made(struct files *files, uint32_t node)
{
	if (node >= files->made_size) {
		uint32_t size = files->made_size ? files->made_size : MADE_SIZE_FIRST;
		uint32_t *grown;

		while (size <= node)
			size *= 2;
		grown = realloc(files->made, size * sizeof *grown);
		if (!grown)
			return -ENOMEM;
		memset(grown + files->made_size, 0, (size - files->made_size) * sizeof *grown);
		files->made = grown;
		files->made_size = size;
	}
	files->made[node] = files->layer;
	return 0;
}

int files_init(struct files *files, struct import *in)
{
	const struct tree_segment raw = { .bytes = 0 }; /* what it is, is known at the end */
	uint32_t segment;

	*files = (struct files){ .in = in, .keeps_whiteouts = in->flags & IMAGE_LAYER };
	files->tree = tree_new();
	if (!files->tree || tree_add_segment(files->tree, &raw, &segment) < 0)
		return import_fail(in, ENOMEM, NULL, "no memory");
	return 0;
}

void files_done(struct files *files)
{
	tree_free(files->tree);
	free(files->made);
}

void files_layer_begin(struct files *files)
{
	files->layer++;
}

int files_write(struct files *files)
{
	uint64_t bytes = files->raw_blocks * TREE_BLOCK_BYTES;
	int r = 0;

	files->tree->segments[0].bytes = bytes;
	if (ftruncate(files->in->raw_fd, (off_t)bytes) < 0)
		r = -errno;
	if (r >= 0)
		r = tree_write(files->tree, files->in->tree_fd);
	return r < 0 ? import_fail(files->in, -r, NULL, strerror(-r)) : 0;
}

/* ---- places ---- */

/* A directory that the archive does not name. */
static int parent_make(struct files *files, uint32_t *at, const char *name, size_t bytes)
{
	char own[TREE_NAME_MAX + 1];
	uint32_t node = tree_find(files->tree, *at, name, bytes);
	bool hid = node != TREE_NONE && files->tree->nodes[node].type == TREE_WHITEOUT;
	int r;

	if (node != TREE_NONE && !hid) {
		*at = node;
		return 0;
	}
	if (hid)
		tree_remove(files->tree, node);
	memcpy(own, name, bytes);
	own[bytes] = 0;
	r = tree_add(files->tree, *at, own, TREE_DIRECTORY, &node);
	if (r < 0)
		return r;
	files->tree->nodes[node].mode = 0755;
	files->tree->nodes[node].flags |= hid ? TREE_OPAQUE : 0;
	*at = node;
	return 0;
}

static int parents_make(struct files *files, const char *parent, uint32_t *ret)
{
	uint32_t at = 0;
	int r = 0;

	while (r >= 0 && *parent) {
		size_t bytes = strcspn(parent, "/");

		r = parent_make(files, &at, parent, bytes);
		if (r >= 0 && files->tree->nodes[at].type != TREE_DIRECTORY)
			r = -ENOTDIR;
		parent += bytes + (parent[bytes] == '/');
	}
	*ret = at;
	return r;
}

int place_find(struct files *files, const char *path, struct place *ret)
{
	char parent[IMPORT_PATH_BYTES];
	const char *last;
	int r = path_clean(files->in, path, ret->path);

	ret->parent = TREE_NONE;
	if (r < 0)
		return r;
	last = strrchr(ret->path, '/');
	ret->name = last ? last + 1 : ret->path;
	if (!*ret->path)
		return 0;
	memcpy(parent, ret->path, (size_t)(ret->name - ret->path));
	parent[last ? last - ret->path : 0] = 0;
	r = path_walk(files, parent, &ret->parent);
	if (r >= 0 && files->tree->nodes[ret->parent].type == TREE_WHITEOUT)
		r = -ENOENT;
	else if (r >= 0 && files->tree->nodes[ret->parent].type != TREE_DIRECTORY)
		r = -ENOTDIR;
	if (r == -ENOENT)
		r = parents_make(files, parent, &ret->parent);
	return r < 0 ? path_fail(files->in, r, ret->path) : 0;
}

static uint32_t place_node(const struct files *files, const struct place *place)
{
	return *place->path ?
		       tree_find(files->tree, place->parent, place->name, strlen(place->name)) :
		       0;
}

/* ---- taking away ---- */

static bool is_empty(const struct tree *tree, uint32_t directory)
{
	uint32_t at = tree->nodes[directory].first;

	while (at != TREE_NONE && tree->nodes[at].flags & TREE_REMOVED)
		at = tree->nodes[at].next;
	return at == TREE_NONE;
}

static void hide(struct files *files, uint32_t node);

static void hide_below(struct files *files, uint32_t directory)
{
	const struct tree *tree = files->tree;

	for (uint32_t at = tree->nodes[directory].first; at != TREE_NONE; at = tree->nodes[at].next)
		if (!(tree->nodes[at].flags & TREE_REMOVED))
			hide(files, at);
}

/* No deeper than a tree is. What has something of this layer in it stays. */
static void hide(struct files *files, uint32_t node)
{
	if (files->tree->nodes[node].type == TREE_DIRECTORY)
		hide_below(files, node);
	if (is_ours(files, node))
		return;
	if (files->tree->nodes[node].type != TREE_DIRECTORY || is_empty(files->tree, node))
		tree_remove(files->tree, node);
}

int files_hide(struct files *files, const struct place *place)
{
	uint32_t node = place_node(files, place);
	int r;

	if (node != TREE_NONE)
		hide(files, node);
	if (!files->keeps_whiteouts)
		return 0;
	node = place_node(files, place);
	if (node != TREE_NONE) { /* a file hides what lies below by being there */
		if (files->tree->nodes[node].type == TREE_DIRECTORY)
			files->tree->nodes[node].flags |= TREE_OPAQUE;
		return 0;
	}
	r = tree_add(files->tree, place->parent, place->name, TREE_WHITEOUT, &node);
	if (r >= 0)
		r = made(files, node);
	return failed(files, place, r);
}

int files_hide_below(struct files *files, const char *path)
{
	uint32_t node;
	int r;

	if (files->keeps_whiteouts) {
		r = parents_make(files, path, &node);
	} else {
		r = path_walk(files, path, &node);
		if (r == -ENOENT)
			return 0;
		if (r >= 0 && files->tree->nodes[node].type != TREE_DIRECTORY)
			r = -ENOTDIR;
	}
	if (r < 0)
		return path_fail(files->in, r, path);
	hide_below(files, node);
	if (files->keeps_whiteouts)
		files->tree->nodes[node].flags |= TREE_OPAQUE;
	return 0;
}

/* ---- making ---- */

int files_add(struct files *files, const struct place *place, enum tree_type type, uint32_t *ret)
{
	uint32_t node = place_node(files, place);
	bool hid;
	int r;

	if (!*place->path)
		return import_fail(files->in, EINVAL, ".", "the root is a directory");
	hid = node != TREE_NONE && files->tree->nodes[node].type == TREE_WHITEOUT;
	if (node != TREE_NONE)
		tree_remove(files->tree, node);
	r = tree_add(files->tree, place->parent, place->name, type, &node);
	if (r >= 0)
		r = made(files, node);
	if (r < 0)
		return failed(files, place, r);
	if (hid && type == TREE_DIRECTORY)
		files->tree->nodes[node].flags |= TREE_OPAQUE;
	*ret = node;
	return 0;
}

int files_directory(struct files *files, const struct place *place, uint32_t *ret)
{
	uint32_t node = place_node(files, place);

	if (node == TREE_NONE || files->tree->nodes[node].type != TREE_DIRECTORY)
		return files_add(files, place, TREE_DIRECTORY, ret);
	*ret = node;
	return failed(files, place, made(files, node));
}

int files_link(struct files *files, const struct place *place, const char *target)
{
	struct tree *tree = files->tree;
	uint32_t of, there = place_node(files, place), node;
	int r;

	if (!strcmp(target, place->path)) /* to itself: it would take itself away */
		return import_fail(files->in, EINVAL, place->path, "a hard link to itself");
	if (!*place->path)
		return import_fail(files->in, EINVAL, ".", "the root is a directory");
	r = path_walk(files, target, &of);
	if (r == -ENOENT || (r >= 0 && tree->nodes[of].type == TREE_WHITEOUT))
		return import_fail(files->in, ENOENT, place->path, "a hard link to nothing");
	if (r < 0)
		return path_fail(files->in, r, target);
	if (tree->nodes[of].type == TREE_DIRECTORY)
		return import_fail(files->in, EPERM, place->path, "a hard link to a directory");
	if (there != TREE_NONE)
		tree_remove(tree, there);
	if (tree->nodes[of].flags & TREE_REMOVED) /* it was below what it takes the place of */
		return import_fail(files->in, ENOENT, place->path, "a hard link to nothing");
	r = tree_link(tree, place->parent, place->name, of, &node);
	if (r >= 0)
		r = made(files, node);
	return failed(files, place, r);
}

int files_attributes(struct files *files, const struct place *place, uint32_t at,
		     const struct attributes *a)
{
	struct tree_node *node = &files->tree->nodes[at];

	if (a->uid > IMPORT_ID_MAX || a->gid > IMPORT_ID_MAX)
		return import_fail(files->in, EOVERFLOW, place->path, "an owner beyond 65535");
	node->mode = node->type == TREE_SYMLINK ? 0777 : a->mode & 07777;
	node->uid = (uint32_t)a->uid;
	node->gid = (uint32_t)a->gid;
	node->mtime_s = a->time_s;
	node->mtime_ns = a->time_ns;
	return 0;
}
