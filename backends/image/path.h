/* Names of an archive's entries, as paths in the tree. */
#pragma once

#include <stdint.h>

#include "backends/image/import.h"

struct files;

/* `name` as an archive wrote it, checked; import_fail() was told on failure. */
int path_clean(struct import *in, const char *name, char ret[IMPORT_PATH_BYTES]);
/*
 * A clean path becomes the one that it stands for: where links lie on its way (not at its end),
 * they are followed as if the tree were the root. What is not there yet is taken as it is named.
 */
int path_resolve(struct files *files, char path[IMPORT_PATH_BYTES]);
/* The node at a clean path: -ENOENT; -ELOOP: a link is on its way; -ENOTDIR. */
int path_walk(const struct files *files, const char *path, uint32_t *ret);
/* Tells why a path leads nowhere, and returns `r`. */
int path_fail(struct import *in, int r, const char *path);
