/*
 * Mail that the kernel refuses at first. No test can take the kernel's memory away at the right
 * moment, so this one includes the loop and exchanges the entry it queued for one that fails alike.
 */
#include "engine/base/io_uring.c"

#include <criterion/criterion.h>

#include "engine/base/cleanup.h"

/* Of Linux 6.10; not in Debian 12's header. */
enum { NOP_INJECT_RESULT = 1 };

struct note {
	struct mail mail;
	unsigned number;
};

struct reader {
	struct io *io;
	unsigned seen, disordered;
};

static void note_read(struct mail *mail, void *owner)
{
	struct reader *reader = owner;

	if (container_of(mail, struct note, mail)->number != reader->seen)
		reader->disordered++;
	reader->seen++;
}

static void reader_open(struct reader *reader)
{
	*reader = (struct reader){ 0 };
	cr_assert_eq(io_open(&(struct io_options){ .entries = 8, .owner = reader }, &reader->io),
		     0);
}

static void notes_send(struct reader *from, struct reader *to, struct note *notes, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		mail_send(from->io, to->io, &notes[i].mail);
}

/* Queue what is in the outboxes, as a turn would, but so that the kernel answers `error`. */
static void mail_queue_failing(struct io *io, int error)
{
	struct io_uring_sq *sq = &io->ring.sq;
	struct io_uring_sqe *sqe;
	uint64_t user_data;

	cr_assert_not(mail_queue(io));
	cr_assert_eq(io_uring_sq_ready(&io->ring), 1);
	sqe = &sq->sqes[(sq->sqe_tail - 1) & sq->ring_mask];
	cr_assert_eq(sqe->opcode, IORING_OP_MSG_RING);
	user_data = sqe->user_data;
	io_uring_prep_nop(sqe);
	sqe->rw_flags = NOP_INJECT_RESULT;
	sqe->len = (uint32_t)error;
	sqe->user_data = user_data;
}

Test(io_resend, mail_refused_for_now_goes_out_before_later_mail)
{
	static const int errors[] = { -ENOMEM, -EAGAIN, -EOVERFLOW, -EBUSY };
	struct note notes[30] = { 0 };
	struct reader a, b;

	reader_open(&a);
	reader_open(&b);
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned j = 0; j < 30; j++)
			notes[j] = (struct note){ .mail.deliver = note_read, .number = i * 30 + j };
		notes_send(&a, &b, notes, 10);
		mail_queue_failing(a.io, errors[i]);
		notes_send(&a, &b, notes + 10, 10);
		/* As after a turn in which the kernel took nothing: the second ten must wait. */
		a.io->mail_unsure = true;
		cr_assert_eq(io_turn(a.io, 0), 0);
		cr_assert_eq(io_stats(a.io)->mails_resent, 10 * (i + 1));
		notes_send(&a, &b, notes + 20, 10);
		for (unsigned turn = 0; turn < 2; turn++)
			cr_assert_eq(io_turn(a.io, 0), 0);
		while (b.seen < 30 * (i + 1))
			cr_assert_gt(io_turn(b.io, UINT64_MAX), 0);
		cr_assert_eq(b.disordered, 0);
	}
	cr_assert_eq(io_stats(a.io)->mails_lost, 0);
	io_close(a.io);
	io_close(b.io);
}

Test(io_resend, refused_mail_goes_out_with_the_next_turn)
{
	struct note note = { .mail.deliver = note_read };
	struct reader a, b;

	reader_open(&a);
	reader_open(&b);
	notes_send(&a, &b, &note, 1);
	mail_queue_failing(a.io, -ENOMEM);
	cr_assert_eq(io_turn(a.io, 0), 0);
	cr_assert_eq(io_turn(a.io, io_clock_ns(a.io) + 2000000), 0);
	cr_assert_eq(io_turn(b.io, UINT64_MAX), 1);
	cr_assert_eq(b.seen, 1);
	io_close(a.io);
	io_close(b.io);
}

Test(io_resend, mail_refused_for_good_is_counted)
{
	struct note notes[3] = { 0 };
	struct reader a, b;

	reader_open(&a);
	reader_open(&b);
	notes_send(&a, &b, notes, 3);
	mail_queue_failing(a.io, -EOWNERDEAD);
	cr_assert_eq(io_turn(a.io, 0), 0);
	cr_assert_eq(io_stats(a.io)->mails_lost, 3);
	cr_assert_eq(io_stats(a.io)->mails_resent, 0);
	io_close(a.io);
	io_close(b.io);
}
