/*
 * The bytes of a tar. Called by tarball.c, in the place of libarchive's own reading of gzip, which
 * does not compare its sums: what was damaged on its way would become an image.
 */
#include "backends/image/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct source *source_new(int fd, bool wants_digest)
{
	struct source *source = calloc(1, sizeof *source);

	if (!source)
		return NULL;
	source->fd = fd;
	if (wants_digest)
		source->digest = digest_new();
	if (wants_digest && !source->digest) {
		source_free(source);
		return NULL;
	}
	return source;
}

void source_free(struct source *source)
{
	if (!source)
		return;
	if (source->is_gzip)
		(void)inflateEnd(&source->stream); /* frees it, whatever state it is in */
	digest_free(source->digest);
	free(source);
}

/* As much as a whole block, so that the first one holds what says how it is packed. */
static ssize_t input_fill(struct source *source)
{
	size_t used = 0;

	while (used < sizeof source->in) {
		ssize_t n = read(source->fd, source->in + used, sizeof source->in - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		used += (size_t)n;
	}
	return (ssize_t)used;
}

static int source_begin(struct source *source)
{
	ssize_t n = input_fill(source);

	if (n < 0)
		return (int)n;
	source->begun = true;
	source->is_gzip = n >= 2 && source->in[0] == 0x1f && source->in[1] == 0x8b;
	source->stream.next_in = source->in;
	source->stream.avail_in = (unsigned)n;
	if (source->is_gzip && inflateInit2(&source->stream, 15 + 16) != Z_OK) {
		source->is_gzip = false;
		return -ENOMEM;
	}
	return 0;
}

static ssize_t plain_read(struct source *source, const void **ret)
{
	ssize_t n = source->stream.avail_in;

	if (!n)
		n = input_fill(source);
	source->stream.avail_in = 0;
	*ret = source->in;
	return n;
}

/* 1: another member follows the one that ended; 0: the end, but for zeros that pad it. */
static int member_next(struct source *source)
{
	z_stream *z = &source->stream;

	while (!z->avail_in || !*z->next_in) {
		if (z->avail_in) {
			z->next_in++;
			z->avail_in--;
			continue;
		}
		ssize_t n = input_fill(source);

		if (n <= 0)
			return (int)n;
		z->next_in = source->in;
		z->avail_in = (unsigned)n;
	}
	return inflateReset(z) == Z_OK ? 1 : -EBADMSG;
}

static int gzip_step(struct source *source)
{
	z_stream *z = &source->stream;
	int r;

	if (!z->avail_in) {
		ssize_t n = input_fill(source);

		if (n <= 0)
			return n < 0 ? (int)n : -EBADMSG; /* cut off */
		z->next_in = source->in;
		z->avail_in = (unsigned)n;
	}
	r = inflate(z, Z_NO_FLUSH);
	if (r == Z_STREAM_END) {
		r = member_next(source);
		source->ended = r == 0;
		return r < 0 ? r : 0;
	}
	return r == Z_OK || r == Z_BUF_ERROR ? 0 : r == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
}

static ssize_t gzip_read(struct source *source, const void **ret)
{
	z_stream *z = &source->stream;
	int r = 0;

	z->next_out = source->out;
	z->avail_out = sizeof source->out;
	while (z->avail_out && !source->ended && r >= 0)
		r = gzip_step(source);
	*ret = source->out;
	return r < 0 ? r : (ssize_t)(sizeof source->out - z->avail_out);
}

ssize_t source_read(struct source *source, const void **ret)
{
	ssize_t n = source->begun ? 0 : source_begin(source);

	if (n >= 0)
		n = source->is_gzip ? gzip_read(source, ret) : plain_read(source, ret);
	if (n > 0 && source->digest)
		digest_add(source->digest, *ret, (size_t)n);
	source->damaged |= n == -EBADMSG;
	return n;
}
