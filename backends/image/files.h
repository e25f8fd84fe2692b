/*
 * The tree that layers are merged into, in memory, and the one file that contents go into. A way
 * that leads through a link is taken inside the tree, as in a sandbox of it; nothing an archive
 * names is ever opened.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/image/import.h"
#include "backends/store/tree.h"

struct files {
	struct import *in;
	struct tree *tree;
	uint32_t *made; /* by node: the layer that made it last; 0: none did */
	uint32_t made_size;
	uint32_t layer;	     /* that is applied now, from 1 on */
	uint64_t raw_blocks; /* of contents so far */
	bool keeps_whiteouts;
};

/* Where an entry goes. The root has no place: path "", parent TREE_NONE. */
struct place {
	uint32_t parent;
	const char *name;
	char path[IMPORT_PATH_BYTES]; /* clean: no ".", "//", "/" at an end; "": the root */
};

struct attributes {
	uint32_t mode; /* permission bits */
	uint64_t uid, gid;
	int64_t time_s;
	uint32_t time_ns;
};

int files_init(struct files *files, struct import *in);
void files_done(struct files *files);
/* What was made so far is of the layers below from now on. */
void files_layer_begin(struct files *files);
/* The tree as a blob, and whole blocks of contents: what the sealer is given. */
int files_write(struct files *files);

/* `path` is resolved. The directory is made where it is missing. */
int place_find(struct files *files, const char *path, struct place *ret);

/* They take the place of whatever is there. */
int files_directory(struct files *files, const struct place *place, uint32_t *ret);
int files_add(struct files *files, const struct place *place, enum tree_type type, uint32_t *ret);
/* To what this archive or one below it made; `target` is resolved. */
int files_link(struct files *files, const struct place *place, const char *target);
int files_attributes(struct files *files, const struct place *place, uint32_t node,
		     const struct attributes *attributes);

/* Whiteouts: what layers below made goes, what this layer made stays. */
int files_hide(struct files *files, const struct place *place);
int files_hide_below(struct files *files, const char *path);

/* ---- contents.c: of one file at a time ---- */

struct contents {
	struct files *files;
	const char *name; /* for failures */
	uint32_t node;
	uint64_t end; /* of the file: so far it is said */
	/* what is being written: bytes of the file from `begin` on, at `block` of the raw file */
	uint64_t begin, block;
	bool open;
};

/* A tarball_sink: bytes in order, with holes between them. */
int contents_add(void *owner, const void *bytes, size_t count, uint64_t offset);
/* The file is so long. */
int contents_end(struct contents *contents, uint64_t bytes);
