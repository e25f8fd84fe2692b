/* Trees by chance, for tests of what is done with trees: the same seed gives the same tree. */
#pragma once

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backends/store/tree.h"

struct chance {
	uint64_t state;
};

static inline uint32_t chance_below(struct chance *chance, uint32_t below)
{
	chance->state ^= chance->state << 13;
	chance->state ^= chance->state >> 7;
	chance->state ^= chance->state << 17;
	return (uint32_t)(chance->state >> 33) % below;
}

static inline bool chance_one_in(struct chance *chance, uint32_t many)
{
	return !chance_below(chance, many);
}

/* Few names, so that layers meet; some of any bytes. */
static inline void chance_name(struct chance *chance, char *ret, uint32_t names)
{
	uint32_t which = chance_below(chance, names);

	if (which % 7 == 3)
		(void)snprintf(ret, TREE_NAME_MAX + 1, "\xff\x01 %u", which);
	else if (which % 7 == 5)
		(void)snprintf(ret, TREE_NAME_MAX + 1, "!%0200u", which);
	else
		(void)snprintf(ret, TREE_NAME_MAX + 1, "n%u", which);
}

static inline void chance_attributes(struct chance *chance, struct tree *tree, uint32_t at)
{
	struct tree_node *node = &tree->nodes[at];
	char value[64];

	node->mode = chance_below(chance, 010000);
	node->uid = chance_one_in(chance, 3) ? 70000 + chance_below(chance, 100) : 0;
	node->gid = chance_below(chance, 3);
	node->mtime_s = chance_one_in(chance, 2) ? 1700000000 :
						   (int64_t)chance_below(chance, 99) - 9;
	node->mtime_ns = chance_one_in(chance, 2) ? 0 : chance_below(chance, 1000000000);
	if (!chance_one_in(chance, 4))
		return;
	memset(value, (int)chance_below(chance, 256), sizeof value);
	for (uint32_t i = chance_below(chance, 4); i; i--) {
		char name[32];

		(void)snprintf(name, sizeof name, "user.x%u", chance_below(chance, 9));
		cr_assert_eq(tree_set_xattr(tree, at, name, value, chance_below(chance, 64)), 0);
	}
	if (chance_one_in(chance, 3))
		cr_assert_eq(tree_set_xattr(tree, at, "security.capability", value, 20), 0);
}

/* Extents of one of four segments of 4096 blocks each, some with holes. */
static inline void chance_contents(struct chance *chance, struct tree *tree, uint32_t at)
{
	uint32_t file_block = 0, count = chance_below(chance, 4);

	for (uint32_t i = 0; i < count; i++) {
		struct tree_extent extent;

		extent.segment = chance_below(chance, tree->segment_count);
		extent.blocks = 1 + chance_below(chance, 64);
		extent.block = chance_below(chance, 4000);
		extent.file_block = file_block;
		if (chance_one_in(chance, 3))
			extent.file_block += 1 + chance_below(chance, 32);
		file_block = extent.file_block + extent.blocks;
		cr_assert_eq(tree_add_extent(tree, at, &extent), 0);
	}
	tree->nodes[at].size = (uint64_t)file_block * TREE_BLOCK_BYTES;
	if (file_block)
		tree->nodes[at].size -= chance_below(chance, TREE_BLOCK_BYTES);
	if (chance_one_in(chance, 4))
		tree->nodes[at].size += chance_below(chance, 1 << 20); /* a hole at its end */
	memset(tree->nodes[at].digest, (int)chance_below(chance, 256), DIGEST_BYTES);
}

struct random_tree {
	uint64_t seed;
	uint32_t tries, names; /* so many nodes are tried, of so many names */
	bool is_layer;	       /* whiteouts and opaque directories, too */
};

static inline void random_node(struct chance *chance, struct tree *tree,
			       const struct random_tree *how)
{
	uint32_t parent = chance_below(chance, tree->count), of = chance_below(chance, tree->count);
	uint32_t type = 1 + chance_below(chance, how->is_layer ? TREE_WHITEOUT : TREE_BLOCK), at;
	char name[TREE_NAME_MAX + 1];

	chance_name(chance, name, how->names);
	if (tree->nodes[parent].type != TREE_DIRECTORY && !chance_one_in(chance, 8))
		return;
	if (chance_one_in(chance, 8)) {
		(void)tree_link(tree, parent, name, of, &at); /* where it may be */
		return;
	}
	if (chance_one_in(chance, 2))
		type = chance_one_in(chance, 2) ? TREE_DIRECTORY : TREE_FILE;
	if (tree_add(tree, parent, name, (enum tree_type)type, &at) < 0 || type == TREE_WHITEOUT)
		return;
	chance_attributes(chance, tree, at);
	if (type == TREE_FILE)
		chance_contents(chance, tree, at);
	else if (type == TREE_SYMLINK)
		cr_assert_eq(tree_set_target(tree, at, name), 0);
	else if (type == TREE_DIRECTORY && how->is_layer && chance_one_in(chance, 4))
		tree->nodes[at].flags |= TREE_OPAQUE;
	if (type == TREE_CHARACTER || type == TREE_BLOCK) {
		tree->nodes[at].rdev_major = 1 + chance_below(chance, 4000);
		tree->nodes[at].rdev_minor = chance_below(chance, 1 << 20);
	}
}

static inline struct tree *random_tree(const struct random_tree *how)
{
	struct chance chance = { .state = how->seed * 0x9e3779b97f4a7c15u + 88172645463325252u };
	struct tree *tree = tree_new();
	uint32_t at;

	cr_assert_not_null(tree);
	for (unsigned i = 0; i < 4; i++) {
		struct tree_segment segment = { .bytes = 4096u * TREE_BLOCK_BYTES };

		segment.digest[0] = (uint8_t)(1 + (i + how->seed) % 6);
		cr_assert_eq(tree_add_segment(tree, &segment, &at), 0);
	}
	chance_attributes(&chance, tree, 0);
	for (uint32_t i = 0; i < how->tries; i++)
		random_node(&chance, tree, how);
	for (uint32_t i = 0; i < how->tries / 16; i++)
		tree_remove(tree, chance_below(&chance, tree->count));
	return tree;
}
