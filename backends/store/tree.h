/*
 * A tree of files in memory: what an archive, a sandbox's changes or several images become, and
 * what the EROFS writer and the store are given. Contents are not here but in segments; a node says
 * where. Nodes are numbers, good until tree_free(); 0 is the root.
 *
 * A tree has one form as bytes, the *tree blob*: the same tree gives the same bytes. Whatever is
 * read from bytes is checked whole: a tree in memory is always sound.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/store/digest.h"

enum {
	TREE_NONE = UINT32_MAX,
	TREE_NODES_MAX = 8 << 20,
	TREE_DEPTH_MAX = 128,
	TREE_NAME_MAX = 255,
	TREE_TARGET_MAX = 4095,		  /* of a symbolic link */
	TREE_XATTRS_MAX = 512,		  /* of one node */
	TREE_XATTRS_BYTES_MAX = 60 << 10, /* of one node, names and values */
	TREE_SEGMENTS_MAX = 1024,
	TREE_MAJOR_MAX = 0xfff, /* of a device */
	TREE_MINOR_MAX = 0xfffff,
	TREE_BLOCK_BYTES = 4096,
};

/* Of a file, and of a segment: all its blocks have a number of 32 bits. */
#define TREE_SIZE_MAX ((uint64_t)UINT32_MAX * TREE_BLOCK_BYTES)

enum tree_type {
	TREE_DIRECTORY = 1,
	TREE_FILE,
	TREE_SYMLINK,
	TREE_FIFO,
	TREE_SOCKET,
	TREE_CHARACTER,
	TREE_BLOCK,
	TREE_WHITEOUT, /* hides what lies below, of this name; not in an image that is mounted */
};

enum tree_flag {
	TREE_OPAQUE = 1,  /* a directory that hides what lies below in it */
	TREE_REMOVED = 2, /* no name of anything, though links may still be names of what it has */
};

/* Where contents are: `blocks` of a segment, from block `file_block` of the file on. */
struct tree_extent {
	uint32_t file_block, blocks;
	uint32_t segment, block;
};

/* A file of contents only, found by its digest. */
struct tree_segment {
	uint8_t digest[DIGEST_BYTES]; /* of its bytes */
	uint8_t chunks[DIGEST_BYTES]; /* of its chunk table, segment.h */
	uint64_t bytes;		      /* a multiple of TREE_BLOCK_BYTES */
};

struct tree_node {
	uint32_t parent;
	uint32_t first, last, next; /* children; in order of their names' bytes once sorted */
	uint32_t name;		    /* offset in the tree's text, ends with NUL */
	uint16_t name_bytes;
	uint8_t type, flags;
	uint32_t mode; /* permission bits, set-id, sticky: 07777 */
	uint32_t uid, gid;
	uint32_t rdev_major, rdev_minor;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t link;	 /* a further name of that node, which has all the rest; TREE_NONE */
	uint32_t names;	 /* of a node that is no link: how many it has. Kept by the tree */
	uint32_t target; /* SYMLINK: offset in the text */
	uint32_t xattrs; /* the first; TREE_NONE */
	uint32_t extent, extents; /* FILE: in order, not overlapping; between them are holes */
	uint32_t hash_next;	  /* the tree's own */
	uint32_t mark;		  /* of who walks; nothing between calls */
	uint64_t size;
	uint8_t digest[DIGEST_BYTES]; /* FILE: see digest.h, file_digest */
};

/* Extended attributes of a node are a list, sorted by name when the tree is. */
struct tree_xattr {
	uint32_t next;
	uint32_t name;	/* offset in the text: whole, such as "security.capability" */
	uint32_t value; /* offset in the text; may hold NULs */
	uint32_t value_bytes;
};

/*
 * Read freely, changed by the functions below only, but for what says otherwise. Names and values
 * that these are given may be of the tree's own text.
 */
