/*
 * How large things become in an EROFS image, and the blocks of directories. Called by
 * erofs_write.c, for each node when places are given and again when it is written. Must hold: both
 * times the answer is the same, and it depends on the tree alone.
 */
#include "backends/store/erofs_shape.h"

#include <errno.h>
#include <string.h>

#include "backends/store/erofs.h"

enum {
	ENTRY_BYTES = sizeof(struct erofs_entry),
	/* A name has a byte. */
	ENTRIES_MAX = EROFS_BLOCK_BYTES / (ENTRY_BYTES + 1),
	/* In the kernel's order of struct erofs_entry's type. */
	KIND_FILE = 1,
	KIND_DIRECTORY,
	KIND_CHARACTER,
	KIND_BLOCK,
	KIND_FIFO,
	KIND_SOCKET,
	KIND_SYMLINK,
};

/* ---- directories ---- */

void erofs_entries_begin(struct erofs_entries *entries, const struct erofs_measure *measure,
			 uint32_t directory)
{
	const struct tree *tree = measure->tree;

	*entries = (struct erofs_entries){
		.tree = tree,
		.directory = directory,
		.child = tree->nodes[directory].first,
		.parent = directory ? tree->nodes[directory].parent : 0,
	};
}

static uint8_t kind_of(const struct tree_node *node)
{
	switch (node->type) {
	case TREE_DIRECTORY:
		return KIND_DIRECTORY;
	case TREE_SYMLINK:
		return KIND_SYMLINK;
	case TREE_FIFO:
		return KIND_FIFO;
	case TREE_SOCKET:
		return KIND_SOCKET;
	case TREE_CHARACTER:
	case TREE_WHITEOUT:
		return KIND_CHARACTER;
	case TREE_BLOCK:
		return KIND_BLOCK;
	default:
		return KIND_FILE;
	}
}

struct entry {
	const char *name;
	uint32_t name_bytes, node;
};

/* What comes next; no name at the end. */
static struct entry entry_next(const struct erofs_entries *entries)
{
	const struct tree *tree = entries->tree;
	struct entry dot = { ".", 1, entries->directory }, child = { 0 };

	if (entries->dots)
		dot = (struct entry){ "..", 2, entries->parent };
	if (entries->child != TREE_NONE)
		child = (struct entry){
			.name = tree_name(tree, entries->child),
			.name_bytes = tree->nodes[entries->child].name_bytes,
			.node = entries->child,
		};
	if (entries->dots == 2)
		return child;
	return !child.name || strcmp(dot.name, child.name) < 0 ? dot : child;
}

static void entry_pass(struct erofs_entries *entries, const struct entry *entry)
{
	if (entry->node == entries->child)
		entries->child = entries->tree->nodes[entries->child].next;
	else
		entries->dots++;
}

static void entries_write(const struct erofs_entries *entries, const struct entry *list,
			  uint32_t count, uint8_t block[EROFS_BLOCK_BYTES])
{
	uint32_t at = count * ENTRY_BYTES;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t inode = tree_inode(entries->tree, list[i].node);
		struct erofs_entry entry = {
			.name = (uint16_t)at,
			.type = kind_of(&entries->tree->nodes[inode]),
		};

		if (entries->places)
			entry.node = entries->places[inode].node;
		memcpy(block + (size_t)i * ENTRY_BYTES, &entry, sizeof entry);
		memcpy(block + at, list[i].name, list[i].name_bytes);
		at += list[i].name_bytes;
	}
	memset(block + at, 0, EROFS_BLOCK_BYTES - at);
}

uint32_t erofs_entries_block(struct erofs_entries *entries, uint8_t block[EROFS_BLOCK_BYTES])
{
	struct entry list[ENTRIES_MAX];
	uint32_t count = 0, used = 0;

	while (count < ENTRIES_MAX) {
		struct entry entry = entry_next(entries);

		if (!entry.name || used + ENTRY_BYTES + entry.name_bytes > EROFS_BLOCK_BYTES)
			break;
		used += ENTRY_BYTES + entry.name_bytes;
		list[count++] = entry;
		entry_pass(entries, &entry);
	}
	if (count && entries->places)
		entries_write(entries, list, count, block);
	return used;
}

static int directory_shape(const struct erofs_measure *measure, uint32_t at,
			   struct erofs_shape *shape)
{
	const struct tree *tree = measure->tree;
	struct erofs_entries entries;
	uint32_t used, last = 0;

	shape->names = 2;
	for (uint32_t i = tree->nodes[at].first; i != TREE_NONE; i = tree->nodes[i].next)
		shape->names += tree->nodes[i].type == TREE_DIRECTORY;
	erofs_entries_begin(&entries, measure, at);
	while ((used = erofs_entries_block(&entries, NULL))) {
		if (last)
			shape->size += EROFS_BLOCK_BYTES;
		last = used;
	}
	shape->size += last;
	return 0;
}

/* ---- files ---- */

/*
 * The largest chunk that every extent begins and ends at a multiple of; the last may end with the
 * file. What is dense is one chunk.
 */
static int file_shape(const struct tree *tree, const struct tree_node *node,
		      struct erofs_shape *shape)
{
	uint64_t blocks = (node->size + EROFS_BLOCK_BYTES - 1) / EROFS_BLOCK_BYTES, ends = 0;
	uint32_t bits = 0;

