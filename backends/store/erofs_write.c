/*
 * The EROFS writer. Called by who composes images. The image: superblock, the table of devices, all
 * inodes in the order of a walk (with what stands behind each), then the blocks of directories and
 * links that stand by themselves. First every inode gets its place, then all is written once, from
 * front to back; the first block at last, for its checksum. Must hold: the bytes depend on the tree
 * alone.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/store/digest.h"
#include "backends/store/erofs.h"
#include "backends/store/erofs_shape.h"
#include "backends/store/output.h"
#include "engine/base/cleanup.h"

struct writer {
	struct erofs_measure measure;
	const struct tree *tree;
	struct erofs_place *places;	     /* by node */
	uint32_t devices[TREE_SEGMENTS_MAX]; /* of segments, from 1; 0: it is none */
	uint32_t device_count;
	uint64_t inodes, end; /* so many bytes of inodes */
	uint64_t blocks;      /* behind them */
	struct output out;
	uint8_t head[EROFS_BLOCK_BYTES]; /* what was put into the first block */
};

/* ---- places ---- */

static void devices_count(struct writer *writer)
{
	const struct tree *tree = writer->tree;

	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at)) {
		const struct tree_node *node = &tree->nodes[at];

		for (uint32_t i = 0; node->link == TREE_NONE && i < node->extents; i++)
			writer->devices[tree->extents[node->extent + i].segment] = 1;
	}
	for (uint32_t i = 0; i < tree->segment_count; i++)
		if (writer->devices[i])
			writer->devices[i] = ++writer->device_count;
}

static uint64_t align_up(uint64_t offset, uint64_t bytes)
{
	return (offset + bytes - 1) & ~(bytes - 1);
}

static uint64_t chunks_offset(const struct erofs_shape *shape, uint64_t inode)
{
	return align_up(inode + shape->inode_bytes + shape->xattr_bytes,
			sizeof(struct erofs_chunk));
}

/* Neither an inode nor what stands behind it goes over the end of a block. */
static uint64_t inode_offset(uint64_t end, const struct erofs_shape *shape)
{
	uint64_t offset = align_up(end, EROFS_SLOT_BYTES);
	uint64_t within = offset % EROFS_BLOCK_BYTES, whole = shape->inode_bytes;

	if (shape->inline_bytes)
		whole += shape->xattr_bytes + shape->inline_bytes;
	return within + whole > EROFS_BLOCK_BYTES ? align_up(offset, EROFS_BLOCK_BYTES) : offset;
}

static int inode_place(struct writer *writer, uint32_t at)
{
	struct erofs_shape shape;
	uint64_t offset;
	int r = erofs_shape(&writer->measure, at, &shape);

	if (r < 0)
		return r;
	offset = inode_offset(writer->end, &shape);
	writer->places[at] = (struct erofs_place){
		.node = offset / EROFS_SLOT_BYTES,
		.block = (uint32_t)writer->blocks,
	};
	writer->inodes++;
	writer->blocks += shape.blocks;
	writer->end = offset + shape.inode_bytes + shape.xattr_bytes + shape.inline_bytes;
	if (shape.chunks)
		writer->end = chunks_offset(&shape, offset) +
			      (uint64_t)shape.chunks * sizeof(struct erofs_chunk);
	return 0;
}

static int places_give(struct writer *writer)
{
	const struct tree *tree = writer->tree;
	int r = 0;

	writer->end = EROFS_SUPER_OFFSET + sizeof(struct erofs_super) +
		      writer->device_count * sizeof(struct erofs_device);
	for (uint32_t at = 0; at != TREE_NONE && r >= 0; at = tree_walk(tree, at))
		if (tree->nodes[at].link == TREE_NONE)
			r = inode_place(writer, at);
	if (r < 0)
		return r;
	writer->end = align_up(writer->end, EROFS_BLOCK_BYTES);
	return writer->end / EROFS_BLOCK_BYTES + writer->blocks < EROFS_NO_BLOCK ? 0 : -EFBIG;
}

/* ---- what is put ---- */

