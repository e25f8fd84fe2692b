/* Bytes of files, all of them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backends/store/digest.h"

/* All or -errno. */
int file_write(int fd, const void *bytes, size_t count, uint64_t at);
/* All or -errno; -EBADMSG: the file ends before. */
int file_read(int fd, void *ret, size_t count, uint64_t at);
/* From its beginning to its end; where it is read does not change. */
int file_digest(int fd, uint8_t ret[DIGEST_BYTES], uint64_t *ret_bytes);
