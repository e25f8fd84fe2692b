/* Bytes into a file, in order, in large writes. The first error stays and is told at the end. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct output {
	int fd, error;
	uint8_t *bytes;
	size_t used;
	uint64_t at; /* so much was put */
};

int output_begin(struct output *out, int fd);
void output_put(struct output *out, const void *bytes, size_t count);
/* Zeros up to a multiple of `bytes`. */
void output_align(struct output *out, size_t bytes);
/* All of it is written, and what was held is free. Negative: it is not. */
int output_end(struct output *out);