static void put(struct writer *writer, const void *bytes, size_t count)
{
	uint64_t at = writer->out.at;

	if (at < sizeof writer->head && count)
		memcpy(writer->head + at, bytes,
		       count < sizeof writer->head - at ? count : sizeof writer->head - at);
	output_put(&writer->out, bytes, count);
}

static void put_device(struct writer *writer, const struct tree_segment *segment)
{
	struct erofs_device device = {
		.blocks = (uint32_t)(segment->bytes / EROFS_BLOCK_BYTES),
	};
	char hex[DIGEST_HEX_BYTES];

	digest_hex(segment->digest, hex);
	memcpy(device.tag, hex, sizeof device.tag);
	put(writer, &device, sizeof device);
}

static void put_xattr(struct writer *writer, const char *name, const void *value, uint32_t bytes)
{
	const char *suffix = "", zeros[4] = { 0 };
	uint8_t prefix = erofs_xattr_prefix(name, &suffix);
	struct erofs_xattr xattr = {
		.prefix = prefix,
		.name_bytes = (uint8_t)strlen(suffix),
		.value_bytes = (uint16_t)bytes,
	};

	put(writer, &xattr, sizeof xattr);
	put(writer, suffix, strlen(suffix));
	put(writer, value, bytes);
	put(writer, zeros, -(strlen(suffix) + bytes) & 3);
}

static void put_xattrs(struct writer *writer, const struct tree_node *node)
{
	const struct tree *tree = writer->tree;
	struct erofs_xattr_head head = { 0 };

	if (node->xattrs == TREE_NONE && !(node->flags & TREE_OPAQUE))
		return;
	put(writer, &head, sizeof head);
	if (node->flags & TREE_OPAQUE)
		put_xattr(writer, "trusted.overlay.opaque", "y", 1);
	for (uint32_t at = node->xattrs; at != TREE_NONE; at = tree->xattrs[at].next)
		put_xattr(writer, tree->text + tree->xattrs[at].name,
			  tree->text + tree->xattrs[at].value, tree->xattrs[at].value_bytes);
}

/* Extents are whole chunks: a chunk lies in one, or in none. */
static void put_chunks(struct writer *writer, const struct tree_node *node,
		       const struct erofs_shape *shape)
{
	const struct tree_extent *extents = writer->tree->extents; /* NULL: no file has any */
	uint32_t at = node->extent, end = at + node->extents;

	for (uint32_t i = 0; i < shape->chunks; i++) {
		struct erofs_chunk chunk = { .block = EROFS_NO_BLOCK };
		uint64_t block = (uint64_t)i << shape->chunk_bits;

		while (at < end && (uint64_t)extents[at].file_block + extents[at].blocks <= block)
			at++;
		if (at < end && extents[at].file_block <= block) {
			chunk.device = (uint16_t)writer->devices[extents[at].segment];
			chunk.block =
				extents[at].block + (uint32_t)(block - extents[at].file_block);
		}
		put(writer, &chunk, sizeof chunk);
	}
}

/* The blocks of a directory: all but what is inline, or that alone. */
static void put_entries(struct writer *writer, uint32_t at, const struct erofs_shape *shape,
			bool is_inline)
{
	struct erofs_entries entries;
	uint8_t block[EROFS_BLOCK_BYTES];
	uint32_t full = (uint32_t)(shape->size / EROFS_BLOCK_BYTES), used, number = 0;

	erofs_entries_begin(&entries, &writer->measure, at);
	entries.places = writer->places;
	while ((used = erofs_entries_block(&entries, block))) {
		bool last = shape->inline_bytes && number == full;

		if (last && is_inline)
			put(writer, block, used);
		else if (!last && !is_inline)
			put(writer, block, sizeof block);
		number++;
	}
}

static void put_inline(struct writer *writer, uint32_t at, const struct erofs_shape *shape)
{
	const struct tree_node *node = &writer->tree->nodes[at];

	if (!shape->inline_bytes)
		return;
	if (node->type == TREE_SYMLINK)
		put(writer, writer->tree->text + node->target, shape->inline_bytes);
	else
		put_entries(writer, at, shape, true);
}

