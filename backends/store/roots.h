/*
 * The image files of a store: what keeps blobs alive. First those that jobs have finished and the
 * engine is about to name, then those that have a name, then compositions of the cache: a file that
 * moves on while it is looked for is seen.
 */
#pragma once

#include <stdint.h>

enum root_kind { ROOT_SCRATCH, ROOT_IMAGE, ROOT_COMPOSED };

struct root {
	enum root_kind kind;
	int folder_fd, fd; /* open for reading, a regular file */
	const char *file;  /* its name in the folder */
	const char *name;  /* of the image; of others their path */
};

/* Negative: the walk ends with that. */
typedef int root_visit(void *owner, const struct root *root);

int roots_walk(int directory_fd, root_visit *visit, void *owner);
/* Of one image; -ENOENT. The name is checked. */
int root_open(int directory_fd, const char *name, int *ret_fd);
