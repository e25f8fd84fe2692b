/*
 * The engine's loop: one io_uring per shard. Owns the ring, what waits for room in it, and the mail
 * that leaves. Called by the shard's thread only; mail reaches another shard through the kernel.
 *
 * Always true: an op that was handed in completes exactly once (or until it lacks IO_MORE);
 * callbacks run from io_turn() only, from a copy of the completions: mail first, then ops in order
 * for as long as a turn may take, and the others in the next one; mail to one loop leaves as at
 * most one chain per turn, and the next chain only after the kernel took the last one, so order
 * holds even when a chain has to be sent again.
 */
#include "engine/base/io.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "engine/base/io_ops.h"
#include "engine/base/watchdog.h"

enum { IO_PEERS_MAX = 1024 };

/*
 * Threads of the kernel's for what may wait for a file system: more than a remote that hangs can
 * hold, so that files elsewhere are still read. They are made as they are needed.
 */
enum { FILE_THREADS = 128 };

/* Of one turn, for the callbacks of ops: as many at least, then until so long has passed. */
enum { OPS_AT_LEAST = 4, OPS_NS = 100000 };

/* The low bits of user_data. An op is a pointer without any; 0 is nobody's. */
enum { TAG_MAIL = 1, TAG_MAIL_UNSENT = 2, TAG_MASK = 7 };

#define NS_PER_S 1000000000ull

struct completion {
	struct io_op *op;
	int32_t res;
	uint32_t flags;
};

struct outbox {
	struct io *to;
	struct mail *first, *last;
};

struct io {
	struct io_uring ring;
	void *owner;
	uint64_t now_ns;
	struct watchdog watchdog;
	struct completion *completions; /* of ops, in order: those not called yet */
	uint32_t completions_max, completions_at, completions_end;
	struct mail **arrived; /* chains of mail, of this turn */
	uint32_t arrived_count;
	struct io_uring_sqe *aside; /* found the submission queue full, in order */
	uint32_t aside_count, aside_max;
	struct io_uring_sqe forgotten;	      /* of the last op refused */
	struct io_op *refused, **refused_end; /* found even that full */
	struct io_op *cancels, **cancels_end; /* targets of io_cancel() since the last turn */
	struct outbox *outboxes;	      /* one per loop ever sent to */
	uint32_t outbox_count;
	bool mail_unsure; /* the kernel has not taken all mail of the last turn */
	struct io_stats stats;
};

static uint64_t clock_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static int ring_open(struct io_uring *ring, uint32_t entries)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			 IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CLAMP,
		.cq_entries = entries * 4,
	};
	unsigned threads[] = { FILE_THREADS, 0 }; /* 0: for the rest as it is */
	int r = io_uring_queue_init_params(entries, ring, &params);

	if (r < 0)
		return r;
	(void)io_uring_register_iowq_max_workers(ring, threads); /* fewer otherwise */
	(void)io_uring_register_ring_fd(ring); /* saves a look-up per turn; works without */
	return 0;
}

int io_open(const struct io_options *options, struct io **ret)
{
	struct io *io = calloc(1, sizeof *io);
	int r;

	if (!io)
		return -ENOMEM;
	r = ring_open(&io->ring, options->entries);
	if (r < 0) {
		free(io);
		return r;
	}
	io->owner = options->owner;
	io->completions_max = io->ring.cq.ring_entries;
	io->completions = calloc(io->completions_max, sizeof *io->completions);
	io->arrived = calloc(io->completions_max, sizeof *io->arrived);
	io->aside_max = io->ring.cq.ring_entries;
	io->aside = calloc(io->aside_max, sizeof *io->aside);
	io->outboxes = calloc(IO_PEERS_MAX, sizeof *io->outboxes);
	io->refused_end = &io->refused;
	io->cancels_end = &io->cancels;
	io->now_ns = clock_ns();
	if (!io->completions || !io->arrived || !io->aside || !io->outboxes) {
		io_close(io);
		return -ENOMEM;
	}
	*ret = io;
	return 0;
}

void io_close(struct io *io)
{
	struct io_uring_sync_cancel_reg everything = {
		.flags = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL,
		.timeout = { .tv_sec = 1 },
	};

	if (!io)
		return;
	/* So that no buffer of an op in flight is written after this; none in flight: -ENOENT. */
	(void)io_uring_register_sync_cancel(&io->ring, &everything);
	io_uring_queue_exit(&io->ring);
	free(io->completions);
	free(io->arrived);
	free(io->aside);
	free(io->outboxes);
	free(io);
}

