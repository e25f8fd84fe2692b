/*
 * Trees as bytes. Called by the store and by whoever reads what the store has; what is read may be
 * anybody's. Must hold: a tree has one form, so what is read and written again is the same bytes;
 * what would not be is refused: another order, two extents that are one, bytes behind the end.
 *
 * All numbers are little-endian. A header, the segments, then the nodes as tree_walk() meets them:
 *
 *	"dsectree", version, nodes, segments, 0			4 bytes each
 *	segment: digest 32, chunks 32, bytes 8
 *	node: parent 4 (a node's number in this order), type 1, flags 1, name's bytes 1, name
 *	  a further name: node 4
 *	  all others but whiteouts: mode 2, attributes 2, uid 4, gid 4, seconds 8, nanoseconds 4
 *	    FILE: size 8, digest 32, extents 4; each: file block, blocks, segment, block
 *	    SYMLINK: bytes 2, target
 *	    CHARACTER, BLOCK: major 4, minor 4
 *	    attribute: name's bytes 1, value's bytes 2, name, value
 */
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "backends/store/output.h"
#include "backends/store/tree.h"
#include "backends/store/tree_names.h"

enum {
	BLOB_VERSION = 1,
	BLOB_LINK = TREE_WHITEOUT + 1, /* a type here only: a further name */
	BLOB_ID_NONE = -1,	       /* no user or group, for the kernel */
};

static const char blob_magic[8] = "dsectree";

/* What must hold of a node, and tree.c does not see to. NULL: it is sound. */
static const char *node_unsound(const struct tree *tree, const struct tree_node *node)
{
	uint64_t blocks = (node->size + TREE_BLOCK_BYTES - 1) / TREE_BLOCK_BYTES;

	if (node->mode > 07777 || node->mtime_ns >= 1000000000)
		return "a mode or a time that cannot be";
	if (node->uid == (uint32_t)BLOB_ID_NONE || node->gid == (uint32_t)BLOB_ID_NONE)
		return "an owner that nobody is";
	if (node->rdev_major > TREE_MAJOR_MAX || node->rdev_minor > TREE_MINOR_MAX)
		return "a device that cannot be";
	if (node->flags & (uint8_t)(node->type == TREE_DIRECTORY ? ~TREE_OPAQUE : ~0))
		return "flags that its type does not have";
	if (node->type == TREE_SYMLINK && !node->target)
		return "a link to nothing";
	if (node->type != TREE_FILE)
		return NULL;
	if (node->size > TREE_SIZE_MAX)
		return "a file that is too large";
	for (uint32_t i = 0; i < node->extents; i++) {
		const struct tree_extent *extent = &tree->extents[node->extent + i];
		const struct tree_segment *segment = &tree->segments[extent->segment];

		if ((uint64_t)extent->file_block + extent->blocks > blocks)
			return "contents behind the end of a file";
		if ((uint64_t)extent->block + extent->blocks > segment->bytes / TREE_BLOCK_BYTES)
			return "contents behind the end of a segment";
	}
	return NULL;
}

static bool segment_sound(const struct tree_segment *segment)
{
	return !(segment->bytes % TREE_BLOCK_BYTES) && segment->bytes <= TREE_SIZE_MAX;
}

/* ---- writing ---- */

static void put_8(struct output *out, uint64_t value)
{
	uint8_t byte = (uint8_t)value;

	output_put(out, &byte, 1);
}

static void put_16(struct output *out, uint64_t value)
{
	uint16_t bytes = htole16((uint16_t)value);

	output_put(out, &bytes, sizeof bytes);
}

static void put_32(struct output *out, uint64_t value)
{
	uint32_t bytes = htole32((uint32_t)value);

	output_put(out, &bytes, sizeof bytes);
}

static void put_64(struct output *out, uint64_t value)
{
	uint64_t bytes = htole64(value);

	output_put(out, &bytes, sizeof bytes);
}

static void put_contents(struct output *out, const struct tree *tree, const struct tree_node *node)
{
	switch (node->type) {
	case TREE_FILE:
		put_64(out, node->size);
		output_put(out, node->digest, DIGEST_BYTES);
		put_32(out, node->extents);
		for (uint32_t i = 0; i < node->extents; i++) {
			const struct tree_extent *extent = &tree->extents[node->extent + i];

			put_32(out, extent->file_block);
			put_32(out, extent->blocks);
			put_32(out, extent->segment);
			put_32(out, extent->block);
		}
		break;
	case TREE_SYMLINK:
		put_16(out, node->size);
		output_put(out, tree->text + node->target, node->size);
		break;
	case TREE_CHARACTER:
	case TREE_BLOCK:
		put_32(out, node->rdev_major);
		put_32(out, node->rdev_minor);
		break;
	default:
		break;
	}
}

