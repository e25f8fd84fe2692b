/* Names of an archive's entries, as paths in the tree. */
#pragma once

#include <stdint.h>

#include "backends/image/import.h"

struct tree;

/* `name` as an archive wrote it, checked; import_fail() was told on failure. */
int path_clean(struct import *in, const char *name, char ret[IMPORT_PATH_BYTES]);
/*
 * A clean path becomes the one that it stands for: where links lie on its way (not at its end),
 * they are followed as if the tree were the root. What is not there yet is taken as it is named.
 */
int path_resolve(struct tree *tree, char path[IMPORT_PATH_BYTES]);
/* Beneath the root and through no link; -errno. */
int path_open(const struct tree *tree, const char *path, uint64_t flags);
/* Tells that a path could not be opened, and returns `r`. */
int path_fail(struct import *in, int r, const char *path);