uint64_t io_now_ns(const struct io *io)
{
	return io->now_ns;
}

uint64_t io_clock_ns(struct io *io)
{
	(void)io; /* the simulator's clock is its world's */
	return clock_ns();
}

const struct io_stats *io_stats(const struct io *io)
{
	return &io->stats;
}

void io_random(struct io *io, void *ret_bytes, size_t bytes)
{
	char *at = ret_bytes;

	(void)io; /* as above */
	while (bytes) {
		ssize_t got = getrandom(at, bytes, 0);

		assert(got > 0 || errno == EINTR);
		if (got > 0) {
			at += got;
			bytes -= (size_t)got;
		}
	}
}

/* Submission. */

/* A free entry, after submitting if need be; no callback can run. NULL: the kernel takes none. */
static struct io_uring_sqe *sqe_get(struct io *io)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&io->ring);

	if (!sqe && io_uring_submit(&io->ring) > 0)
		sqe = io_uring_get_sqe(&io->ring);
	return sqe;
}

static struct io_uring_sqe *sqe_find(struct io *io)
{
	struct io_uring_sqe *sqe = io->aside_count ? NULL : sqe_get(io);

	if (sqe)
		return sqe;
	if (io->aside_count == io->aside_max)
		return NULL;
	io->stats.ops_set_aside++;
	return &io->aside[io->aside_count++];
}

struct io_uring_sqe *io_sqe_for(struct io *io, struct io_op *op)
{
	struct io_uring_sqe *sqe = sqe_find(io);

	assert(((uintptr_t)op & TAG_MASK) == 0);
	assert(!(op->flags & IO_IN_FLIGHT));
	op->flags = IO_IN_FLIGHT;
	if (!sqe) {
		io->stats.ops_refused++;
		op->flags |= IO_REFUSED;
		op->next = NULL;
		*io->refused_end = op;
		io->refused_end = &op->next;
		sqe = &io->forgotten;
	}
	io_uring_sqe_set_data(sqe, op);
	return sqe;
}

void io_cancel(struct io *io, struct io_op *target)
{
	if (!(target->flags & IO_IN_FLIGHT) ||
	    target->flags & (IO_REFUSED | IO_CANCEL_QUEUED | IO_CANCEL_SENT))
		return;
	target->flags |= IO_CANCEL_QUEUED;
	target->next = NULL;
	*io->cancels_end = target;
	io->cancels_end = &target->next;
}

void mail_send(struct io *io, struct io *to, struct mail *mail)
{
	struct outbox *box = io->outboxes;

	assert(((uintptr_t)mail & TAG_MASK) == 0);
	while (box < io->outboxes + io->outbox_count && box->to != to)
		box++;
	if (box == io->outboxes + io->outbox_count) {
		assert(io->outbox_count < IO_PEERS_MAX);
		io->outbox_count++;
		box->to = to;
	}
	mail->to = to;
	mail->next = NULL;
	if (box->first)
		box->last->next = mail;
	else
		box->first = mail;
	box->last = mail;
	io->stats.mails_sent++;
}

/* What waited since the last turn enters the queue. Each returns whether anything had to stay. */

static bool aside_queue(struct io *io)
{
	uint32_t moved = 0;

	for (; moved < io->aside_count; moved++) {
		struct io_uring_sqe *sqe = sqe_get(io);

		if (!sqe)
			break;
		*sqe = io->aside[moved];
	}
	io->aside_count -= moved;
	if (moved && io->aside_count)
		memmove(io->aside, io->aside + moved, io->aside_count * sizeof *io->aside);
	return io->aside_count;
}

/* After its target in the queue: hence not while anything is set aside. */
static bool cancels_queue(struct io *io)
{
	while (io->cancels && !io->aside_count) {
		struct io_op *target = io->cancels;
		struct io_uring_sqe *sqe = sqe_get(io);

		if (!sqe)
			break;
		io_uring_prep_cancel(sqe, target, 0);
		sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
		io_uring_sqe_set_data64(sqe, 0);
		target->flags = (target->flags & ~IO_CANCEL_QUEUED) | IO_CANCEL_SENT;
		io->cancels = target->next;
		if (!io->cancels)
			io->cancels_end = &io->cancels;
	}
	return io->cancels;
}

/*
 * A chain per loop. The kernel gives no ordering between threads that a compiler (or the thread
 * sanitizer) knows of, so the head's `to` carries it: stored here, loaded by the receiver.
 */