static uint16_t mode_of(const struct tree_node *node)
{
	switch (node->type) {
	case TREE_DIRECTORY:
		return (uint16_t)(S_IFDIR | (node->mode & 07777));
	case TREE_SYMLINK:
		return S_IFLNK | 0777;
	case TREE_FIFO:
		return (uint16_t)(S_IFIFO | (node->mode & 07777));
	case TREE_SOCKET:
		return (uint16_t)(S_IFSOCK | (node->mode & 07777));
	case TREE_CHARACTER:
		return (uint16_t)(S_IFCHR | (node->mode & 07777));
	case TREE_BLOCK:
		return (uint16_t)(S_IFBLK | (node->mode & 07777));
	case TREE_WHITEOUT:
		return S_IFCHR;
	default:
		return (uint16_t)(S_IFREG | (node->mode & 07777));
	}
}

/* The field that says where contents are, or which device it is. */
static uint32_t where_of(const struct writer *writer, uint32_t at, const struct erofs_shape *shape)
{
	const struct tree_node *node = &writer->tree->nodes[at];

	if (shape->chunks)
		return EROFS_CHUNK_INDEX | shape->chunk_bits;
	if (node->type == TREE_CHARACTER || node->type == TREE_BLOCK)
		return (node->rdev_minor & 0xff) | node->rdev_major << 8 |
		       (node->rdev_minor & ~0xffu) << 12;
	if (node->type == TREE_DIRECTORY || node->type == TREE_SYMLINK)
		return shape->blocks ? (uint32_t)(writer->end / EROFS_BLOCK_BYTES) +
					       writer->places[at].block :
				       EROFS_NO_BLOCK;
	return 0;
}

static void put_extended(struct writer *writer, uint32_t at, const struct erofs_shape *shape,
			 uint32_t number)
{
	const struct tree_node *node = &writer->tree->nodes[at];
	struct erofs_extended inode = {
		.format = (uint16_t)(1 | shape->layout << 1),
		.mode = mode_of(node),
		.size = shape->size,
		.where = where_of(writer, at, shape),
		.number = number,
		.uid = node->uid,
		.gid = node->gid,
		.mtime_s = (uint64_t)node->mtime_s,
		.mtime_ns = node->mtime_ns,
		.names = shape->names,
	};

	if (shape->xattr_bytes)
		inode.xattrs = (uint16_t)((shape->xattr_bytes - 12) / 4 + 1);
	put(writer, &inode, sizeof inode);
}

static void put_compact(struct writer *writer, uint32_t at, const struct erofs_shape *shape,
			uint32_t number)
{
	const struct tree_node *node = &writer->tree->nodes[at];
	struct erofs_compact inode = {
		.format = (uint16_t)(shape->layout << 1),
		.mode = mode_of(node),
		.names = (uint16_t)shape->names,
		.size = (uint32_t)shape->size,
		.where = where_of(writer, at, shape),
		.number = number,
		.uid = (uint16_t)node->uid,
		.gid = (uint16_t)node->gid,
	};

	if (shape->xattr_bytes)
		inode.xattrs = (uint16_t)((shape->xattr_bytes - 12) / 4 + 1);
	put(writer, &inode, sizeof inode);
}

static void put_zeros_to(struct writer *writer, uint64_t offset)
{
	const uint8_t zeros[EROFS_BLOCK_BYTES] = { 0 };

	while (writer->out.at < offset) {
		uint64_t left = offset - writer->out.at;

		put(writer, zeros, left < sizeof zeros ? left : sizeof zeros);
	}
}

static int put_inode(struct writer *writer, uint32_t at, uint32_t number)
{
	const struct tree_node *node = &writer->tree->nodes[at];
	uint64_t offset = writer->places[at].node * EROFS_SLOT_BYTES;
	struct erofs_shape shape;
	int r = erofs_shape(&writer->measure, at, &shape);

	if (r < 0)
		return r;
	put_zeros_to(writer, offset);
	if (shape.is_compact)
		put_compact(writer, at, &shape, number);
	else
		put_extended(writer, at, &shape, number);
	put_xattrs(writer, node);
	if (shape.chunks) {
		put_zeros_to(writer, chunks_offset(&shape, offset));
		put_chunks(writer, node, &shape);
	}
	put_inline(writer, at, &shape);
	return 0;
}

