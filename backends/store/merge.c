/*
 * Layers over trees. Called by who composes images and who packs layers. Must hold: the tree is
 * sound whatever the layer is, and laying two layers one after the other is the same as laying both
 * as one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/tree.h"
#include "engine/base/cleanup.h"

struct merge {
	struct tree *tree;
	const struct tree *layer;
	bool is_lowest;
	uint32_t *places;   /* of the layer's directories and inodes in the tree; TREE_NONE */
	uint32_t *segments; /* of the layer's segments in the tree; TREE_NONE */
};

void tree_drop_segments(struct tree *tree)
{
	uint32_t numbers[TREE_SEGMENTS_MAX], count = 0;

	memset(numbers, 0xff, sizeof numbers); /* TREE_NONE */
	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at)) {
		const struct tree_node *node = &tree->nodes[tree_inode(tree, at)];

		for (uint32_t i = 0; i < node->extents; i++)
			numbers[tree->extents[node->extent + i].segment] = 0;
	}
	for (uint32_t i = 0; i < tree->segment_count; i++)
		if (numbers[i] != TREE_NONE) {
			tree->segments[count] = tree->segments[i];
			numbers[i] = count++;
		}
	tree->segment_count = count;
	/* Of what is removed, too: nobody reads those, but their segments are to be there. */
	for (uint32_t i = 0; i < tree->extent_count; i++) {
		uint32_t *segment = &tree->extents[i].segment;

		*segment = numbers[*segment] == TREE_NONE ? 0 : numbers[*segment];
	}
}

/* The tree's number of a segment of the layer. */
static int segment_place(struct merge *merge, uint32_t segment, uint32_t *ret)
{
	const struct tree_segment *from = &merge->layer->segments[segment];
	int r = 0;

	if (merge->segments[segment] == TREE_NONE)
		r = tree_add_segment(merge->tree, from, &merge->segments[segment]);
	if (r == -E2BIG) {
		tree_drop_segments(merge->tree);
		memset(merge->segments, 0xff,
		       merge->layer->segment_count * sizeof *merge->segments);
		r = tree_add_segment(merge->tree, from, &merge->segments[segment]);
	}
	if (r < 0)
		return r;
	*ret = merge->segments[segment];
	return 0;
}

static int extents_lay(struct merge *merge, uint32_t at, const struct tree_node *from)
{
	for (uint32_t i = 0; i < from->extents; i++) {
		struct tree_extent extent = merge->layer->extents[from->extent + i];
		int r = segment_place(merge, extent.segment, &extent.segment);

		if (r >= 0)
			r = tree_add_extent(merge->tree, at, &extent);
		if (r < 0)
			return r;
	}
	return 0;
}

/* All that a node has of its own; a directory keeps what is in it. */
static int attributes_lay(struct merge *merge, uint32_t at, const struct tree_node *from)
{
	const struct tree *layer = merge->layer;
	struct tree_node *node = &merge->tree->nodes[at];
	int r = 0;

	node->mode = from->mode;
	node->uid = from->uid;
	node->gid = from->gid;
	node->rdev_major = from->rdev_major;
	node->rdev_minor = from->rdev_minor;
	node->mtime_s = from->mtime_s;
	node->mtime_ns = from->mtime_ns;
	node->size = from->size;
	memcpy(node->digest, from->digest, DIGEST_BYTES);
	node->xattrs = TREE_NONE;
	for (uint32_t i = from->xattrs; i != TREE_NONE && r >= 0; i = layer->xattrs[i].next)
		r = tree_set_xattr(merge->tree, at, layer->text + layer->xattrs[i].name,
				   layer->text + layer->xattrs[i].value,
				   layer->xattrs[i].value_bytes);
	if (r >= 0 && from->type == TREE_SYMLINK)
		r = tree_set_target(merge->tree, at, layer->text + from->target);
	return r < 0 ? r : extents_lay(merge, at, from);
}

static void children_remove(struct tree *tree, uint32_t directory)
{
	for (uint32_t at = tree->nodes[directory].first; at != TREE_NONE; at = tree->nodes[at].next)
		tree_remove(tree, at);
}

/* `was`: what has the name in the tree now; TREE_NONE. */
static int directory_lay(struct merge *merge, uint32_t from, uint32_t parent, uint32_t was)
{
	const struct tree_node *node = &merge->layer->nodes[from];
	struct tree *tree = merge->tree;
	uint32_t at = was;
	bool hides = node->flags & TREE_OPAQUE;
	int r;

	if (was != TREE_NONE && tree->nodes[was].type == TREE_DIRECTORY) {
		if (hides)
			children_remove(tree, was);
	} else {
		/* What hid what is below this tree goes on hiding it. */
		hides |= was != TREE_NONE;
		if (was != TREE_NONE)
			tree_remove(tree, was);
		r = tree_add(tree, parent, tree_name(merge->layer, from), TREE_DIRECTORY, &at);
		if (r < 0)
			return r;
	}
	if (hides && !merge->is_lowest)
		tree->nodes[at].flags |= TREE_OPAQUE;
	merge->places[from] = at;
	return attributes_lay(merge, at, node);
}

static int node_lay(struct merge *merge, uint32_t from)
{
	const struct tree *layer = merge->layer;
	const struct tree_node *node = &layer->nodes[from];
	uint32_t parent = merge->places[node->parent], inode = tree_inode(layer, from), at;
	const char *name = tree_name(layer, from);
	uint32_t was = tree_find(merge->tree, parent, name, node->name_bytes);
	int r;

	if (node->type == TREE_DIRECTORY)
		return directory_lay(merge, from, parent, was);
	if (was != TREE_NONE)
		tree_remove(merge->tree, was);
	if (node->type == TREE_WHITEOUT && merge->is_lowest)
		return 0;
	if (merge->places[inode] != TREE_NONE)
		return tree_link(merge->tree, parent, name, merge->places[inode], &at);
	r = tree_add(merge->tree, parent, name, (enum tree_type)node->type, &at);
	if (r < 0)
		return r;
	merge->places[inode] = at;
	return attributes_lay(merge, at, &layer->nodes[inode]);
}

static int root_lay(struct merge *merge)
{
	const struct tree_node *root = &merge->layer->nodes[0];

	merge->places[0] = 0;
	if (root->flags & TREE_OPAQUE) {
		children_remove(merge->tree, 0);
		if (!merge->is_lowest)
			merge->tree->nodes[0].flags |= TREE_OPAQUE;
	}
	return root->mode ? attributes_lay(merge, 0, root) : 0;
}

int tree_merge(struct tree *tree, const struct tree *layer, bool is_lowest)
{
	auto_free uint32_t *places = malloc(layer->count * sizeof *places);
	auto_free uint32_t *segments = malloc((layer->segment_count + 1) * sizeof *segments);
	struct merge merge = {
		.tree = tree,
		.layer = layer,
		.is_lowest = is_lowest,
		.places = places,
		.segments = segments,
	};
	int r;

	if (!places || !segments)
		return -ENOMEM;
	memset(places, 0xff, layer->count * sizeof *places);
	memset(segments, 0xff, layer->segment_count * sizeof *segments);
	r = root_lay(&merge);
	for (uint32_t at = tree_walk(layer, 0); at != TREE_NONE && r >= 0;
	     at = tree_walk(layer, at))
		r = node_lay(&merge, at);
	return r;
}
