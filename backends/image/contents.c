/*
 * Contents of files, appended to the one raw file. Called by layer.c. Must hold: what a file has
 * begins at a whole block, and the rest of a block is zero, for nothing is written there; bytes
 * come in order.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "backends/image/files.h"

static uint64_t blocks_of(uint64_t bytes)
{
	return (bytes + TREE_BLOCK_BYTES - 1) / TREE_BLOCK_BYTES;
}

/* What was written is an extent. */
static int extent_close(struct contents *c)
{
	struct tree_extent extent = {
		.file_block = (uint32_t)(c->begin / TREE_BLOCK_BYTES),
		.block = (uint32_t)c->block,
	};
	int r;

	if (!c->open)
		return 0;
	extent.blocks = (uint32_t)blocks_of(c->end - c->begin);
	c->files->raw_blocks = c->block + extent.blocks;
	c->open = false;
	r = tree_add_extent(c->files->tree, c->node, &extent);
	return r < 0 ? import_fail(c->files->in, -r, c->name, strerror(-r)) : 0;
}

/* In the block that is written anyway, or the one behind it, a hole is not worth an extent. */
static int extent_open(struct contents *c, uint64_t offset)
{
	int r;

	if (c->open && offset < (blocks_of(c->end) + 1) * TREE_BLOCK_BYTES)
		return 0;
	r = extent_close(c);
	c->begin = offset / TREE_BLOCK_BYTES * TREE_BLOCK_BYTES;
	c->block = c->files->raw_blocks;
	c->open = true;
	return r;
}

int contents_add(void *owner, const void *bytes, size_t count, uint64_t offset)
{
	struct contents *c = owner;
	struct import *in = c->files->in;
	const char *from = bytes;
	off_t at;
	int r;

	if (!count)
		return 0;
	if (offset < c->end)
		return import_fail(in, EBADMSG, c->name, "its parts lie over each other");
	r = extent_open(c, offset);
	if (r < 0)
		return r;
	c->end = offset + count;
	if (c->block + blocks_of(c->end - c->begin) > UINT32_MAX)
		return import_fail(in, EFBIG, c->name, "over 16 TiB of contents");
	at = (off_t)(c->block * TREE_BLOCK_BYTES + (offset - c->begin));
	while (count) {
		ssize_t n = pwrite(in->raw_fd, from, count, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return import_fail(in, errno, c->name, strerror(errno));
		from += n;
		count -= (size_t)n;
		at += n;
		in->report.frame.bytes += (uint64_t)n;
	}
	return 0;
}

int contents_end(struct contents *c, uint64_t bytes)
{
	int r = extent_close(c);

	if (r >= 0 && bytes < c->end)
		r = import_fail(c->files->in, EBADMSG, c->name, "more data than it said");
	c->files->tree->nodes[c->node].size = bytes;
	return r;
}
