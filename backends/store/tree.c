/*
 * Trees in memory: nodes, their names, links, attributes and extents. Called by whoever makes or
 * merges images. Must hold: whatever is called with, a tree stays sound: no two children of one
 * name, no cycles, a link leads to a node that is no link. Nodes are found by a hash whose seed is
 * the process's, so who chooses names cannot make it slow. What is removed stays in its parent's
 * list, marked, until tree_sort(): removing is then as cheap as adding.
 */
#include "backends/store/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "backends/store/tree_names.h"

enum { FIRST_COUNT = 64, XATTR_NAME_BYTES_MAX = 255 };

/* ---- memory ---- */

/* Room for `more` items behind `count`; *size is how many there is room for. */
static int array_grow(void *slot, uint32_t *size, uint32_t count, uint32_t more, size_t item_bytes)
{
	uint64_t want = (uint64_t)count + more, now = *size ? *size : FIRST_COUNT;
	void *grown;

	if (want <= *size)
		return 0;
	while (now < want)
		now *= 2;
	if (want > UINT32_MAX)
		return -E2BIG;
	if (now > UINT32_MAX)
		now = UINT32_MAX;
	grown = reallocarray(*(void **)slot, now, item_bytes);
	if (!grown)
		return -ENOMEM;
	*(void **)slot = grown;
	*size = (uint32_t)now;
	return 0;
}

/* `bytes`, which may be of the text itself, and a NUL, at the end of the text. */
static int text_add(struct tree *tree, const void *bytes, size_t count, uint32_t *ret)
{
	size_t want = tree->text_bytes + count + 1, size = tree->text_size ? tree->text_size : 4096;
	uintptr_t inside = (uintptr_t)bytes - (uintptr_t)tree->text;
	bool is_inside = tree->text && inside < tree->text_bytes;

	if (want > UINT32_MAX)
		return -E2BIG;
	while (size < want)
		size *= 2;
	if (size != tree->text_size) {
		char *grown = realloc(tree->text, size);

		if (!grown)
			return -ENOMEM;
		tree->text = grown;
		tree->text_size = size;
	}
	if (is_inside)
		bytes = tree->text + inside; /* it may have moved */
	*ret = (uint32_t)tree->text_bytes;
	if (count)
		memcpy(tree->text + tree->text_bytes, bytes, count);
	tree->text[want - 1] = 0;
	tree->text_bytes = want;
	return 0;
}

/* ---- by parent and name ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t name_hash(const struct tree *tree, uint32_t parent, const char *name, size_t bytes)
{
	uint64_t hash = mix(tree->seed ^ parent, 0x9e3779b97f4a7c15u ^ bytes), word;

	for (; bytes >= sizeof word; bytes -= sizeof word, name += sizeof word) {
		memcpy(&word, name, sizeof word);
		hash = mix(hash ^ word, tree->seed | 1);
	}
	word = 0;
	memcpy(&word, name, bytes);
	return mix(hash ^ word, tree->seed ^ 0xd6e8feb86659fd93u);
}

static uint32_t *bucket_of(const struct tree *tree, uint32_t parent, const char *name, size_t bytes)
{
	return &tree->buckets[name_hash(tree, parent, name, bytes) & (tree->bucket_count - 1)];
}

static void bucket_enter(struct tree *tree, uint32_t at)
{
	struct tree_node *node = &tree->nodes[at];
	uint32_t *bucket = bucket_of(tree, node->parent, tree_name(tree, at), node->name_bytes);

	node->hash_next = *bucket;
	*bucket = at;
}

static void bucket_leave(struct tree *tree, uint32_t at)
{
	const struct tree_node *node = &tree->nodes[at];
	uint32_t *slot = bucket_of(tree, node->parent, tree_name(tree, at), node->name_bytes);

	while (*slot != at)
		slot = &tree->nodes[*slot].hash_next;
	*slot = node->hash_next;
}

static int buckets_grow(struct tree *tree)
{
	uint32_t count = tree->bucket_count ? 2 * tree->bucket_count : FIRST_COUNT;
	uint32_t *buckets;

	if (tree->count < tree->bucket_count)
		return 0;
	buckets = malloc(count * sizeof *buckets);
	if (!buckets)
		return -ENOMEM;
	memset(buckets, 0xff, count * sizeof *buckets); /* TREE_NONE */
	free(tree->buckets);
	tree->buckets = buckets;
	tree->bucket_count = count;
	for (uint32_t i = 1; i < tree->count; i++)
		if (!(tree->nodes[i].flags & TREE_REMOVED))
			bucket_enter(tree, i);
	return 0;
}