static int put_blocks(struct writer *writer, uint32_t at)
{
	const struct tree_node *node = &writer->tree->nodes[at];
	struct erofs_shape shape;
	int r;

	if (node->type != TREE_DIRECTORY && node->type != TREE_SYMLINK)
		return 0;
	r = erofs_shape(&writer->measure, at, &shape);
	if (r < 0 || !shape.blocks)
		return r;
	if (node->type == TREE_DIRECTORY) {
		put_entries(writer, at, &shape, false);
	} else {
		put(writer, writer->tree->text + node->target, shape.size);
		put_zeros_to(writer, align_up(writer->out.at, EROFS_BLOCK_BYTES));
	}
	return 0;
}

/* ---- the first block ---- */

/* As the kernel's crc32c(): neither begun nor ended with an inversion. */
static uint32_t crc32c(uint32_t crc, const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		crc ^= bytes[i];
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return crc;
}

static int head_write(struct writer *writer, int fd)
{
	struct erofs_super super = {
		.magic = EROFS_MAGIC,
		.compat = EROFS_COMPAT_CHECKSUM | EROFS_COMPAT_MTIME,
		.block_bits = EROFS_BLOCK_BITS,
		.root = (uint16_t)writer->places[0].node,
		.inodes = writer->inodes,
		.mtime_s = (uint64_t)writer->measure.mtime_s,
		.mtime_ns = writer->measure.mtime_ns,
		.blocks = (uint32_t)(writer->out.at / EROFS_BLOCK_BYTES),
		.incompat = EROFS_INCOMPAT_CHUNKS |
			    (writer->device_count ? EROFS_INCOMPAT_DEVICES : 0),
		.devices = (uint16_t)writer->device_count,
		.device_slot = (EROFS_SUPER_OFFSET + sizeof super) / sizeof(struct erofs_device),
	};
	uint8_t *at = writer->head + EROFS_SUPER_OFFSET;
	ssize_t count;

	memcpy(at, &super, sizeof super);
	super.checksum = crc32c(~0u, at, sizeof writer->head - EROFS_SUPER_OFFSET);
	memcpy(at, &super, sizeof super);
	count = pwrite(fd, writer->head, sizeof writer->head, 0);
	if (count < 0)
		return -errno;
	return count == sizeof writer->head ? 0 : -EIO;
}

static int image_put(struct writer *writer)
{
	const struct tree *tree = writer->tree;
	uint32_t number = 0;
	int r = 0;

	put_zeros_to(writer, EROFS_SUPER_OFFSET + sizeof(struct erofs_super));
	for (uint32_t i = 0; i < tree->segment_count; i++)
		if (writer->devices[i])
			put_device(writer, &tree->segments[i]);
	for (uint32_t at = 0; at != TREE_NONE && r >= 0; at = tree_walk(tree, at))
		if (tree->nodes[at].link == TREE_NONE)
			r = put_inode(writer, at, ++number);
	put_zeros_to(writer, writer->end);
	for (uint32_t at = 0; at != TREE_NONE && r >= 0; at = tree_walk(tree, at))
		if (tree->nodes[at].link == TREE_NONE)
			r = put_blocks(writer, at);
	return r;
}

int erofs_write(struct tree *tree, int fd, struct erofs_made *ret)
{
	auto_free struct writer *writer = calloc(1, sizeof *writer);
	auto_free struct erofs_place *places = NULL;
	int r, put_r;

	tree_sort(tree);
	places = calloc(tree->count, sizeof *places);
	if (!writer || !places)
		return -ENOMEM;
	writer->tree = writer->measure.tree = tree;
	writer->places = places;
	devices_count(writer);
	erofs_measure_time(&writer->measure);
	r = places_give(writer);
	if (r >= 0)
		r = output_begin(&writer->out, fd);
	if (r < 0)
		return r;
	put_r = image_put(writer);
	r = output_end(&writer->out);
	if (put_r < 0)
		r = put_r;
	if (r >= 0)
		r = head_write(writer, fd);
	if (r < 0)
		return r;
	*ret = (struct erofs_made){ .bytes = writer->out.at, .inodes = writer->inodes };
	return 0;
}
