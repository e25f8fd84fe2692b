/*
 * The tree that layers are merged into. A way that leads through a link is taken inside the tree,
 * as in a sandbox of it; then every path is opened beneath its root without following a link, so
 * nothing an archive says reaches anything else.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "backends/image/import.h"

struct tree_time {
	char *path;
	struct timespec time;
};

struct tree {
	struct import *in;
	int root_fd;
	uint64_t *seen; /* hashes of what this layer made; 0: free */
	size_t seen_count, seen_size;
	struct tree_time *times; /* of directories: set when nothing is made in them any more */
	size_t time_count, time_size;
};

/* Where an entry goes: an O_PATH descriptor of its directory, and its last name. */
struct place {
	int dir_fd;
	const char *name;
	char path[IMPORT_PATH_BYTES]; /* clean: no ".", "//", "/" at an end; "": the root */
};

struct attributes {
	uint32_t mode; /* permission bits */
	uint64_t uid, gid;
	struct timespec time;
};

int tree_init(struct tree *tree, struct import *in, int root_fd);
void tree_done(struct tree *tree);
/* What was made so far is of the layers below from now on. */
void tree_layer_begin(struct tree *tree);
/* The times of directories. */
int tree_finish(struct tree *tree);

/*
 * `path` is resolved. The directory is made where it is missing. The root has no place: path "",
 * dir_fd -1.
 */
int place_open(struct tree *tree, const char *path, struct place *ret);
void place_close(struct place *place);

/* They take the place of whatever is there. `ret_fd`, to write to or to give attributes. */
int tree_directory(struct tree *tree, const struct place *place, int *ret_fd);
int tree_file(struct tree *tree, const struct place *place, int *ret_fd);
int tree_symlink(struct tree *tree, const struct place *place, const char *target,
		 const struct attributes *attributes);
int tree_fifo(struct tree *tree, const struct place *place, const struct attributes *attributes);
/* To what this archive or one below it made; `target` is resolved. */
int tree_hardlink(struct tree *tree, const struct place *place, const char *target);
int tree_attributes(struct tree *tree, const struct place *place, int fd,
		    const struct attributes *attributes);

/* Whiteouts: what layers below made goes, what this layer made stays. */
int tree_hide(struct tree *tree, const struct place *place);
int tree_hide_below(struct tree *tree, const struct place *directory);