struct tree {
	struct tree_node *nodes; /* mode, owner, time, size, digest, extents: set as you like */
	uint32_t count, size;
	char *text;
	size_t text_bytes, text_size;
	struct tree_extent *extents;
	uint32_t extent_count, extent_size;
	struct tree_segment *segments;
	uint32_t segment_count, segment_size;
	struct tree_xattr *xattrs;
	uint32_t xattr_count, xattr_size;
	uint32_t *buckets; /* by parent and name */
	uint32_t bucket_count;
	uint64_t seed; /* of the buckets' hash: who makes names cannot know it */
};

/* An empty root, mode 0755. NULL: no memory. Numbers of removed nodes are not used again. */
struct tree *tree_new(void);
void tree_free(struct tree *tree);

/* A child; TREE_NONE: none of that name. */
uint32_t tree_find(const struct tree *tree, uint32_t parent, const char *name, size_t bytes);
/*
 * A new child. -EEXIST; -EINVAL: a name that no directory entry may have; -ENOTDIR; -ELOOP: deeper
 * than TREE_DEPTH_MAX; -E2BIG: TREE_NODES_MAX, or 4 GiB of text; -ENOMEM.
 */
int tree_add(struct tree *tree, uint32_t parent, const char *name, enum tree_type type,
	     uint32_t *ret);
/* With all below it. Another name of a removed node takes over what it had. */
void tree_remove(struct tree *tree, uint32_t node);
/* A new child that is one more name of `of`. As tree_add(); -EINVAL: a directory, a whiteout. */
int tree_link(struct tree *tree, uint32_t parent, const char *name, uint32_t of, uint32_t *ret);
/* -EINVAL: empty, too long, or no symbolic link. */
int tree_set_target(struct tree *tree, uint32_t node, const char *target);
/*
 * Takes the place of one of that name. -EINVAL: a name that EROFS cannot hold (user.*, trusted.*,
 * security.* and the two of ACLs are held), or trusted.overlay.*, which only the writer makes, or a
 * node that has none; -E2BIG.
 */
int tree_set_xattr(struct tree *tree, uint32_t node, const char *name, const void *value,
		   size_t bytes);
/*
 * At the end of a file's extents; one that goes on where the last ends becomes part of it. -EINVAL:
 * not behind the last, empty, or of a segment that is not there. That it lies inside the file and
 * the segment is looked at by tree_write(), which knows their sizes.
 */
int tree_add_extent(struct tree *tree, uint32_t node, const struct tree_extent *extent);
/* Its number, whether it was there or not. -E2BIG: TREE_SEGMENTS_MAX. */
int tree_add_segment(struct tree *tree, const struct tree_segment *segment, uint32_t *ret);
/* The node itself, or the one that it is a further name of. */
uint32_t tree_inode(const struct tree *tree, uint32_t node);
const char *tree_name(const struct tree *tree, uint32_t node);
/*
 * Every directory's children in order of their names, without the removed; of several names of a
 * node the first in that order has all the rest. tree_write() and the writer call it.
 */
void tree_sort(struct tree *tree);
/* The next node of all, directories before what is in them; TREE_NONE at the end. From 0. */
uint32_t tree_walk(const struct tree *tree, uint32_t node);

/* The tree blob, at the file's position. -EINVAL: an unsound tree; -EIO, -ENOSPC, -ENOMEM. */
int tree_write(struct tree *tree, int fd);
/* -EBADMSG: no tree blob, or a damaged or unsound one; `ret_why`: in words, static. */
int tree_read(const void *bytes, size_t count, struct tree **ret, const char **ret_why);

/*
 * `layer` laid over `tree`: later wins, whiteouts and opaque directories hide, a directory's mode,
 * owner, times and attributes are the layer's (the root's too, unless it is of mode 0). A file over
 * a directory takes its place with all below, and the other way round. No whiteout is left over
 * what was not there when `tree` is the lowest (`is_lowest`), so that the result can be mounted.
 * Hard links stay what they are inside a layer; a name that the layer replaces leaves the others.
 */
int tree_merge(struct tree *tree, const struct tree *layer, bool is_lowest);
/* Segments that nothing lies in are forgotten; the numbers of the others change. */
void tree_drop_segments(struct tree *tree);