uint32_t tree_find(const struct tree *tree, uint32_t parent, const char *name, size_t bytes)
{
	uint32_t at;

	if (!bytes)
		return TREE_NONE; /* nothing is called so, but the root */
	for (at = *bucket_of(tree, parent, name, bytes); at != TREE_NONE;
	     at = tree->nodes[at].hash_next)
		if (tree->nodes[at].parent == parent && tree->nodes[at].name_bytes == bytes &&
		    !memcmp(tree_name(tree, at), name, bytes))
			return at;
	return TREE_NONE;
}

const char *tree_name(const struct tree *tree, uint32_t node)
{
	return tree->text + tree->nodes[node].name;
}

/* ---- nodes ---- */

struct tree *tree_new(void)
{
	struct tree *tree = calloc(1, sizeof *tree);
	const void *random = (const void *)getauxval(AT_RANDOM);
	uint32_t empty;

	if (!tree)
		return NULL;
	if (random)
		memcpy(&tree->seed, random, sizeof tree->seed);
	if (text_add(tree, "", 0, &empty) < 0 || buckets_grow(tree) < 0 ||
	    array_grow(&tree->nodes, &tree->size, 0, 1, sizeof *tree->nodes) < 0) {
		tree_free(tree);
		return NULL;
	}
	tree->nodes[0] = (struct tree_node){
		.parent = TREE_NONE,
		.first = TREE_NONE,
		.last = TREE_NONE,
		.next = TREE_NONE,
		.type = TREE_DIRECTORY,
		.mode = 0755,
		.link = TREE_NONE,
		.names = 1,
		.xattrs = TREE_NONE,
		.hash_next = TREE_NONE,
	};
	tree->count = 1;
	return tree;
}

void tree_free(struct tree *tree)
{
	if (!tree)
		return;
	free(tree->nodes);
	free(tree->text);
	free(tree->extents);
	free(tree->segments);
	free(tree->xattrs);
	free(tree->buckets);
	free(tree);
}

bool tree_name_ok(const char *name, size_t bytes)
{
	if (!bytes || bytes > TREE_NAME_MAX || memchr(name, '/', bytes) || memchr(name, 0, bytes))
		return false;
	return !(name[0] == '.' && (bytes == 1 || (bytes == 2 && name[1] == '.')));
}

/* May there be a child of that name? */
static int place_check(const struct tree *tree, uint32_t parent, const char *name, size_t bytes)
{
	uint32_t depth = 1;

	if (!tree_name_ok(name, bytes))
		return -EINVAL;
	if (tree->nodes[parent].type != TREE_DIRECTORY || tree->nodes[parent].flags & TREE_REMOVED)
		return -ENOTDIR;
	for (uint32_t at = parent; at; at = tree->nodes[at].parent)
		if (++depth > TREE_DEPTH_MAX)
			return -ELOOP;
	if (tree->count >= TREE_NODES_MAX)
		return -E2BIG;
	return tree_find(tree, parent, name, bytes) == TREE_NONE ? 0 : -EEXIST;
}

static int node_add(struct tree *tree, const struct tree_node *like, const char *name, size_t bytes)
{
	struct tree_node *node, *parent;
	uint32_t text, at;
	int r;

	r = array_grow(&tree->nodes, &tree->size, tree->count, 1, sizeof *tree->nodes);
	if (r >= 0)
		r = buckets_grow(tree);
	if (r >= 0)
		r = text_add(tree, name, bytes, &text);
	if (r < 0)
		return r;
	at = tree->count++;
	node = &tree->nodes[at];
	*node = *like;
	node->name = text;
	node->name_bytes = (uint16_t)bytes;
	node->first = node->last = node->next = TREE_NONE;
	bucket_enter(tree, at);
	parent = &tree->nodes[node->parent];
	if (parent->last == TREE_NONE)
		parent->first = at;
	else
		tree->nodes[parent->last].next = at;
	parent->last = at;
	return (int)at;
}

