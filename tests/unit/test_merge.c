/*
 * Layers over trees, beside a model: a list of paths, where a layer's paths are taken one after the
 * other as its rules say.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/tree.h"
#include "tests/unit/random_tree.h"

enum { PATHS_MAX = 1024, TEXT_MAX = 600, LAYERS = 4 };

/* ---- what is at a path, in words ---- */

struct path {
	char *path; /* NULL: gone. "" is the root */
	char *what; /* all but names */
	uint64_t inode;
	bool is_directory, is_opaque, is_whiteout;
};

struct model {
	struct path paths[PATHS_MAX];
	unsigned count;
};

static char *path_of(const struct tree *tree, uint32_t at)
{
	char *above, *path;

	if (!at)
		return strdup("");
	above = path_of(tree, tree->nodes[at].parent);
	cr_assert_geq(asprintf(&path, "%s/%s", above, tree_name(tree, at)), 0);
	free(above);
	return path;
}

static char *what_of(const struct tree *tree, const struct tree_node *node)
{
	char *text;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	(void)fprintf(out, "type %u mode %o %u:%u %u:%u time %lld.%u size %llu digest %u",
		      node->type, node->mode, node->uid, node->gid, node->rdev_major,
		      node->rdev_minor, (long long)node->mtime_s, node->mtime_ns,
		      (unsigned long long)node->size, node->digest[7]); /* to memory */
	for (uint32_t i = node->xattrs; i != TREE_NONE; i = tree->xattrs[i].next)
		(void)fprintf(out, " %s=%u/%02x", tree->text + tree->xattrs[i].name,
			      tree->xattrs[i].value_bytes,
			      (uint8_t)tree->text[tree->xattrs[i].value]); /* to memory */
	for (uint32_t i = 0; i < node->extents; i++) {
		const struct tree_extent *extent = &tree->extents[node->extent + i];

		(void)fprintf(out, " %u+%u@%u:%u", extent->file_block, extent->blocks,
			      tree->segments[extent->segment].digest[0],
			      extent->block); /* the same */
	}
	if (node->type == TREE_SYMLINK)
		(void)fprintf(out, " -> %s", tree->text + node->target); /* the same */
	cr_assert_eq(fclose(out), 0);
	return text;
}

static struct path *model_add(struct model *model, const struct tree *tree, uint32_t at,
			      uint64_t inodes)
{
	const struct tree_node *node = &tree->nodes[tree_inode(tree, at)];
	struct path *path = &model->paths[model->count++];

	cr_assert_leq(model->count, PATHS_MAX);
	*path = (struct path){
		.path = path_of(tree, at),
		.what = what_of(tree, node),
		.inode = inodes + tree_inode(tree, at),
		.is_directory = node->type == TREE_DIRECTORY,
		.is_opaque = node->flags & TREE_OPAQUE,
		.is_whiteout = node->type == TREE_WHITEOUT,
	};
	return path;
}

static void path_drop(struct path *path)
{
	free(path->path);
	free(path->what);
	path->path = path->what = NULL;
}

static void model_free(struct model *model)
{
	for (unsigned i = 0; i < model->count; i++)
		path_drop(&model->paths[i]);
	free(model);
}

/* Those below `path`, and, where asked, itself. */
static void model_drop(struct model *model, const char *path, bool itself)
{
	size_t bytes = strlen(path);

	for (unsigned i = 0; i < model->count; i++) {
		struct path *other = &model->paths[i];

		if (!other->path || strncmp(other->path, path, bytes))
			continue;
		if (other->path[bytes] == '/' || (itself && !other->path[bytes]))
			path_drop(other);
	}
}

static struct path *model_find(struct model *model, const char *path)
{
	for (unsigned i = 0; i < model->count; i++)
		if (model->paths[i].path && !strcmp(model->paths[i].path, path))
			return &model->paths[i];
	return NULL;
}

