/*
 * A buffer before a file. Called by what writes trees and EROFS. Must hold: after an error nothing
 * more is written, and output_end() tells of it.
 */
#include "backends/store/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUTPUT_BYTES = 256 << 10 };

int output_begin(struct output *out, int fd)
{
	*out = (struct output){ .fd = fd, .bytes = malloc(OUTPUT_BYTES) };
	return out->bytes ? 0 : -ENOMEM;
}

static void output_flush(struct output *out)
{
	size_t done = 0;

	while (!out->error && done < out->used) {
		ssize_t count = write(out->fd, out->bytes + done, out->used - done);

		if (count > 0)
			done += (size_t)count;
		else if (!count)
			out->error = -EIO;
		else if (errno != EINTR)
			out->error = -errno;
	}
	out->used = 0;
}

void output_put(struct output *out, const void *bytes, size_t count)
{
	const uint8_t *from = bytes;

	out->at += count;
	while (count) {
		size_t part = OUTPUT_BYTES - out->used;

		if (part > count)
			part = count;
		memcpy(out->bytes + out->used, from, part);
		out->used += part;
		from += part;
		count -= part;
		if (out->used == OUTPUT_BYTES)
			output_flush(out);
	}
}

void output_align(struct output *out, size_t bytes)
{
	const uint8_t zeros[64] = { 0 };
	size_t left = (size_t)(-out->at & (bytes - 1));

	while (left) {
		size_t part = left < sizeof zeros ? left : sizeof zeros;

		output_put(out, zeros, part);
		left -= part;
	}
}

int output_end(struct output *out)
{
	output_flush(out);
	free(out->bytes);
	out->bytes = NULL;
	return out->error;
}
