/*
 * Blobs on their way between store and layout. Called by push and pull. Must hold: nothing is kept
 * in a batch whose size, digest and chunks are not what was promised; what unpacks is bounded by
 * its promise, and what it needs by a window of 8 MiB.
 */
#include "backends/store/copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "backends/store/file.h"
#include "backends/store/segment.h"
#include "engine/base/cleanup.h"

enum { PIECE_BYTES = 1 << 20, ZSTD_LEVEL = 3, ZSTD_WINDOW_LOG = 23 };

/* ---- what comes out ---- */

/* A blob in the making: bytes come in any pieces. */
struct output {
	struct copy *copy;
	int fd;
	uint64_t bytes, bytes_max;
	struct digest *whole, *chunk;
	const uint8_t *chunks; /* NULL: of no segment */
};

static int output_open(struct copy *copy, const struct store_blob *blob, const void *chunks,
		       struct output *ret)
{
	struct output out = {
		.copy = copy,
		.fd = -1,
		.bytes_max = blob->bytes,
		.whole = digest_new(),
		.chunk = digest_new(),
		.chunks = chunks,
	};
	int r = out.whole && out.chunk ? batch_file(copy->to, &out.fd) : -ENOMEM;

	*ret = out;
	return r;
}

static void output_close(struct output *out)
{
	cleanup_close(&out->fd);
	digest_free(out->whole);
	digest_free(out->chunk);
}

static int chunk_check(struct output *out)
{
	const uint64_t at = (out->bytes - 1) / SEGMENT_CHUNK_BYTES;
	uint8_t digest[DIGEST_BYTES];

	digest_take(out->chunk, digest);
	out->copy->why = "a chunk that is not what its table says";
	return memcmp(digest, out->chunks + at * DIGEST_BYTES, DIGEST_BYTES) ? -EBADMSG : 0;
}

static int chunks_add(struct output *out, const uint8_t *bytes, size_t count)
{
	int r = 0;

	while (r >= 0 && count) {
		size_t left = SEGMENT_CHUNK_BYTES - out->bytes % SEGMENT_CHUNK_BYTES;
		size_t taken = count < left ? count : left;

		digest_add(out->chunk, bytes, taken);
		out->bytes += taken;
		bytes += taken;
		count -= taken;
		if (out->bytes % SEGMENT_CHUNK_BYTES == 0 || out->bytes == out->bytes_max)
			r = chunk_check(out);
	}
	return r;
}

static int output_add(struct output *out, const void *bytes, size_t count)
{
	int r;

	out->copy->why = "a blob that is larger than its descriptor says";
	if (count > out->bytes_max - out->bytes)
		return -EBADMSG;
	out->copy->why = NULL;
	r = file_write(out->fd, bytes, count, out->bytes);
	if (r < 0)
		return r;
	digest_add(out->whole, bytes, count);
	if (out->chunks)
		r = chunks_add(out, bytes, count);
	else
		out->bytes += count;
	return r < 0 || !out->copy->progress ? r : out->copy->progress(out->copy->owner, count);
}

static int output_end(struct output *out, const struct store_blob *blob)
{
	uint8_t digest[DIGEST_BYTES];

	digest_take(out->whole, digest);
	out->copy->why = "a blob whose bytes are not those of its digest";
	if (out->bytes != blob->bytes || memcmp(digest, blob->digest, DIGEST_BYTES) != 0)
		return -EBADMSG;
	out->copy->why = NULL;
	return batch_keep(out->copy->to, take_fd(&out->fd), blob->digest);
}

/* ---- as it is ---- */

static size_t piece_of(uint64_t left)
{
	return left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
}

int copy_plain(struct copy *copy, struct stream *from, const struct store_blob *blob,
	       const void *chunks)
{
	auto_free char *piece = malloc(PIECE_BYTES);
	struct output out;
	int r = output_open(copy, blob, chunks, &out);

	if (!piece)
		r = -ENOMEM;
	for (uint64_t at = 0; r >= 0 && at < blob->bytes; at += piece_of(blob->bytes - at)) {
		const size_t count = piece_of(blob->bytes - at);

		r = stream_read(from, piece, count, &copy->why);
		if (r >= 0)
			r = output_add(&out, piece, count);
	}
	if (r >= 0)
		r = output_end(&out, blob);
	output_close(&out);
	return r;
}

/* ---- zstd ---- */

struct unpacking {
	ZSTD_DCtx *zstd;
	struct digest *digest; /* of what goes in */
	char *in, *out;
	size_t state; /* of zstd: 0 at the end of a frame */
};

