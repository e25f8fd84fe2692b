/*
 * Reading a tar through libarchive. Called by the unpacker for the stream, and for each layer of
 * an archive. Must hold: only tar, only gzip (by source.c) and zstd; whatever libarchive is not
 * sure of fails the import; a tar that ends without its marker was cut off; no more bytes than the
 * limits name are ever taken out of it.
 */
#include "backends/image/tarball.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/image/source.h"

enum { RECORD_BYTES = 512, HEADERS_BYTES = 64 << 20, REST_BYTES_MAX = 64 << 20 };

static int tarball_fail(struct tarball *t, const char *name, const char *otherwise)
{
	const char *why = archive_error_string(t->archive);
	int error = archive_errno(t->archive);

	/* libarchive's own codes are not errnos of ours; EILSEQ is its word for a bad format. */
	if (error <= 0 || error >= 4096 || error == EILSEQ)
		error = EBADMSG;
	return import_fail(t->in, error, name, why ? why : otherwise);
}

static la_ssize_t archive_wants(struct archive *archive, void *owner, const void **ret)
{
	struct tarball *t = owner;
	ssize_t n = source_read(t->source, ret);

	if (n < 0)
		archive_set_error(archive, (int)-n, "%s",
				  n == -EBADMSG ? "the gzip is damaged or cut off" :
						  strerror((int)-n));
	return n < 0 ? ARCHIVE_FATAL : n;
}

int tarball_open(struct tarball *t, struct import *in, int fd, bool wants_digest)
{
	*t = (struct tarball){ .in = in,
			       .archive = archive_read_new(),
			       .source = source_new(fd, wants_digest) };
	if (!t->archive || !t->source)
		return import_fail(in, ENOMEM, NULL, "no memory");
	if (archive_read_support_filter_zstd(t->archive) != ARCHIVE_OK ||
	    archive_read_support_format_tar(t->archive) != ARCHIVE_OK ||
	    archive_read_open(t->archive, t, NULL, archive_wants, NULL) != ARCHIVE_OK)
		return tarball_fail(t, NULL, "the archive cannot be read");
	return 0;
}

void tarball_close(struct tarball *t)
{
	if (t->archive)
		(void)archive_read_free(t->archive); /* was only read */
	t->archive = NULL;
	source_free(t->source);
	t->source = NULL;
}

int tarball_rest(struct tarball *t, char ret_digest[IMAGE_DIGEST_BYTES])
{
	const void *bytes;
	size_t taken = 0;
	ssize_t n;

	while ((n = source_read(t->source, &bytes)) > 0) {
		taken += (size_t)n;
		if (taken > REST_BYTES_MAX)
			return import_fail(t->in, EBADMSG, NULL,
					   "over 64 MiB after the archive's end");
	}
	if (n < 0)
		return import_fail(t->in, (int)-n, NULL,
				   n == -EBADMSG ? "the gzip is damaged or cut off" :
						   "the stream cannot be read");
	if (t->source->digest) {
		uint8_t digest[DIGEST_BYTES];

		digest_take(t->source->digest, digest);
		digest_text(digest, ret_digest);
	}
	return 0;
}

/* libarchive takes a tar that stops between two entries for whole. */
static int ended(struct tarball *t)
{
	int64_t taken = archive_filter_bytes(t->archive, 0);
	int64_t last = archive_read_header_position(t->archive);

	if (taken - last < RECORD_BYTES)
		return import_fail(t->in, EBADMSG, NULL, "cut off: no end-of-archive marker");
	return 0;
}

int tarball_next(struct tarball *t, struct archive_entry **ret)
{
	uint64_t taken_max = t->in->limits.bytes_max * 2 + HEADERS_BYTES;
	int r = import_progress(t->in);

	if (r < 0)
		return r;
	if (t->held) {
		*ret = t->held;
		t->held = NULL;
		return 1;
	}
	r = archive_read_next_header(t->archive, ret);
	if (r == ARCHIVE_EOF)
		return ended(t);
	if (r != ARCHIVE_OK)
		return tarball_fail(t, r == ARCHIVE_WARN ? archive_entry_pathname(*ret) : NULL,
				    "the archive is damaged");
	if ((uint64_t)archive_filter_bytes(t->archive, 0) > taken_max)
		return import_fail(t->in, EFBIG, archive_entry_pathname(*ret),
				   "the archive expands to too much");
	return 1;
}

void tarball_hold(struct tarball *t, struct archive_entry *entry)
{
	t->held = entry;
}

bool tarball_is_zstd(const struct tarball *t)
{
	return archive_filter_code(t->archive, 0) == ARCHIVE_FILTER_ZSTD;
}

int tarball_data(struct tarball *t, const char *name, tarball_sink *sink, void *owner)
{
	const void *bytes;
	size_t count;
	int64_t offset;
	int r;

	while ((r = archive_read_data_block(t->archive, &bytes, &count, &offset)) == ARCHIVE_OK) {
		/* Sizes were checked before; a sparse map may still point anywhere. */
		if (offset < 0 || (uint64_t)offset > t->data_left ||
		    count > t->data_left - (uint64_t)offset)
			return import_fail(t->in, EBADMSG, name, "more data than it said");
		r = sink(owner, bytes, count, (uint64_t)offset);
		if (r >= 0)
			r = import_progress(t->in);
		if (r < 0)
			return r;
	}
	return r == ARCHIVE_EOF ? 0 : tarball_fail(t, name, "the archive is cut off");
}
