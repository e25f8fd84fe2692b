/*
 * Pipes whose other end is a sandbox's. Whoever is in there may hold a pipe's lock for as long as
 * it likes: splice(2) waits with the lock for a socket that is silent, or a file that is slow to
 * come. A read or write of the pipe then sleeps until the lock is given back, O_NONBLOCK or not
 * (Linux, fs/splice.c, splice_file_to_pipe()). So a shard only looks, by poll, which takes no lock,
 * and a thread of its ring reads or writes what is known to be there.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/io.h"

struct pipe_op {
	struct io_op op;
	struct io *io;
	int fd;
	bool is_looking; /* else a thread is at it, and ends when the pipe lets it */
	bool is_write;
	void *buffer;
	uint32_t bytes;
	void (*done)(struct pipe_op *op, int res); /* as of io_read() and io_write() */
};

/* op->io and op->done are set before. */
void pipe_read(struct pipe_op *op, int fd, void *buffer, uint32_t bytes);
void pipe_write(struct pipe_op *op, int fd, const void *buffer, uint32_t bytes);
/* done() follows: with -ECANCELED where nothing was there, else when the thread is through. */
void pipe_cancel(struct pipe_op *op);
/* What poll says of its reading end now: bytes, no writer any more, neither. */
enum pipe_state { PIPE_SILENT, PIPE_HAS_BYTES, PIPE_ENDED };
enum pipe_state pipe_state(int fd);
