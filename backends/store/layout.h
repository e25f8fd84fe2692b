/* Files of an image layout that push and pull read. */
#pragma once

#include <stddef.h>

#define LAYOUT_INDEX "index.json"
#define LAYOUT_BLOBS "blobs/sha256"

/* A regular file beneath, not over `max`: -EFBIG. The caller frees; ends with a NUL. */
int layout_text_read(int folder_fd, const char *path, size_t max, char **ret, size_t *ret_bytes);