static bool mail_queue(struct io *io)
{
	bool stays = false;

	for (uint32_t i = 0; i < io->outbox_count; i++) {
		struct outbox *box = &io->outboxes[i];
		struct mail *first = box->first;
		struct io_uring_sqe *sqe;

		if (!first || box->to == io)
			continue;
		sqe = io->mail_unsure ? NULL : sqe_get(io);
		if (!sqe) {
			stays = true;
			continue;
		}
		box->first = box->last = NULL;
		__atomic_store_n(&first->to, box->to, __ATOMIC_RELEASE);
		io_uring_prep_msg_ring(sqe, box->to->ring.ring_fd, 0, (uintptr_t)first | TAG_MAIL,
				       0);
		sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
		io_uring_sqe_set_data64(sqe, (uintptr_t)first | TAG_MAIL_UNSENT);
	}
	return stays;
}

/* A chain that the kernel did not take: before what was sent to the same loop since. */
static void mail_unsent(struct io *io, struct mail *first, int error)
{
	struct outbox *box = io->outboxes;
	struct mail *last = first;
	uint32_t count = 1;

	for (; last->next; last = last->next)
		count++;
	if (error != -ENOMEM && error != -EAGAIN && error != -EOVERFLOW && error != -EBUSY) {
		io->stats.mails_lost += count;
		return;
	}
	while (box->to != first->to)
		box++;
	io->stats.mails_resent += count;
	last->next = box->first;
	if (!box->first)
		box->last = last;
	box->first = first;
}

/* Completion. */

uint64_t io_account(struct io *io, uintptr_t address)
{
	return watchdog_measure(&io->watchdog, &io->stats, address);
}

static int mail_deliver(struct io *io, struct mail *mail)
{
	int made = 0;

	while (mail) {
		struct mail *next = mail->next;
		void (*deliver)(struct mail *, void *) = mail->deliver;

		io->stats.mails_received++;
		deliver(mail, io->owner);
		watchdog_measure(&io->watchdog, &io->stats, (uintptr_t)deliver);
		made++;
		mail = next;
	}
	return made;
}

static int mail_deliver_own(struct io *io)
{
	for (uint32_t i = 0; i < io->outbox_count; i++) {
		struct outbox *box = &io->outboxes[i];
		struct mail *first = box->first;

		if (box->to != io)
			continue;
		box->first = box->last = NULL;
		return mail_deliver(io, first);
	}
	return 0;
}

static bool mail_own_waits(const struct io *io)
{
	for (uint32_t i = 0; i < io->outbox_count; i++)
		if (io->outboxes[i].to == io)
			return io->outboxes[i].first;
	return false;
}

/* The op is over: no cancel of it may reach the kernel later, when its memory is another op. */
static void cancel_forget(struct io *io, struct io_op *op)
{
	struct io_uring_sq *sq = &io->ring.sq;
	struct io_op **at = &io->cancels;

	if (op->flags & IO_CANCEL_QUEUED) {
		while (*at != op)
			at = &(*at)->next;
		*at = op->next;
		if (!*at)
			io->cancels_end = at;
	}
	if (!(op->flags & IO_CANCEL_SENT))
		return;
	for (unsigned left = io_uring_sq_ready(&io->ring); left; left--) {
		struct io_uring_sqe *sqe = &sq->sqes[(sq->sqe_tail - left) & sq->ring_mask];

		if (sqe->opcode == IORING_OP_ASYNC_CANCEL && sqe->addr == (uintptr_t)op) {
			io_uring_prep_nop(sqe);
			sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
		}
	}
}

static uint64_t op_complete(struct io *io, struct io_op *op, int res, uint32_t flags)
{
	void (*done)(struct io_op *, int) = op->done;

	op->res = res;
	if (flags & IORING_CQE_F_MORE) {
		op->flags |= IO_MORE;
	} else {
		cancel_forget(io, op);
		op->flags = 0;
	}
	done(op, res);
	return watchdog_measure(&io->watchdog, &io->stats, (uintptr_t)done);
}

static int refused_complete(struct io *io)
{
	struct io_op *op = io->refused;
	int made = 0;

	io->refused = NULL;
	io->refused_end = &io->refused;
	while (op) {
		struct io_op *next = op->next;

		(void)op_complete(io, op, -EBUSY, 0);
		made++;
		op = next;
	}
	return made;
}

