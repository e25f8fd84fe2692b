/*
 * One completion loop per shard. Linked with io_uring.c in the engine and with io_sim.c in the
 * simulator, which decides every result, every order and the clock from a seed.
 *
 * An op belongs to the kernel, with all buffers it names, from the call that submits it until its
 * done() was called without IO_MORE. Callbacks run from io_turn() only, never from inside a submit.
 * No function here fails towards its caller: an op that could not be queued completes with -EBUSY.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct io;
struct io_op;
struct mail;
struct statx;
struct world;

enum {
	IO_MORE = 1, /* in op->flags: a multishot op stays armed, done() will be called again */
	/* Owned by the loop, never seen in done(). */
	IO_CANCEL_QUEUED = 2,
	IO_CANCEL_SENT = 4,
	IO_REFUSED = 8,
	IO_IN_FLIGHT = 16,
};

/* Zeroed before its first use. */
struct io_op {
	void (*done)(struct io_op *op, int res); /* res: >= 0 or -errno */
	struct io_op *next;			 /* owned by the loop */
	int res;				 /* owned by the loop */
	uint32_t flags;				 /* IO_MORE while in done() */
};

/* Bytes of a file. */
struct io_range {
	void *buffer;
	uint32_t bytes;
	uint64_t offset;
};

/*
 * A message from one shard's loop to another's. `deliver` runs on the receiving loop; from then on
 * the mail belongs to the receiver. Messages between two loops arrive in the order sent.
 */
struct mail {
	void (*deliver)(struct mail *mail, void *owner); /* owner: of the receiving loop */
	struct mail *next;				 /* owned by the loop until delivered */
	struct io *to;
};

struct io_options {
	uint32_t entries;    /* submission queue; the completion queue is four times as large */
	void *owner;	     /* handed to mail->deliver() */
	struct world *world; /* the simulator's; the engine leaves it NULL */
};

/* Counted since io_open(). A callback is one done() or deliver(). */
struct io_stats {
	uint64_t turns;
	uint64_t callbacks;
	uint64_t callbacks_over_1ms;  /* that worked or slept so long */
	uint64_t callbacks_preempted; /* that took so long because others ran; not counted above */
	uint64_t callback_max_ns;
	uint64_t slow_ns; /* of the last over 1 ms, and its function */
	uintptr_t slow_address;
	uint64_t mails_sent, mails_received;
	uint64_t mails_resent;	/* the kernel had no memory or room for it at first */
	uint64_t mails_lost;	/* their loop was closed already */
	uint64_t ops_set_aside; /* the submission queue was full; submitted a turn later */
	uint64_t ops_refused;	/* completed with -EBUSY */
	uint64_t overflows; /* turns that found the completion queue overflowed; nothing is lost */
};

/* Must be called on the thread that will run it (SINGLE_ISSUER). -ENOSYS, -EPERM, -ENOMEM … */
int io_open(const struct io_options *options, struct io **ret);
/* The likely cause of an error of io_open() and its remedy, one line; NULL when none is known. */
const char *io_explain(int error);
/*
 * On the loop's thread, after the loops that send to it have stopped. Ops in flight are cancelled
 * and their done() is not called; mail not yet delivered stays where it is. NULL is fine.
 */
void io_close(struct io *io);

/*
 * One turn: submit what is queued, wait until something completes, mail arrives or `until_ns`
 * (CLOCK_MONOTONIC; UINT64_MAX: no limit; 0: do not wait) passes, then call every done() that is
 * due. Returns the number of callbacks made, or -errno (never -EINTR, never -ETIME).
 */
int io_turn(struct io *io, uint64_t until_ns);

/*
 * What the loop's owner did since the last callback, or since this was called last, counts as a
 * callback of the function at `address`: for the watchdog, between two turns. The time now.
 */
uint64_t io_account(struct io *io, uintptr_t address);

