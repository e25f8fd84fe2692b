/*
 * Between io_uring.c, which has the ring, and io_ops.c, which knows how each op is written.
 */
#pragma once

struct io;
struct io_op;
struct io_uring_sqe;

/* The entry to fill for op; its user_data stands already. */
struct io_uring_sqe *io_sqe_for(struct io *io, struct io_op *op);
