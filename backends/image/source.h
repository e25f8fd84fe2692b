/* The bytes of a tar: of a descriptor, and out of gzip where they are in it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <zlib.h>

#include "backends/store/digest.h"

enum { SOURCE_BYTES = 128 << 10 };

struct source {
	int fd;
	bool begun, is_gzip, ended, damaged;
	z_stream stream;
	struct digest *digest; /* of what came out; NULL: nobody asks */
	unsigned char in[SOURCE_BYTES], out[SOURCE_BYTES];
};

struct source *source_new(int fd, bool wants_digest); /* NULL: no memory */
void source_free(struct source *source);
/* The next bytes: how many, 0 at the end, -EBADMSG for damaged gzip, or another errno. */
ssize_t source_read(struct source *source, const void **ret);
