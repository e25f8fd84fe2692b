/*
 * New blobs, which appear together: none has a name before all of them are whole and synced, so
 * whoever ends before, or is killed, leaves nothing. Needs O_TMPFILE of the file system and, before
 * Linux 6.10, CAP_DAC_READ_SEARCH.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/store/digest.h"

/* More than these are not held back: then all there are get their names, and gc finds them. */
enum { BATCH_FILES_MAX = 256 };

struct batch;

/* Blobs of that directory; it stays the caller's. */
int batch_new(int blobs_fd, struct batch **ret);
/* What was not committed is gone. */
void batch_free(struct batch *batch);
/* An empty file without a name. -EOPNOTSUPP: the file system has none. */
int batch_file(const struct batch *batch, int *ret_fd);
/* All of `fd`'s bytes are these of the digest. It owns `fd` from here on, also when it fails. */
int batch_keep(struct batch *batch, int fd, const uint8_t digest[DIGEST_BYTES]);
/* A blob of these bytes. */
int batch_write(struct batch *batch, const void *bytes, size_t count, uint8_t ret[DIGEST_BYTES]);
/* A blob of what `fd` holds, which is as batch_file() gave it; owned as batch_keep() says. */
int batch_adopt(struct batch *batch, int fd, uint8_t ret[DIGEST_BYTES], uint64_t *ret_bytes);
/* All are synced, then have their names, then the directory is synced. */
int batch_commit(struct batch *batch);