/* No callback runs here: one may submit, and then more completions come. */
static void completion_sort(struct io *io, const struct io_uring_cqe *cqe)
{
	void *pointer = (void *)(uintptr_t)(cqe->user_data & ~(uint64_t)TAG_MASK);
	struct mail *mail = pointer;

	if (cqe->user_data == 0)
		return; /* of a cancel that came too late */
	if (cqe->user_data & TAG_MAIL_UNSENT) {
		mail_unsent(io, mail, cqe->res);
	} else if (cqe->user_data & TAG_MAIL) {
		/* Pairs with mail_queue(). */
		struct io *to = __atomic_load_n(&mail->to, __ATOMIC_ACQUIRE);

		assert(to == io);
		io->arrived[io->arrived_count++] = mail;
	} else {
		io->completions[io->completions_end++] = (struct completion){
			.op = pointer,
			.res = cqe->res,
			.flags = cqe->flags,
		};
	}
}

/* Those called already make room. */
static void completions_move_up(struct io *io)
{
	uint32_t left = io->completions_end - io->completions_at;

	memmove(io->completions, io->completions + io->completions_at,
		left * sizeof *io->completions);
	io->completions_at = 0;
	io->completions_end = left;
}

/* What finds no room stays in the kernel's queue. */
static void completions_take(struct io *io)
{
	struct io_uring_cqe *cqe;
	uint32_t head, count = 0;

	if (io->completions_at)
		completions_move_up(io);
	io->arrived_count = 0;
	io_uring_for_each_cqe(&io->ring, head, cqe)
	{
		if (io->completions_end == io->completions_max ||
		    io->arrived_count == io->completions_max)
			break;
		completion_sort(io, cqe);
		count++;
	}
	io_uring_cq_advance(&io->ring, count);
}

static int arrived_deliver(struct io *io)
{
	int made = 0;

	for (uint32_t i = 0; i < io->arrived_count; i++)
		made += mail_deliver(io, io->arrived[i]);
	return made;
}

static int completions_run(struct io *io)
{
	const uint64_t until_ns = clock_ns() + OPS_NS;
	uint64_t now_ns = 0;
	int made = 0;

	while (io->completions_at < io->completions_end &&
	       (made < OPS_AT_LEAST || now_ns < until_ns)) {
		const struct completion c = io->completions[io->completions_at++];

		now_ns = op_complete(io, c.op, c.res, c.flags);
		made++;
	}
	return made;
}

static int ring_enter(struct io *io, uint64_t until_ns)
{
	struct __kernel_timespec timeout, *limit = NULL;
	struct io_uring_cqe *cqe;
	uint64_t now_ns;
	int r;

	if (until_ns != UINT64_MAX && until_ns) {
		now_ns = clock_ns();
		until_ns = until_ns > now_ns ? until_ns - now_ns : 0;
		timeout.tv_sec = (long long)(until_ns / NS_PER_S);
		timeout.tv_nsec = (long long)(until_ns % NS_PER_S);
		limit = &timeout;
	}
	if (until_ns == 0)
		r = io_uring_submit_and_get_events(&io->ring);
	else
		r = io_uring_submit_and_wait_timeout(&io->ring, &cqe, 1, limit, NULL);
	if (r == -EAGAIN || r == -EBUSY)
		r = io_uring_get_events(&io->ring); /* completing makes room for submitting */
	return r == -EINTR || r == -ETIME || r == -EAGAIN || r == -EBUSY ? 0 : r;
}

int io_turn(struct io *io, uint64_t until_ns)
{
	bool busy = aside_queue(io);
	int r, made;

	busy |= cancels_queue(io);
	busy |= mail_queue(io);
	busy |= mail_own_waits(io) || io->refused || io->completions_at < io->completions_end;
	r = ring_enter(io, busy ? 0 : until_ns);
	if (r < 0)
		return r;
	io->stats.turns++;
	io->mail_unsure = io_uring_sq_ready(&io->ring) > 0;
	io->now_ns = clock_ns();
	watchdog_start(&io->watchdog, io->now_ns);
	completions_take(io);
	made = refused_complete(io) + mail_deliver_own(io) + arrived_deliver(io) +
	       completions_run(io);
	if (io_uring_cq_ready(&io->ring) || io_uring_cq_has_overflow(&io->ring)) {
		io->stats.overflows += io_uring_cq_has_overflow(&io->ring);
		io->mail_unsure = true; /* a failure to send may be among what is still hidden */
	}
	return made;
}