static int piece_unpack(struct unpacking *u, size_t count, struct output *out)
{
	ZSTD_inBuffer in = { u->in, count, 0 };
	int r = 0;

	digest_add(u->digest, u->in, count);
	while (r >= 0) {
		ZSTD_outBuffer to = { u->out, PIECE_BYTES, 0 };

		u->state = ZSTD_decompressStream(u->zstd, &to, &in);
		out->copy->why = "damaged zstd, or of a window over 8 MiB";
		if (ZSTD_isError(u->state))
			return -EBADMSG;
		r = output_add(out, u->out, to.pos);
		if (in.pos == in.size && (!u->state || to.pos < to.size))
			break;
	}
	return r;
}

static int all_unpack(struct unpacking *u, struct stream *from, const struct store_blob *packed,
		      struct output *out)
{
	uint8_t digest[DIGEST_BYTES];
	int r = 0;

	for (uint64_t at = 0; r >= 0 && at < packed->bytes; at += piece_of(packed->bytes - at)) {
		const size_t count = piece_of(packed->bytes - at);

		r = stream_read(from, u->in, count, &out->copy->why);
		if (r >= 0)
			r = piece_unpack(u, count, out);
	}
	if (r < 0)
		return r;
	digest_take(u->digest, digest);
	out->copy->why = "a blob whose bytes are not those of its digest";
	if (memcmp(digest, packed->digest, DIGEST_BYTES) != 0)
		return -EBADMSG;
	out->copy->why = "zstd that ends before its end";
	return u->state ? -EBADMSG : 0;
}

int copy_unpack(struct copy *copy, struct stream *from, const struct store_blob *packed,
		const struct store_blob *blob, const void *chunks)
{
	auto_free char *in = malloc(PIECE_BYTES), *pieces = malloc(PIECE_BYTES);
	struct unpacking u = { ZSTD_createDCtx(), digest_new(), in, pieces, 1 };
	struct output out;
	int r = output_open(copy, blob, chunks, &out);

	if (!in || !pieces || !u.zstd || !u.digest ||
	    ZSTD_isError(ZSTD_DCtx_setParameter(u.zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG)))
		r = -ENOMEM;
	if (r >= 0)
		r = all_unpack(&u, from, packed, &out);
	if (r >= 0)
		r = output_end(&out, blob);
	output_close(&out);
	digest_free(u.digest);
	ZSTD_freeDCtx(u.zstd);
	return r;
}

struct packing {
	ZSTD_CCtx *zstd;
	struct digest *digest;
	char *in, *out;
	int to_fd;
	uint64_t bytes;
};

static int piece_pack(struct packing *p, size_t count, bool is_last)
{
	const ZSTD_EndDirective end = is_last ? ZSTD_e_end : ZSTD_e_continue;
	ZSTD_inBuffer in = { p->in, count, 0 };
	size_t left;
	int r = 0;

	do {
		ZSTD_outBuffer to = { p->out, PIECE_BYTES, 0 };

		left = ZSTD_compressStream2(p->zstd, &to, &in, end);
		if (ZSTD_isError(left))
			return -EIO;
		digest_add(p->digest, p->out, to.pos);
		r = file_write(p->to_fd, p->out, to.pos, p->bytes);
		p->bytes += to.pos;
	} while (r >= 0 && (is_last ? left != 0 : in.pos < in.size));
	return r;
}

static int all_pack(struct copy *copy, struct packing *p, int fd, const struct store_blob *blob)
{
	uint64_t at = 0;
	int r = 0;

	while (r >= 0 && at < blob->bytes) {
		const size_t count = piece_of(blob->bytes - at);

		r = file_read(fd, p->in, count, at);
		at += count;
		if (r >= 0)
			r = piece_pack(p, count, at == blob->bytes);
		if (r >= 0 && copy->progress)
			r = copy->progress(copy->owner, count);
	}
	return r;
}

int copy_pack(struct copy *copy, int fd, const struct store_blob *blob, struct store_blob *ret)
{
	auto_free char *in = malloc(PIECE_BYTES), *pieces = malloc(PIECE_BYTES);
	struct packing p = { ZSTD_createCCtx(), digest_new(), in, pieces, -1, 0 };
	int r = batch_file(copy->to, &p.to_fd);

	if (!in || !pieces || !p.zstd || !p.digest ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(p.zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(p.zstd, ZSTD_c_checksumFlag, 1)))
		r = -ENOMEM;
	if (r >= 0)
		r = all_pack(copy, &p, fd, blob);
	if (r >= 0) {
		digest_take(p.digest, ret->digest);
		ret->bytes = p.bytes;
		r = batch_keep(copy->to, take_fd(&p.to_fd), ret->digest);
	}
	cleanup_close(&p.to_fd);
	digest_free(p.digest);
	ZSTD_freeCCtx(p.zstd);
	return r;
}