/* A layer over a model that is the lowest. */
static void model_lay(struct model *model, const struct tree *layer, uint64_t inodes)
{
	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(layer, at)) {
		struct model *one = calloc(1, sizeof *one);
		struct path *path = model_add(one, layer, at, inodes);
		struct path *was = model_find(model, path->path);

		if (!at && !layer->nodes[0].mode) {
			if (path->is_opaque)
				model_drop(model, "", false);
			model_free(one);
			continue;
		}
		if (!path->is_directory || path->is_opaque || (was && !was->is_directory))
			model_drop(model, path->path, true);
		else if (was)
			path_drop(was);
		if (path->is_whiteout) {
			path_drop(path);
		} else {
			cr_assert_lt(model->count, PATHS_MAX);
			path->is_opaque = false;
			model->paths[model->count++] = *path;
		}
		free(one);
	}
}

static int path_order(const void *a, const void *b)
{
	const struct path *x = a, *y = b;

	if (!x->path || !y->path)
		return !x->path - !y->path;
	return strcmp(x->path, y->path);
}

/* Sorted; inodes are then the number of the first path that has them. */
static void model_sort(struct model *model)
{
	unsigned count = 0;

	qsort(model->paths, model->count, sizeof *model->paths, path_order);
	while (count < model->count && model->paths[count].path)
		count++;
	model->count = count;
	for (unsigned i = 0; i < count; i++) {
		unsigned first = 0;

		while (model->paths[first].inode != model->paths[i].inode)
			first++;
		model->paths[i].inode = UINT64_MAX - first; /* no other number is so large */
		for (unsigned j = i + 1; j < count && first == i; j++)
			if (model->paths[j].inode == model->paths[i].inode)
				model->paths[j].inode = UINT64_MAX - first;
	}
}

static struct model *model_of(const struct tree *tree)
{
	struct model *model = calloc(1, sizeof *model);

	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at))
		(void)model_add(model, tree, at, 0); /* it stays in the list */
	return model;
}

static void models_compare(struct model *a, struct model *b, uint64_t seed)
{
	model_sort(a);
	model_sort(b);
	for (unsigned i = 0; i < a->count && i < b->count; i++) {
		struct path *x = &a->paths[i], *y = &b->paths[i];

		cr_assert_str_eq(x->path, y->path, "seed %llu", (unsigned long long)seed);
		cr_assert_str_eq(x->what, y->what, "%s, seed %llu", x->path,
				 (unsigned long long)seed);
		cr_assert_eq(x->inode, y->inode, "names of %s, seed %llu", x->path,
			     (unsigned long long)seed);
		cr_assert_eq(x->is_opaque, y->is_opaque, "%s, seed %llu", x->path,
			     (unsigned long long)seed);
	}
	cr_assert_eq(a->count, b->count, "seed %llu", (unsigned long long)seed);
}

static struct tree *layer_of(uint64_t seed, unsigned number)
{
	struct tree *layer = random_tree(&(struct random_tree){
		.seed = seed * LAYERS + number,
		.tries = 20 + (uint32_t)(seed % 5) * 20,
		.names = 6,
		.is_layer = number > 0,
	});

	if (number && seed % 3 == 0)
		layer->nodes[0].mode = 0;
	if (number && seed % 11 == 0)
		layer->nodes[0].flags |= TREE_OPAQUE;
	return layer;
}

/* ---- claims ---- */

Test(merge, layers_become_what_the_model_says)
{
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct model *model = calloc(1, sizeof *model), *result;
		struct tree *tree = tree_new();

		for (unsigned i = 0; i < LAYERS; i++) {
			struct tree *layer = layer_of(seed, i);

			model_lay(model, layer, (uint64_t)i << 32);
			cr_assert_eq(tree_merge(tree, layer, true), 0);
			tree_free(layer);
		}
		result = model_of(tree);
		models_compare(model, result, seed);
		model_free(model);
		model_free(result);
		tree_free(tree);
	}
}

Test(merge, layers_one_by_one_are_the_same_as_layers_made_one)
{
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct tree *one = tree_new(), *other = tree_new(), *layers[LAYERS];
		struct model *a, *b;

		for (unsigned i = 0; i < LAYERS; i++) {
			layers[i] = layer_of(seed, i);
			cr_assert_eq(tree_merge(one, layers[i], true), 0);
		}
		for (unsigned i = 2; i < LAYERS; i++)
			cr_assert_eq(tree_merge(layers[1], layers[i], false), 0);
		cr_assert_eq(tree_merge(other, layers[0], true), 0);
		cr_assert_eq(tree_merge(other, layers[1], true), 0);
		a = model_of(one);
		b = model_of(other);
		models_compare(a, b, seed);
		model_free(a);
		model_free(b);
		for (unsigned i = 0; i < LAYERS; i++)
			tree_free(layers[i]);
		tree_free(one);
		tree_free(other);
	}
}

