/*
 * The ops that a loop can do, each as one entry of its ring. Called by whoever has an op; must
 * hold: nothing is written to an entry but what it is for, since io_sqe_for() gave it its owner.
 */
#include "engine/base/io_ops.h"

#include <fcntl.h>
#include <liburing.h>
#include <linux/openat2.h>
#include <sys/wait.h>

#include "engine/base/io.h"

/* Newer than the liburing of Debian 12. Until liburing 2.5 is the minimum. */
enum { OP_WAITID = 50 };

void io_read(struct io *io, struct io_op *op, int fd, void *buffer, uint32_t bytes)
{
	io_uring_prep_read(io_sqe_for(io, op), fd, buffer, bytes, (uint64_t)-1);
}

void io_read_at(struct io *io, struct io_op *op, int fd, const struct io_range *range)
{
	io_uring_prep_read(io_sqe_for(io, op), fd, range->buffer, range->bytes, range->offset);
}

void io_read_far(struct io *io, struct io_op *op, int fd, const struct io_range *range)
{
	struct io_uring_sqe *sqe = io_sqe_for(io, op);

	io_uring_prep_read(sqe, fd, range->buffer, range->bytes, range->offset);
	sqe->flags |= IOSQE_ASYNC;
}

void io_write_at(struct io *io, struct io_op *op, int fd, const struct io_range *range)
{
	io_uring_prep_write(io_sqe_for(io, op), fd, range->buffer, range->bytes, range->offset);
}

void io_write_far(struct io *io, struct io_op *op, int fd, const struct io_range *range)
{
	struct io_uring_sqe *sqe = io_sqe_for(io, op);

	io_uring_prep_write(sqe, fd, range->buffer, range->bytes, range->offset);
	sqe->flags |= IOSQE_ASYNC;
}

void io_sync_data(struct io *io, struct io_op *op, int fd)
{
	io_uring_prep_fsync(io_sqe_for(io, op), fd, IORING_FSYNC_DATASYNC);
}

void io_forget(struct io *io, struct io_op *op, int fd, const struct io_range *range)
{
	io_uring_prep_fadvise(io_sqe_for(io, op), fd, range->offset, range->bytes,
			      POSIX_FADV_DONTNEED);
}

void io_write(struct io *io, struct io_op *op, int fd, const void *buffer, uint32_t bytes)
{
	io_uring_prep_write(io_sqe_for(io, op), fd, buffer, bytes, (uint64_t)-1);
}

void io_recv(struct io *io, struct io_op *op, int fd, void *buffer, uint32_t bytes)
{
	io_uring_prep_recv(io_sqe_for(io, op), fd, buffer, bytes, 0);
}

void io_send(struct io *io, struct io_op *op, int fd, const void *buffer, uint32_t bytes)
{
	io_uring_prep_send(io_sqe_for(io, op), fd, buffer, bytes, MSG_NOSIGNAL);
}

void io_recvmsg(struct io *io, struct io_op *op, int fd, struct msghdr *message)
{
	io_uring_prep_recvmsg(io_sqe_for(io, op), fd, message, MSG_CMSG_CLOEXEC);
}

void io_sendmsg(struct io *io, struct io_op *op, int fd, const struct msghdr *message)
{
	io_uring_prep_sendmsg(io_sqe_for(io, op), fd, message, MSG_NOSIGNAL);
}

void io_accept(struct io *io, struct io_op *op, int fd)
{
	io_uring_prep_multishot_accept(io_sqe_for(io, op), fd, NULL, NULL,
				       SOCK_CLOEXEC | SOCK_NONBLOCK);
}

void io_poll(struct io *io, struct io_op *op, int fd, uint32_t events)
{
	io_uring_prep_poll_multishot(io_sqe_for(io, op), fd, events);
}

void io_poll_once(struct io *io, struct io_op *op, int fd, uint32_t events)
{
	io_uring_prep_poll_add(io_sqe_for(io, op), fd, events);
}

void io_open_folder(struct io *io, struct io_op *op, int folder_fd, const char *path)
{
	io_uring_prep_openat(io_sqe_for(io, op), folder_fd, path,
			     O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
}

void io_open_file(struct io *io, struct io_op *op, int folder_fd, const char *path)
{
	/* Non-blocking: the opening of what is no file must not wait for another end. */
	static const struct open_how how = {
		.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	struct io_uring_sqe *sqe = io_sqe_for(io, op);

	io_uring_prep_openat2(sqe, folder_fd, path, (struct open_how *)(uintptr_t)&how);
	/* That the path is at hand says nothing of the file system's own opening. */
	sqe->flags |= IOSQE_ASYNC;
}

void io_stat(struct io *io, struct io_op *op, int fd, struct statx *ret)
{
	io_uring_prep_statx(io_sqe_for(io, op), fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE,
			    ret);
}

void io_close_fd(struct io *io, struct io_op *op, int fd)
{
	struct io_uring_sqe *sqe = io_sqe_for(io, op);

	io_uring_prep_close(sqe, fd);
	sqe->flags |= IOSQE_ASYNC;
}

void io_wait_pid(struct io *io, struct io_op *op, int pid, void *ret_info)
{
	struct io_uring_sqe *sqe = io_sqe_for(io, op);

	io_uring_prep_rw(OP_WAITID, sqe, pid, NULL, P_PID, 0);
	sqe->addr2 = (uintptr_t)ret_info;
	sqe->file_index = WEXITED;
}

void io_watch_pid(struct io *io, struct io_op *op, int pid, void *ret_info)
{
	struct io_uring_sqe *sqe = io_sqe_for(io, op);

	io_uring_prep_rw(OP_WAITID, sqe, pid, NULL, P_PID, 0);
	sqe->addr2 = (uintptr_t)ret_info;
	sqe->file_index = WEXITED | WNOWAIT;
}