static void put_xattrs(struct output *out, const struct tree *tree, const struct tree_node *node)
{
	for (uint32_t at = node->xattrs; at != TREE_NONE; at = tree->xattrs[at].next) {
		const struct tree_xattr *xattr = &tree->xattrs[at];
		const char *name = tree->text + xattr->name;

		put_8(out, strlen(name));
		put_16(out, xattr->value_bytes);
		output_put(out, name, strlen(name));
		output_put(out, tree->text + xattr->value, xattr->value_bytes);
	}
}

static uint32_t xattrs_count(const struct tree *tree, const struct tree_node *node)
{
	uint32_t count = 0;

	for (uint32_t at = node->xattrs; at != TREE_NONE; at = tree->xattrs[at].next)
		count++;
	return count;
}

/* Numbers of this order are in the marks. */
static void put_node(struct output *out, const struct tree *tree, uint32_t at)
{
	const struct tree_node *node = &tree->nodes[at];
	bool is_link = node->link != TREE_NONE;

	put_32(out, at ? tree->nodes[node->parent].mark : 0);
	put_8(out, is_link ? BLOB_LINK : node->type);
	put_8(out, is_link ? 0 : node->flags);
	put_8(out, node->name_bytes);
	output_put(out, tree_name(tree, at), node->name_bytes);
	if (is_link)
		put_32(out, tree->nodes[node->link].mark);
	if (is_link || node->type == TREE_WHITEOUT)
		return;
	put_16(out, node->mode);
	put_16(out, xattrs_count(tree, node));
	put_32(out, node->uid);
	put_32(out, node->gid);
	put_64(out, (uint64_t)node->mtime_s);
	put_32(out, node->mtime_ns);
	put_contents(out, tree, node);
	put_xattrs(out, tree, node);
}

/* Gives all their numbers. */
static int tree_number(struct tree *tree, uint32_t *ret_count)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < tree->segment_count; i++)
		if (!segment_sound(&tree->segments[i]))
			return -EINVAL;
	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at)) {
		struct tree_node *node = &tree->nodes[at];

		if (node->link == TREE_NONE && node_unsound(tree, node))
			return -EINVAL;
		node->mark = count++;
	}
	*ret_count = count;
	return 0;
}

int tree_write(struct tree *tree, int fd)
{
	struct output out;
	uint32_t count;
	int r;

	tree_sort(tree);
	r = tree_number(tree, &count);
	if (r >= 0)
		r = output_begin(&out, fd);
	if (r < 0)
		return r;
	output_put(&out, blob_magic, sizeof blob_magic);
	put_32(&out, BLOB_VERSION);
	put_32(&out, count);
	put_32(&out, tree->segment_count);
	put_32(&out, 0);
	for (uint32_t i = 0; i < tree->segment_count; i++) {
		output_put(&out, tree->segments[i].digest, DIGEST_BYTES);
		output_put(&out, tree->segments[i].chunks, DIGEST_BYTES);
		put_64(&out, tree->segments[i].bytes);
	}
	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at))
		put_node(&out, tree, at);
	return output_end(&out);
}

/* ---- reading ---- */

struct cursor {
	const uint8_t *at;
	size_t left;
	const char *why; /* the first that was wrong */
};

/* NULL: there is not so much. */
static const void *take(struct cursor *cursor, size_t count)
{
	const void *taken = cursor->at;

	if (cursor->why || count > cursor->left) {
		if (!cursor->why)
			cursor->why = "it ends too early";
		return NULL;
	}
	cursor->at += count;
	cursor->left -= count;
	return taken;
}

/* A number of so many bytes; 0 where there are none. */
static uint64_t take_number(struct cursor *cursor, size_t count)
{
	const uint8_t *bytes = take(cursor, count);
	uint64_t number = 0;

	if (bytes)
		for (size_t i = count; i--;)
			number = number << 8 | bytes[i];
	return number;
}

