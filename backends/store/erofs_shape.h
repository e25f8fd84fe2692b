/* What becomes of a node in an EROFS image: between erofs_write.c and erofs_shape.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/store/erofs_format.h"
#include "backends/store/tree.h"

/* Where an inode lies. */
struct erofs_place {
	uint64_t node;	/* its number */
	uint32_t block; /* the first of what stands by itself, from the first such on */
};

/* What all inodes are measured by. */
struct erofs_measure {
	const struct tree *tree; /* sorted */
	int64_t mtime_s;	 /* compact inodes have this time */
	uint32_t mtime_ns;
};

struct erofs_shape {
	bool is_compact;
	uint16_t layout;
	uint32_t names;
	uint64_t size;
	uint32_t inode_bytes, xattr_bytes;
	uint32_t inline_bytes; /* the end of the contents, behind the attributes */
	uint32_t blocks;       /* of contents that stand by themselves */
	uint32_t chunk_bits, chunks;
};

/* Of a node that is no link. -EFBIG, -EINVAL. */
int erofs_shape(const struct erofs_measure *measure, uint32_t at, struct erofs_shape *ret);
/* The time that most inodes have, where one has more than half of them. */
void erofs_measure_time(struct erofs_measure *measure);
/* The prefix of an attribute's name; *ret_suffix: what follows it. */
uint8_t erofs_xattr_prefix(const char *name, const char **ret_suffix);

/* ---- a directory's blocks ---- */

/* Goes through ".", ".." and the children in the order of their bytes. */
struct erofs_entries {
	const struct tree *tree;
	const struct erofs_place *places; /* NULL: only sizes are wanted */
	uint32_t directory, child, parent;
	unsigned dots; /* of "." and "..", so many are behind us */
};

void erofs_entries_begin(struct erofs_entries *entries, const struct erofs_measure *measure,
			 uint32_t directory);
/* The next block: how many of its bytes are used, the rest zero; 0: there is none. */
uint32_t erofs_entries_block(struct erofs_entries *entries, uint8_t block[EROFS_BLOCK_BYTES]);