int tree_add_named(struct tree *tree, uint32_t parent, struct tree_text name, enum tree_type type,
		   uint32_t *ret)
{
	struct tree_node node = {
		.parent = parent,
		.type = (uint8_t)type,
		.link = TREE_NONE,
		.names = 1,
		.xattrs = TREE_NONE,
	};
	int r;

	if (type < TREE_DIRECTORY || type > TREE_WHITEOUT)
		return -EINVAL;
	r = place_check(tree, parent, name.bytes, name.count);
	if (r >= 0)
		r = node_add(tree, &node, name.bytes, name.count);
	if (r < 0)
		return r;
	*ret = (uint32_t)r;
	return 0;
}

int tree_add(struct tree *tree, uint32_t parent, const char *name, enum tree_type type,
	     uint32_t *ret)
{
	return tree_add_named(tree, parent, (struct tree_text){ name, strlen(name) }, type, ret);
}

uint32_t tree_inode(const struct tree *tree, uint32_t node)
{
	return tree->nodes[node].link == TREE_NONE ? node : tree->nodes[node].link;
}

int tree_link_named(struct tree *tree, uint32_t parent, struct tree_text name, uint32_t of,
		    uint32_t *ret)
{
	uint32_t inode = tree_inode(tree, of);
	struct tree_node node = {
		.parent = parent,
		.type = tree->nodes[inode].type,
		.link = inode,
		.xattrs = TREE_NONE,
	};
	int r;

	if (node.type == TREE_DIRECTORY || node.type == TREE_WHITEOUT || !tree->nodes[inode].names)
		return -EINVAL;
	r = place_check(tree, parent, name.bytes, name.count);
	if (r >= 0)
		r = node_add(tree, &node, name.bytes, name.count);
	if (r < 0)
		return r;
	tree->nodes[inode].names++;
	*ret = (uint32_t)r;
	return 0;
}

int tree_link(struct tree *tree, uint32_t parent, const char *name, uint32_t of, uint32_t *ret)
{
	return tree_link_named(tree, parent, (struct tree_text){ name, strlen(name) }, of, ret);
}

/* The next one of `node` and what is below it; TREE_NONE at the end. */
static uint32_t walk_within(const struct tree *tree, uint32_t node, uint32_t top)
{
	uint32_t at = tree->nodes[node].first;

	while (at == TREE_NONE && node != top) {
		at = tree->nodes[node].next;
		node = tree->nodes[node].parent;
	}
	return at;
}

uint32_t tree_walk(const struct tree *tree, uint32_t node)
{
	do
		node = walk_within(tree, node, 0);
	while (node != TREE_NONE && tree->nodes[node].flags & TREE_REMOVED);
	return node;
}

void tree_remove(struct tree *tree, uint32_t top)
{
	if (!top || tree->nodes[top].flags & TREE_REMOVED)
		return; /* the root stays */
	for (uint32_t at = top; at != TREE_NONE; at = walk_within(tree, at, top)) {
		struct tree_node *node = &tree->nodes[at];

		if (node->flags & TREE_REMOVED)
			continue;
		bucket_leave(tree, at);
		node->flags |= TREE_REMOVED;
		tree->nodes[tree_inode(tree, at)].names--;
	}
	/* Nothing leads there any more: it is not walked again. */
	tree->nodes[top].first = tree->nodes[top].last = TREE_NONE;
}

/* ---- what nodes have ---- */

int tree_set_target_named(struct tree *tree, uint32_t node, struct tree_text target)
{
	uint32_t text;
	int r;

	node = tree_inode(tree, node);
	if (tree->nodes[node].type != TREE_SYMLINK || !target.count ||
	    target.count > TREE_TARGET_MAX || memchr(target.bytes, 0, target.count))
		return -EINVAL;
	r = text_add(tree, target.bytes, target.count, &text);
	if (r < 0)
		return r;
	tree->nodes[node].target = text;
	tree->nodes[node].size = target.count;
	return 0;
}

int tree_set_target(struct tree *tree, uint32_t node, const char *target)
{
	return tree_set_target_named(tree, node, (struct tree_text){ target, strlen(target) });
}

static bool xattr_name_ok(const char *name)
{
	if (strlen(name) > XATTR_NAME_BYTES_MAX ||
	    !strncmp(name, TREE_OVERLAY_PREFIX, sizeof TREE_OVERLAY_PREFIX - 1))
		return false;
	return (!strncmp(name, "user.", 5) && name[5]) ||
	       (!strncmp(name, "trusted.", 8) && name[8]) ||
	       (!strncmp(name, "security.", 9) && name[9]) ||
	       !strcmp(name, "system.posix_acl_access") ||
	       !strcmp(name, "system.posix_acl_default");
}