/* -EBADMSG for all that tree.c refuses, but for want of memory. */
static int refused(struct cursor *cursor, int r, const char *why)
{
	if (cursor->why)
		return -EBADMSG;
	if (r >= 0 || r == -ENOMEM)
		return r < 0 ? r : 0;
	cursor->why = why;
	return -EBADMSG;
}

static int take_extents(struct cursor *cursor, struct tree *tree, uint32_t at)
{
	uint32_t count = (uint32_t)take_number(cursor, 4);
	int r = 0;

	for (uint32_t i = 0; i < count && !cursor->why && r >= 0; i++) {
		struct tree_extent extent;

		extent.file_block = (uint32_t)take_number(cursor, 4);
		extent.blocks = (uint32_t)take_number(cursor, 4);
		extent.segment = (uint32_t)take_number(cursor, 4);
		extent.block = (uint32_t)take_number(cursor, 4);
		if (cursor->why)
			break;
		r = refused(cursor, tree_add_extent(tree, at, &extent), "extents in disorder");
	}
	if (!cursor->why && r >= 0 && tree->nodes[at].extents != count)
		cursor->why = "extents that are one";
	return cursor->why ? -EBADMSG : r;
}

static int take_contents(struct cursor *cursor, struct tree *tree, uint32_t at)
{
	struct tree_node *node = &tree->nodes[at];
	const void *bytes;
	size_t count;

	switch (node->type) {
	case TREE_FILE:
		node->size = take_number(cursor, 8);
		bytes = take(cursor, DIGEST_BYTES);
		if (!bytes)
			return -EBADMSG;
		memcpy(node->digest, bytes, DIGEST_BYTES);
		return take_extents(cursor, tree, at);
	case TREE_SYMLINK:
		count = take_number(cursor, 2);
		bytes = take(cursor, count);
		if (!bytes)
			return -EBADMSG;
		return refused(cursor,
			       tree_set_target_named(tree, at, (struct tree_text){ bytes, count }),
			       "a target of a link that cannot be");
	case TREE_CHARACTER:
	case TREE_BLOCK:
		node->rdev_major = (uint32_t)take_number(cursor, 4);
		node->rdev_minor = (uint32_t)take_number(cursor, 4);
		return cursor->why ? -EBADMSG : 0;
	default:
		return 0;
	}
}

static int take_xattrs(struct cursor *cursor, struct tree *tree, uint32_t at, uint32_t count)
{
	char name[UINT8_MAX + 1], last[UINT8_MAX + 1] = "";

	for (uint32_t i = 0; i < count; i++) {
		size_t name_bytes = take_number(cursor, 1), bytes = take_number(cursor, 2);
		const void *text = take(cursor, name_bytes), *value = take(cursor, bytes);
		int r;

		if (!text || !value)
			return -EBADMSG;
		memcpy(name, text, name_bytes);
		name[name_bytes] = 0;
		if (strlen(name) != name_bytes || strcmp(last, name) >= 0)
			cursor->why = "attributes in disorder";
		r = refused(cursor,
			    cursor->why ? -EBADMSG : tree_set_xattr(tree, at, name, value, bytes),
			    "an attribute that cannot be");
		if (r < 0)
			return r;
		memcpy(last, name, sizeof last);
	}
	return 0;
}

static int take_attributes(struct cursor *cursor, struct tree *tree, uint32_t at)
{
	struct tree_node *node = &tree->nodes[at];
	uint32_t xattrs;
	int r;

	node->mode = (uint32_t)take_number(cursor, 2);
	xattrs = (uint32_t)take_number(cursor, 2);
	node->uid = (uint32_t)take_number(cursor, 4);
	node->gid = (uint32_t)take_number(cursor, 4);
	node->mtime_s = (int64_t)take_number(cursor, 8);
	node->mtime_ns = (uint32_t)take_number(cursor, 4);
	r = take_contents(cursor, tree, at);
	if (r >= 0)
		r = take_xattrs(cursor, tree, at, xattrs);
	if (r >= 0 && !cursor->why)
		cursor->why = node_unsound(tree, node);
	return cursor->why ? -EBADMSG : r;
}

/* A walk comes to it after `last`: its parent is that, or above it. */
static bool order_ok(const struct tree *tree, uint32_t last, uint32_t parent, struct tree_text name)
{
	const struct tree_node *before;
	size_t both;
	int order;

	while (last != parent && last)
		last = tree->nodes[last].parent;
	if (last != parent)
		return false;
	if (tree->nodes[parent].last == TREE_NONE)
		return true;
	before = &tree->nodes[tree->nodes[parent].last];
	both = before->name_bytes < name.count ? before->name_bytes : name.count;
	order = memcmp(tree->text + before->name, name.bytes, both);
	return order < 0 || (!order && before->name_bytes < name.count);
}