	shape->size = node->size;
	if (!node->size)
		return node->extents ? -EINVAL : 0;
	for (uint32_t i = 0; i < node->extents; i++) {
		const struct tree_extent *extent = &tree->extents[node->extent + i];
		uint64_t end = (uint64_t)extent->file_block + extent->blocks;

		if (end > blocks)
			return -EINVAL;
		ends |= extent->file_block | (end == blocks ? 0 : end);
	}
	while (bits < EROFS_CHUNK_BITS_MAX && !(ends >> bits & 1) && 1ull << bits < blocks)
		bits++;
	blocks = (blocks + (1ull << bits) - 1) >> bits;
	if (blocks > EROFS_INDEX_MAX)
		return -EFBIG;
	shape->layout = EROFS_LAYOUT_CHUNKS;
	shape->chunk_bits = bits;
	shape->chunks = (uint32_t)blocks;
	return 0;
}

/* ---- attributes ---- */

uint8_t erofs_xattr_prefix(const char *name, const char **ret_suffix)
{
	static const struct {
		const char *prefix;
		uint8_t number;
	} prefixes[] = {
		{ "user.", EROFS_XATTR_USER },
		{ "trusted.", EROFS_XATTR_TRUSTED },
		{ "security.", EROFS_XATTR_SECURITY },
		{ "system.posix_acl_access", EROFS_XATTR_ACL_ACCESS },
		{ "system.posix_acl_default", EROFS_XATTR_ACL_DEFAULT },
	};

	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
		size_t bytes = strlen(prefixes[i].prefix);

		if (strncmp(name, prefixes[i].prefix, bytes))
			continue;
		*ret_suffix = name + bytes;
		return prefixes[i].number;
	}
	return 0; /* no tree has such a name */
}

static uint32_t xattr_bytes(const char *name, uint32_t value_bytes)
{
	const char *suffix = "";

	(void)erofs_xattr_prefix(name, &suffix); /* only its length is wanted */
	return ((uint32_t)(sizeof(struct erofs_xattr) + strlen(suffix)) + value_bytes + 3) & ~3u;
}

static uint32_t xattrs_bytes(const struct tree *tree, const struct tree_node *node)
{
	uint32_t bytes = node->flags & TREE_OPAQUE ? xattr_bytes("trusted.overlay.opaque", 1) : 0;

	for (uint32_t at = node->xattrs; at != TREE_NONE; at = tree->xattrs[at].next)
		bytes += xattr_bytes(tree->text + tree->xattrs[at].name,
				     tree->xattrs[at].value_bytes);
	return bytes ? bytes + (uint32_t)sizeof(struct erofs_xattr_head) : 0;
}

/* ---- all of it ---- */

void erofs_measure_time(struct erofs_measure *measure)
{
	const struct tree *tree = measure->tree;
	uint64_t votes = 0;

	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at)) {
		const struct tree_node *node = &tree->nodes[at];
		bool same = node->mtime_s == measure->mtime_s &&
			    node->mtime_ns == measure->mtime_ns;

		if (node->link != TREE_NONE)
			continue;
		if (!votes) {
			measure->mtime_s = node->mtime_s;
			measure->mtime_ns = node->mtime_ns;
			same = true;
		}
		votes += same ? 1 : UINT64_MAX; /* one less */
	}
}

/* What does not fill a block stands behind the inode, where both are in one block. */
static void contents_place(struct erofs_shape *shape)
{
	uint32_t rest = (uint32_t)(shape->size % EROFS_BLOCK_BYTES);

	shape->blocks = (uint32_t)(shape->size / EROFS_BLOCK_BYTES);
	if (!rest)
		return;
	if (shape->inode_bytes + shape->xattr_bytes + rest > EROFS_BLOCK_BYTES) {
		shape->blocks++;
		return;
	}
	shape->layout = EROFS_LAYOUT_INLINE;
	shape->inline_bytes = rest;
}

int erofs_shape(const struct erofs_measure *measure, uint32_t at, struct erofs_shape *ret)
{
	const struct tree *tree = measure->tree;
	const struct tree_node *node = &tree->nodes[at];
	struct erofs_shape shape = { .names = node->names, .layout = EROFS_LAYOUT_PLAIN };
	int r = 0;

	if (node->type == TREE_DIRECTORY)
		r = directory_shape(measure, at, &shape);
	else if (node->type == TREE_FILE)
		r = file_shape(tree, node, &shape);
	else if (node->type == TREE_SYMLINK)
		shape.size = strlen(tree->text + node->target);
	if (r < 0)
		return r;
	if (node->rdev_major > TREE_MAJOR_MAX || node->rdev_minor > TREE_MINOR_MAX ||
	    (node->type == TREE_SYMLINK && !shape.size))
		return -EINVAL;
	shape.is_compact = node->uid <= UINT16_MAX && node->gid <= UINT16_MAX &&
			   shape.size <= UINT32_MAX && shape.names <= UINT16_MAX &&
			   node->mtime_s == measure->mtime_s && node->mtime_ns == measure->mtime_ns;
	shape.inode_bytes = shape.is_compact ? sizeof(struct erofs_compact) :
					       sizeof(struct erofs_extended);
	shape.xattr_bytes = xattrs_bytes(tree, node);
	if (node->type == TREE_DIRECTORY || node->type == TREE_SYMLINK)
		contents_place(&shape);
	*ret = shape;
	return 0;
}
