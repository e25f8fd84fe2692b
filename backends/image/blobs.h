/*
 * The files of a docker archive or an OCI layout, spooled: by name, in files whose own names are
 * numbers.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backends/image/import.h"

struct json_value;
struct tarball;

enum { BLOB_NAME_BYTES = 256, BLOB_TEXT_BYTES_MAX = 4 << 20 };

struct blob {
	char name[BLOB_NAME_BYTES];
	char link[BLOB_NAME_BYTES]; /* it is a link to this name; "": it is a file */
	char digest[IMAGE_DIGEST_BYTES];
	uint64_t bytes;
};

struct blobs {
	struct import *in;
	int directory_fd;
	struct blob *all;
	uint32_t count, size;
};

/* All of the archive. */
int blobs_spool(struct blobs *blobs, struct import *in, struct tarball *tarball);
void blobs_done(struct blobs *blobs);
/* By the name it has in the archive, links followed; NULL: it is not there. */
const struct blob *blobs_find(const struct blobs *blobs, const char *name);
/* Open for reading. */
int blob_open(const struct blobs *blobs, const struct blob *blob, int *ret_fd);
/* All of it, as text with a NUL; the caller frees it. */
int blob_text(const struct blobs *blobs, const struct blob *blob, char **ret);
/* It was applied: its room is needed. */
void blob_drop(const struct blobs *blobs, const struct blob *blob);
