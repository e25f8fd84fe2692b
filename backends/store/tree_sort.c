/*
 * A tree in its one order: children by their names' bytes, and of several names of a node the
 * first one that a walk meets has all the rest. Called before a tree is written in any form. Must
 * hold: it needs no memory, so it cannot fail; what is in order already costs one look.
 */
#include <string.h>

#include "backends/store/tree.h"

static int name_order(const struct tree *tree, uint32_t a, uint32_t b)
{
	const struct tree_node *x = &tree->nodes[a], *y = &tree->nodes[b];
	size_t both = x->name_bytes < y->name_bytes ? x->name_bytes : y->name_bytes;
	int order = memcmp(tree->text + x->name, tree->text + y->name, both);

	return order ? order : (int)x->name_bytes - (int)y->name_bytes;
}

/* Without those that were removed; whether it is in order. */
static bool children_sift(struct tree *tree, uint32_t parent)
{
	uint32_t *slot = &tree->nodes[parent].first, last = TREE_NONE;
	bool in_order = true;

	while (*slot != TREE_NONE) {
		uint32_t at = *slot;

		if (tree->nodes[at].flags & TREE_REMOVED) {
			*slot = tree->nodes[at].next;
			continue;
		}
		if (last != TREE_NONE && name_order(tree, last, at) > 0)
			in_order = false;
		last = at;
		slot = &tree->nodes[at].next;
	}
	tree->nodes[parent].last = last;
	return in_order;
}

static uint32_t lists_merge(struct tree *tree, uint32_t a, uint32_t b)
{
	uint32_t head = TREE_NONE, *slot = &head;

	while (a != TREE_NONE && b != TREE_NONE) {
		uint32_t *less = name_order(tree, a, b) < 0 ? &a : &b;

		*slot = *less;
		slot = &tree->nodes[*less].next;
		*less = *slot;
	}
	*slot = a != TREE_NONE ? a : b;
	return head;
}

/* Lists of 1, 2, 4, … in their order, as binary digits: at most 32 wait to be merged. */
static void children_sort(struct tree *tree, uint32_t parent)
{
	uint32_t lists[32], at = tree->nodes[parent].first, all = TREE_NONE;

	memset(lists, 0xff, sizeof lists); /* TREE_NONE */
	while (at != TREE_NONE) {
		uint32_t next = tree->nodes[at].next, list = at;
		unsigned digit = 0;

		tree->nodes[at].next = TREE_NONE;
		for (; lists[digit] != TREE_NONE; digit++) {
			list = lists_merge(tree, lists[digit], list);
			lists[digit] = TREE_NONE;
		}
		lists[digit] = list;
		at = next;
	}
	for (unsigned digit = 0; digit < sizeof lists / sizeof *lists; digit++)
		if (lists[digit] != TREE_NONE)
			all = lists_merge(tree, lists[digit], all);
	tree->nodes[parent].first = all;
	for (at = all; at != TREE_NONE; at = tree->nodes[at].next)
		tree->nodes[parent].last = at;
}

/* `to` was a further name of `from`: now it has what `from` had. */
static void inode_move(struct tree *tree, uint32_t from, uint32_t to)
{
	const struct tree_node *old = &tree->nodes[from];
	struct tree_node *node = &tree->nodes[to];
	struct tree_node name = *node;

	*node = *old;
	node->parent = name.parent;
	node->first = name.first;
	node->last = name.last;
	node->next = name.next;
	node->name = name.name;
	node->name_bytes = name.name_bytes;
	node->flags = name.flags;
	node->hash_next = name.hash_next;
	node->mark = name.mark;
	node->link = TREE_NONE;
}

/* First who is first, in the mark of who has all; then all of them, each once. */
static void links_turn(struct tree *tree)
{
	for (uint32_t i = 0; i < tree->count; i++)
		tree->nodes[i].mark = TREE_NONE;
	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at)) {
		struct tree_node *inode = &tree->nodes[tree_inode(tree, at)];

		if (inode->mark == TREE_NONE)
			inode->mark = at;
	}
	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at)) {
		uint32_t had = tree_inode(tree, at), first = tree->nodes[had].mark;

		if (at != first)
			tree->nodes[at].link = first;
		else if (at != had)
			inode_move(tree, had, at);
	}
}

void tree_sort(struct tree *tree)
{
	bool has_links = false;

	for (uint32_t i = 0; i < tree->count; i++) {
		const struct tree_node *node = &tree->nodes[i];

		if (node->flags & TREE_REMOVED)
			continue;
		has_links |= node->link != TREE_NONE;
		if (node->type == TREE_DIRECTORY && !children_sift(tree, i))
			children_sort(tree, i);
	}
	if (has_links)
		links_turn(tree);
}
