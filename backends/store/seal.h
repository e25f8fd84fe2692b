/* What sealing is made of: files of a tree, where their contents come from and where they go. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/store/digest_set.h"
#include "backends/store/index.h"
#include "backends/store/store.h"

enum {
	/* Of a segment that was there: it is used when so much of it is, 1/64. */
	SEAL_PART_MIN = 64,
	/* So many of them, those of which most is used: an image's devices are limited. */
	SEAL_FOUND_MAX = 256,
};

enum { SEAL_NONE = UINT32_MAX };

struct segment_writer;

/* A file that has contents. Files of the same contents are one, the first in the tree's order. */
struct seal_file {
	uint32_t node;
	uint32_t same;	 /* an earlier file of these contents; SEAL_NONE: it is the first */
	uint32_t found;	 /* the segment that has it; SEAL_NONE: it is stored */
	uint32_t next;	 /* of the files in that segment */
	uint32_t block;	 /* there, or in the segment that it was stored in */
	uint32_t number; /* of that, of the writer's; SEAL_NONE: not stored, or not yet */
	uint64_t blocks; /* of all extents */
	uint64_t bytes;	 /* of contents */
	bool has_other;	 /* a segment that was there has it, too, used or not */
};

/* A segment that was there before. */
struct seal_found {
	struct tree_segment segment;
	uint32_t first; /* its files */
	uint64_t bytes; /* of them */
	bool whole;	/* it has its size, and a chunk table of the right one */
	bool used;
};

struct sealing {
	const struct store *store;
	const struct seal *seal;
	struct seal_file *files;
	uint32_t file_count, file_size;
	struct digest_set digests; /* of the files' contents, in the order of `firsts` */
	uint32_t *firsts;
	struct digest_set found_set; /* of segments' digests */
	struct seal_found *found;
	uint32_t found_size;
	struct index index;
	struct segment_writer *writer;
	uint64_t told_files, told_bytes;
	char *buffer, *other; /* SEAL_BUFFER_BYTES each */
};

enum { SEAL_BUFFER_BYTES = 256 << 10 };

/* Bytes of contents in an extent: the file may end in its last block. */
uint64_t seal_extent_bytes(const struct tree_node *node, const struct tree_extent *extent);
/* What a file's digest begins with: its holes, where it has any. */
void seal_holes_add(struct digest *digest, const struct tree_node *node,
		    const struct tree_extent *extents);
/* seal_files.c: the files, their digests, and which are the same. What nobody has is stored. */
int seal_files_read(struct sealing *s);
/* seal_found.c: 1: the store may have that file's contents. */
int seal_file_find(struct sealing *s, uint32_t file);
/* Which of these it has, and are used. What it says was compared. */
int seal_found_use(struct sealing *s);
/* seal.c: into a segment. */
int seal_file_store(struct sealing *s, struct seal_file *file);
/* Something was done: the caller is told, and says whether it goes on. */
int seal_tell(struct sealing *s, uint64_t files, uint64_t bytes);