const struct io_stats *io_stats(const struct io *io);
/* The loop's clock, read once per turn: CLOCK_MONOTONIC nanoseconds. */
uint64_t io_now_ns(const struct io *io);
/* Read the clock now (about 30 ns); everything else uses io_now_ns(). */
uint64_t io_clock_ns(struct io *io);
/* Randomness for the engine: getrandom(2) in the engine, the seed in the simulator. */
void io_random(struct io *io, void *ret_bytes, size_t bytes);

/*
 * Read and write are at the file's own position. A send never raises SIGPIPE; descriptors that
 * io_recvmsg() receives are close-on-exec.
 */
void io_read(struct io *io, struct io_op *op, int fd, void *buffer, uint32_t bytes);
/* Of a file, wherever its position is. */
void io_read_at(struct io *io, struct io_op *op, int fd, const struct io_range *range);
/* The same by a thread, always: of a file system that may hang, and says that it never waits. */
void io_read_far(struct io *io, struct io_op *op, int fd, const struct io_range *range);
void io_write_at(struct io *io, struct io_op *op, int fd, const struct io_range *range);
void io_write_far(struct io *io, struct io_op *op, int fd, const struct io_range *range);
/* fdatasync(2), by a thread. */
void io_sync_data(struct io *io, struct io_op *op, int fd);
/* Pages of a file that are clean need not stay in memory; the range has no buffer. */
void io_forget(struct io *io, struct io_op *op, int fd, const struct io_range *range);
void io_write(struct io *io, struct io_op *op, int fd, const void *buffer, uint32_t bytes);
void io_recv(struct io *io, struct io_op *op, int fd, void *buffer, uint32_t bytes);
void io_send(struct io *io, struct io_op *op, int fd, const void *buffer, uint32_t bytes);
void io_recvmsg(struct io *io, struct io_op *op, int fd, struct msghdr *message);
void io_sendmsg(struct io *io, struct io_op *op, int fd, const struct msghdr *message);
/*
 * Multishot: res is the new descriptor (SOCK_CLOEXEC | SOCK_NONBLOCK). Like io_poll() it may end
 * by itself (done() without IO_MORE, whatever res is): the caller arms it again.
 */
void io_accept(struct io *io, struct io_op *op, int fd);
/*
 * Multishot poll: res is the event mask. Told of every new event, not of a condition that lasts:
 * read until -EAGAIN before relying on the next one.
 */
void io_poll(struct io *io, struct io_op *op, int fd, uint32_t events);
/* One event and then no more: res is the event mask. */
void io_poll_once(struct io *io, struct io_op *op, int fd, uint32_t events);
/*
 * A descriptor (O_PATH) of a folder below `folder_fd`: at once where the kernel has the path at
 * hand, else by a thread of its own. `path` lives until done().
 */
void io_open_folder(struct io *io, struct io_op *op, int folder_fd, const char *path);
/* As above, of a file for reading, by a thread always: whose file systems may hang. No links. */
void io_open_file(struct io *io, struct io_op *op, int folder_fd, const char *path);
/* What an open descriptor is, by a thread. */
void io_stat(struct io *io, struct io_op *op, int fd, struct statx *ret);
/*
 * Closes by a thread of the kernel's: for descriptors whose end may wait for others, as a
 * terminal's does. The descriptor is gone when done() is called.
 */
void io_close_fd(struct io *io, struct io_op *op, int fd);
/*
 * Wait for the end of a child of this process and reap it. `ret_info` is a siginfo_t that lives
 * until done(). (IORING_OP_WAITID, Linux 6.7.)
 */
void io_wait_pid(struct io *io, struct io_op *op, int pid, void *ret_info);
/* Wait for its end and leave it to be reaped: until then the pid is its own. */
void io_watch_pid(struct io *io, struct io_op *op, int pid, void *ret_info);
/*
 * Asks for the cancellation of `target`: it still completes, with -ECANCELED or its result.
 * Nothing happens when it is not in flight; asking twice is asking once.
 */
void io_cancel(struct io *io, struct io_op *target);

/* Send to another loop. Callable from the thread of `io` only. */
void mail_send(struct io *io, struct io *to, struct mail *mail);
