/* Where a pull's bytes come from: a layout's directory, or dsec-fetch. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backends/store/manifest.h"

struct fetch;

struct source {
	int layout_fd, blobs_fd; /* of a directory; blobs_fd: -1 until source_open() */
	struct fetch *fetch;	 /* NULL: a directory */
};

/* A blob that is being read, from its beginning on. */
struct stream {
	int fd; /* -1: dsec-fetch's */
	struct fetch *fetch;
	uint64_t at;
};

/*
 * index.json, at most LAYOUT_INDEX_BYTES_MAX. The caller frees; ends with a NUL. `ret_why`: in
 * words, as long as the source lives; NULL: as its errno says.
 */
int source_index(const struct source *source, char **ret, size_t *ret_bytes, const char **ret_why);
/* Its place of blobs. source_close() in any case. */
int source_open(struct source *source, const char **ret_why);
void source_close(struct source *source);
/* One at a time; the caller closes it. -ENOENT, -EBADMSG: of another size. */
int source_blob(const struct source *source, const struct store_blob *blob, struct stream *ret,
		const char **ret_why);
/* All or -errno. */
int stream_read(struct stream *stream, void *ret, size_t count, const char **ret_why);
void stream_close(struct stream *stream);

/* Open for reading, a regular file of that size; -ENOENT, -EBADMSG and `ret_why`. */
int source_file_open(int blobs_fd, const struct store_blob *blob, int *ret_fd,
		     const char **ret_why);