static uint32_t file_in(struct tree *tree, uint32_t parent, const char *name, uint8_t segment)
{
	struct tree_extent extent = { .blocks = 1 };
	struct tree_segment has = { .digest = { segment, 1 }, .bytes = TREE_BLOCK_BYTES };
	uint32_t at;

	cr_assert_eq(tree_add(tree, parent, name, TREE_FILE, &at), 0);
	cr_assert_eq(tree_add_segment(tree, &has, &extent.segment), 0);
	cr_assert_eq(tree_add_extent(tree, at, &extent), 0);
	tree->nodes[at].size = 1;
	return at;
}

Test(merge, a_name_that_a_layer_replaces_leaves_the_others)
{
	struct tree *tree = tree_new(), *layer = tree_new();
	uint32_t a = file_in(tree, 0, "a", 1), b, c;

	cr_assert_eq(tree_link(tree, 0, "b", a, &b), 0);
	cr_assert_eq(tree_link(tree, 0, "c", a, &c), 0);
	(void)file_in(layer, 0, "a", 2);
	cr_assert_eq(tree_merge(tree, layer, true), 0);
	tree_sort(tree);
	cr_assert_eq(tree->nodes[tree_inode(tree, b)].names, 2);
	cr_assert_eq(tree_inode(tree, b), tree_inode(tree, c));
	cr_assert_neq(tree_inode(tree, b), tree_inode(tree, tree_find(tree, 0, "a", 1)));
	tree_free(tree);
	tree_free(layer);
}

Test(merge, segments_that_nothing_lies_in_make_room)
{
	struct tree *tree = tree_new();

	for (unsigned i = 0; i < 3 * TREE_SEGMENTS_MAX; i++) {
		struct tree *layer = tree_new();
		struct tree_segment more = { .bytes = 1 << 20 };
		struct tree_extent extent = { .blocks = 1 + i % 7 };
		uint32_t at;

		(void)file_in(layer, 0, i % 2 ? "odd" : "even", (uint8_t)i);
		memcpy(more.digest, &i, sizeof i);
		cr_assert_eq(tree_add(layer, 0, "file", TREE_FILE, &at), 0);
		cr_assert_eq(tree_add_segment(layer, &more, &extent.segment), 0);
		cr_assert_eq(tree_add_extent(layer, at, &extent), 0);
		layer->nodes[at].size = extent.blocks * TREE_BLOCK_BYTES;
		cr_assert_eq(tree_merge(tree, layer, true), 0, "%u", i);
		at = tree_find(tree, 0, "file", 4);
		cr_assert_eq(
			memcmp(tree->segments[tree->extents[tree->nodes[at].extent].segment].digest,
			       more.digest, DIGEST_BYTES),
			0);
		tree_free(layer);
	}
	tree_drop_segments(tree);
	cr_assert_eq(tree->segment_count, 3);
	tree_free(tree);
}

Test(merge, more_segments_than_an_image_may_have_are_refused)
{
	struct tree *tree = tree_new();
	unsigned i;
	int r = 0;

	for (i = 0; i <= TREE_SEGMENTS_MAX && r >= 0; i++) {
		struct tree *layer = tree_new();
		char name[16];
		uint32_t at = 0;

		(void)snprintf(name, sizeof name, "%u", i);
		at = file_in(layer, 0, name, (uint8_t)i);
		memcpy(layer->segments[layer->extents[layer->nodes[at].extent].segment].digest, &i,
		       sizeof i);
		r = tree_merge(tree, layer, true);
		tree_free(layer);
	}
	cr_assert_eq(r, -E2BIG);
	cr_assert_eq(i, TREE_SEGMENTS_MAX + 1);
	tree_free(tree);
}