/* In a tree that is being read, numbers are those of the blob. */
static int take_name(struct cursor *cursor, struct tree *tree, uint32_t type, uint32_t parent,
		     uint32_t *ret)
{
	struct tree_text name;
	uint32_t of;
	int r;

	name.count = take_number(cursor, 1);
	name.bytes = take(cursor, name.count);
	of = type == BLOB_LINK ? (uint32_t)take_number(cursor, 4) : 0;
	if (cursor->why)
		return -EBADMSG;
	if (parent >= tree->count || of >= tree->count ||
	    !order_ok(tree, tree->count - 1, parent, name) ||
	    (type == BLOB_LINK && tree->nodes[of].link != TREE_NONE))
		return refused(cursor, -EBADMSG, "nodes in disorder");
	r = type == BLOB_LINK ? tree_link_named(tree, parent, name, of, ret) :
				tree_add_named(tree, parent, name, (enum tree_type)type, ret);
	return refused(cursor, r, "a name or a type that cannot be");
}

static int take_node(struct cursor *cursor, struct tree *tree, bool is_root)
{
	uint32_t parent = (uint32_t)take_number(cursor, 4), at = 0;
	uint32_t type = (uint32_t)take_number(cursor, 1);
	uint8_t flags = (uint8_t)take_number(cursor, 1);
	int r = 0;

	if (!is_root)
		r = take_name(cursor, tree, type, parent, &at);
	else if (parent || type != TREE_DIRECTORY || take_number(cursor, 1))
		r = refused(cursor, -EBADMSG, "a root that is none");
	if (r < 0)
		return r;
	tree->nodes[at].flags = flags;
	if (type != BLOB_LINK && type != TREE_WHITEOUT)
		return take_attributes(cursor, tree, at);
	return refused(cursor, flags ? -EBADMSG : 0, "flags that its type does not have");
}

static int take_segments(struct cursor *cursor, struct tree *tree, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *digest = take(cursor, DIGEST_BYTES);
		const uint8_t *chunks = take(cursor, DIGEST_BYTES);
		struct tree_segment segment = { .bytes = take_number(cursor, 8) };
		uint32_t at;
		int r;

		if (cursor->why)
			return -EBADMSG;
		memcpy(segment.digest, digest, DIGEST_BYTES);
		memcpy(segment.chunks, chunks, DIGEST_BYTES);
		r = segment_sound(&segment) ? tree_add_segment(tree, &segment, &at) : -EINVAL;
		if (r >= 0 && at != i)
			r = -EEXIST;
		r = refused(cursor, r, "a table of segments that cannot be");
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_tree(struct cursor *cursor, struct tree *tree)
{
	const void *magic = take(cursor, sizeof blob_magic);
	uint32_t version = (uint32_t)take_number(cursor, 4);
	uint32_t nodes = (uint32_t)take_number(cursor, 4);
	uint32_t segments = (uint32_t)take_number(cursor, 4);
	uint32_t zero = (uint32_t)take_number(cursor, 4);
	int r;

	if (cursor->why || memcmp(magic, blob_magic, sizeof blob_magic))
		return refused(cursor, -EBADMSG, "no tree");
	if (version != BLOB_VERSION || zero || !nodes)
		return refused(cursor, -EBADMSG, "a tree of another version");
	r = take_segments(cursor, tree, segments);
	for (uint32_t i = 0; i < nodes && r >= 0; i++)
		r = take_node(cursor, tree, !i);
	if (r >= 0 && cursor->left)
		r = refused(cursor, -EBADMSG, "bytes behind its end");
	return r;
}

int tree_read(const void *bytes, size_t count, struct tree **ret, const char **ret_why)
{
	struct cursor cursor = { .at = bytes, .left = count };
	struct tree *tree = tree_new();
	int r;

	if (!tree)
		return -ENOMEM;
	r = take_tree(&cursor, tree);
	if (r < 0) {
		*ret_why = cursor.why ? cursor.why : "no memory";
		tree_free(tree);
		return r;
	}
	*ret = tree;
	return 0;
}