int tree_set_xattr(struct tree *tree, uint32_t node, const char *name, const void *value,
		   size_t bytes)
{
	size_t total = strlen(name) + bytes, count = 1;
	uint32_t before = TREE_NONE, after = TREE_NONE, same = TREE_NONE;
	struct tree_xattr xattr = { .value_bytes = (uint32_t)bytes };
	int r;

	node = tree_inode(tree, node);
	if (!xattr_name_ok(name) || tree->nodes[node].type == TREE_WHITEOUT)
		return -EINVAL;
	for (uint32_t at = tree->nodes[node].xattrs; at != TREE_NONE; at = tree->xattrs[at].next) {
		const char *other = tree->text + tree->xattrs[at].name;
		int order = strcmp(other, name);

		if (!order) {
			same = at;
			continue;
		}
		if (order < 0)
			before = at;
		else if (after == TREE_NONE)
			after = at;
		total += strlen(other) + tree->xattrs[at].value_bytes;
		count++;
	}
	if (total > TREE_XATTRS_BYTES_MAX || count > TREE_XATTRS_MAX)
		return -E2BIG;
	r = text_add(tree, value, bytes, &xattr.value);
	if (r >= 0 && same != TREE_NONE) {
		tree->xattrs[same].value = xattr.value;
		tree->xattrs[same].value_bytes = xattr.value_bytes;
		return 0;
	}
	if (r >= 0)
		r = text_add(tree, name, strlen(name), &xattr.name);
	if (r >= 0)
		r = array_grow(&tree->xattrs, &tree->xattr_size, tree->xattr_count, 1,
			       sizeof *tree->xattrs);
	if (r < 0)
		return r;
	xattr.next = after;
	tree->xattrs[tree->xattr_count] = xattr;
	if (before == TREE_NONE)
		tree->nodes[node].xattrs = tree->xattr_count++;
	else
		tree->xattrs[before].next = tree->xattr_count++;
	return 0;
}

/* At the end of all extents, where the last of them can be added to. */
static int extents_move(struct tree *tree, struct tree_node *node)
{
	int r;

	if (node->extents && node->extent + node->extents == tree->extent_count)
		return array_grow(&tree->extents, &tree->extent_size, tree->extent_count, 1,
				  sizeof *tree->extents);
	r = array_grow(&tree->extents, &tree->extent_size, tree->extent_count, node->extents + 1,
		       sizeof *tree->extents);
	if (r < 0)
		return r;
	if (node->extents)
		memcpy(tree->extents + tree->extent_count, tree->extents + node->extent,
		       node->extents * sizeof *tree->extents);
	node->extent = tree->extent_count;
	tree->extent_count += node->extents;
	return 0;
}

int tree_add_extent(struct tree *tree, uint32_t at, const struct tree_extent *extent)
{
	struct tree_node *node = &tree->nodes[tree_inode(tree, at)];
	int r;

	if (node->type != TREE_FILE || !extent->blocks || extent->segment >= tree->segment_count ||
	    extent->blocks > UINT32_MAX - extent->file_block ||
	    extent->blocks > UINT32_MAX - extent->block)
		return -EINVAL;
	if (node->extents) {
		struct tree_extent *last = &tree->extents[node->extent + node->extents - 1];

		if (extent->file_block < last->file_block + last->blocks)
			return -EINVAL;
		if (extent->file_block == last->file_block + last->blocks &&
		    extent->segment == last->segment &&
		    extent->block == last->block + last->blocks) {
			last->blocks += extent->blocks;
			return 0;
		}
	}
	r = extents_move(tree, node);
	if (r < 0)
		return r;
	tree->extents[tree->extent_count++] = *extent;
	node->extents++;
	return 0;
}

int tree_add_segment(struct tree *tree, const struct tree_segment *segment, uint32_t *ret)
{
	int r;

	for (uint32_t i = 0; i < tree->segment_count; i++)
		if (!memcmp(tree->segments[i].digest, segment->digest, DIGEST_BYTES)) {
			*ret = i;
			return 0;
		}
	if (tree->segment_count == TREE_SEGMENTS_MAX)
		return -E2BIG;
	r = array_grow(&tree->segments, &tree->segment_size, tree->segment_count, 1,
		       sizeof *tree->segments);
	if (r < 0)
		return r;
	*ret = tree->segment_count;
	tree->segments[tree->segment_count++] = *segment;
	return 0;
}
