/*
 * What happens around the loop's queues: cancels, full queues, closing, the watchdog, mail. Each
 * test is a process of its own; some forbid it system calls.
 */
#include "engine/base/io.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/io_probe.h"

Test(io_queue, cancel_ends_what_waits_once)
{
	struct io *io = io_new(8);
	struct probe reader = { .op.done = probe_done }, waiter = { .op.done = probe_done };
	siginfo_t info;
	char buffer[4];
	int fds[2];
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	io_read(io, &reader.op, fds[0], buffer, sizeof buffer);
	io_wait_pid(io, &waiter.op, pid, &info);
	io_cancel(io, &reader.op); /* not even submitted yet */
	io_cancel(io, &reader.op);
	turn_until(io, &reader, 1);
	cr_assert_eq(reader.res, -ECANCELED);
	io_cancel(io, &waiter.op);
	turn_until(io, &waiter, 1);
	cr_assert_eq(waiter.res, -ECANCELED);
	cr_assert_eq(io_turn(io, io_clock_ns(io) + 5 * MS), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	io_close(io);
}

Test(io_queue, cancel_of_an_idle_op_does_nothing)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_done };
	char buffer[4];
	int fds[2];

	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	io_cancel(io, &probe.op);
	io_read(io, &probe.op, fds[0], buffer, sizeof buffer);
	cr_assert_eq(io_turn(io, io_clock_ns(io) + 5 * MS), 0);
	cr_assert_eq(write(fds[1], "x", 1), 1);
	turn_until(io, &probe, 1);
	cr_assert_eq(probe.res, 1);
	io_close(io);
}

struct pair {
	struct io_op op;
	struct io *io;
	struct pair *other;
	int fd, res;
	unsigned calls;
	char buffer[4];
};

static void pair_done(struct io_op *op, int res)
{
	struct pair *pair = container_of(op, struct pair, op);

	pair->calls++;
	pair->res = res;
	if (pair->calls == 1) {
		io_cancel(pair->io, &pair->other->op); /* that may have completed in this turn */
		io_read(pair->io, &pair->op, pair->fd, pair->buffer, sizeof pair->buffer);
	}
}

/*
 * Both ops complete in one turn; each callback cancels the other and starts its own anew. The
 * cancel of the one called second was overtaken and must not hit its second life.
 */
Test(io_queue, cancel_never_hits_the_next_use_of_an_op)
{
	struct io *io = io_new(8);
	struct pair pairs[2] = { 0 };
	int fds[2][2], cancelled = 0;

	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(pipe2(fds[i], O_CLOEXEC), 0);
		cr_assert_eq(write(fds[i][1], "x", 1), 1);
		pairs[i] = (struct pair){
			.op.done = pair_done, .io = io, .fd = fds[i][0], .other = &pairs[!i]
		};
		io_read(io, &pairs[i].op, fds[i][0], pairs[i].buffer, 4);
	}
	cr_assert_eq(io_turn(io, 0), 2);
	cr_assert_eq(pairs[0].res, 1);
	cr_assert_eq(pairs[1].res, 1);
	/* The one called first was in its second life when the other cancelled it: that counts. */
	cr_assert_eq(io_turn(io, io_clock_ns(io) + 5 * MS), 1);
	for (unsigned i = 0; i < 2; i++)
		cancelled += pairs[i].calls == 2 && pairs[i].res == -ECANCELED;
	cr_assert_eq(cancelled, 1);
	io_close(io);
}

Test(io_queue, close_leaves_no_buffer_to_the_kernel)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_done };
	char buffer[4] = "old";
	int fds[2];

	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	io_read(io, &probe.op, fds[0], buffer, sizeof buffer);
	cr_assert_eq(io_turn(io, 0), 0);
	io_close(io);
	cr_assert_eq(write(fds[1], "new", 3), 3);
	cr_assert_eq(read(fds[0], buffer, 3), 3, "the closed loop took the bytes");
	cr_assert_eq(probe.calls, 0);
	io_close(NULL);
}

struct chain {
	struct io_op op;
	struct io *io;
	unsigned left, depth, depth_max;
};

static void chain_done(struct io_op *op, int res)
{
	struct chain *chain = container_of(op, struct chain, op);

	(void)res; /* the descriptor is bad on purpose: it completes at once */
	if (++chain->depth > chain->depth_max)
		chain->depth_max = chain->depth;
	if (chain->left) {
		chain->left--;
		io_read(chain->io, &chain->op, -1, NULL, 0);
	}
	chain->depth--;
}

Test(io_queue, callbacks_that_submit_are_not_nested)
{
	struct io *io = io_new(2);
	struct chain chains[64] = { 0 };

	for (unsigned i = 0; i < 64; i++) {
		chains[i] = (struct chain){ .op.done = chain_done, .io = io, .left = 100 };
		io_read(io, &chains[i].op, -1, NULL, 0);
	}
	for (unsigned made = 0; made < 64 * 101;) {
		int r = io_turn(io, io_clock_ns(io) + 1000 * MS);

		cr_assert_gt(r, 0);
		made += (unsigned)r;
	}
	for (unsigned i = 0; i < 64; i++) {
		cr_assert_eq(chains[i].left, 0);
		cr_assert_eq(chains[i].depth_max, 1);
	}
	/* However short the queue, a kernel that takes what it is given leaves nothing over. */
	cr_assert_eq(io_stats(io)->ops_set_aside, 0);
	io_close(io);
}

static void probe_sleep(struct io_op *op, int res)
{
	usleep(2000);
	probe_done(op, res);
}

Test(io_queue, watchdog_counts_a_slow_callback_and_names_it)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_sleep };

	io_read(io, &probe.op, -1, NULL, 0);
	turn_until(io, &probe, 1);
	cr_assert_eq(io_stats(io)->callbacks, 1);
	cr_assert_eq(io_stats(io)->callbacks_over_1ms, 1);
	cr_assert_geq(io_stats(io)->callback_max_ns, 2 * MS);
	cr_assert_geq(io_stats(io)->slow_ns, 2 * MS);
	cr_assert_eq(io_stats(io)->slow_address, (uintptr_t)probe_sleep);
	io_close(io);
}

static void probe_work(struct io_op *op, int res)
{
	struct timespec ts;

	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	while (ts.tv_sec == 0 &&
	       (uint64_t)ts.tv_nsec < container_of(op, struct probe, op)->until_ns);
	probe_done(op, res);
}

Test(io_queue, watchdog_counts_a_busy_callback)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_work };
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	cr_assert_eq(ts.tv_sec, 0);
	probe.until_ns = (uint64_t)ts.tv_nsec + 5 * MS;
	io_read(io, &probe.op, -1, NULL, 0);
	turn_until(io, &probe, 1);
	cr_assert_eq(io_stats(io)->callbacks_over_1ms, 1);
	cr_assert_eq(io_stats(io)->callbacks_preempted, 0);
	io_close(io);
}

struct rival {
	int wake[2];
	pthread_t thread;
};

/* Waits for a byte, then keeps the CPU for 5 ms. */
static void *rival_run(void *argument)
{
	struct rival *rival = argument;
	struct timespec ts;
	char byte;

	if (read(rival->wake[0], &byte, 1) == 1)
		do
			clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
		while (ts.tv_sec == 0 && (uint64_t)ts.tv_nsec < 5 * MS);
	return NULL;
}

/* False when this user may not have a thread that preempts this one. */
static bool rival_start(struct rival *rival)
{
	struct sched_param param = { .sched_priority = 1 };
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET((unsigned)sched_getcpu(), &here);
	cr_assert_eq(sched_setaffinity(0, sizeof here, &here), 0); /* inherited by the thread */
	cr_assert_eq(pipe2(rival->wake, O_CLOEXEC), 0);
	cr_assert_eq(pthread_create(&rival->thread, NULL, rival_run, rival), 0);
	if (pthread_setschedparam(rival->thread, SCHED_FIFO, &param) == 0)
		return true;
	cr_assert_eq(write(rival->wake[1], "x", 1), 1);
	pthread_join(rival->thread, NULL);
	return false;
}

static void probe_give_way(struct io_op *op, int res)
{
	cr_assert_eq(write(container_of(op, struct probe, op)->fd, "x", 1), 1);
	probe_done(op, res);
}

Test(io_queue, watchdog_does_not_blame_a_preempted_callback)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_give_way };
	struct rival rival;

	if (!rival_start(&rival))
		cr_skip_test("real-time scheduling is not allowed");
	probe.fd = rival.wake[1];
	io_read(io, &probe.op, -1, NULL, 0);
	turn_until(io, &probe, 1);
	pthread_join(rival.thread, NULL);
	cr_assert_eq(io_stats(io)->callbacks_preempted, 1);
	cr_assert_eq(io_stats(io)->callbacks_over_1ms, 0);
	cr_assert_lt(io_stats(io)->callback_max_ns, 1 * MS);
	io_close(io);
}

Test(io_queue, random_bytes_differ)
{
	struct io *io = io_new(8);
	unsigned char a[32] = { 0 }, b[32] = { 0 };

	io_random(io, a, sizeof a);
	io_random(io, b, sizeof b);
	cr_assert_neq(memcmp(a, b, sizeof a), 0);
	io_close(io);
}

/* From now on this system call fails with `error` when argument 3 has no bit of `unless`. */
static void call_break(int call, int error, unsigned unless)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	struct scmp_arg_cmp without = SCMP_A3(SCMP_CMP_MASKED_EQ, unless, 0);

	cr_assert(filter);
	cr_assert_eq(seccomp_rule_add(filter, SCMP_ACT_ERRNO((unsigned)error), call, unless ? 1 : 0,
				      without),
		     0);
	cr_assert_eq(seccomp_load(filter), 0);
	seccomp_release(filter);
}

Test(io_queue, open_explains_what_forbids_it)
{
	struct io *io = NULL;
	int r;

	call_break(SCMP_SYS(io_uring_setup), EPERM, 0);
	r = io_open(&(struct io_options){ .entries = 8 }, &io);
	cr_assert_eq(r, -EPERM);
	cr_assert_null(io);
	cr_assert(strstr(io_explain(r), "kernel.io_uring_disabled"));
	cr_assert_null(io_explain(-EIO));
}

enum { GETEVENTS = 1, QUEUE = 2, ASIDE = 8, MANY = 20 };

/*
 * The kernel takes nothing but from a turn: of 20 ops two fit the queue, eight are set aside, the
 * others are refused. All complete, once.
 */
Test(io_queue, op_that_finds_no_room_completes_from_a_later_turn)
{
	struct io *io = io_new(QUEUE);
	struct probe probes[MANY] = { 0 };
	unsigned done = 0, refused = 0;

	call_break(SCMP_SYS(io_uring_enter), EBUSY, GETEVENTS);
	for (unsigned i = 0; i < MANY; i++) {
		probes[i].op.done = probe_done;
		io_read(io, &probes[i].op, -1, NULL, 0);
		cr_assert_eq(probes[i].calls, 0);
	}
	cr_assert_eq(io_stats(io)->ops_set_aside, ASIDE);
	cr_assert_eq(io_stats(io)->ops_refused, MANY - QUEUE - ASIDE);
	for (unsigned turns = 0; done < MANY && turns < MANY; turns++)
		done += (unsigned)io_turn(io, UINT64_MAX);
	for (unsigned i = 0; i < MANY; i++) {
		cr_assert_eq(probes[i].calls, 1);
		refused += probes[i].res == -EBUSY;
		cr_assert_eq(probes[i].res, i < QUEUE + ASIDE ? -EBADF : -EBUSY);
	}
	cr_assert_eq(refused, MANY - QUEUE - ASIDE);
	cr_assert_eq(io_turn(io, 0), 0);
	io_close(io);
}

Test(io_queue, cancel_of_an_op_set_aside_follows_it)
{
	struct io *io = io_new(QUEUE);
	struct probe probes[ASIDE] = { 0 };
	char buffer[4];
	int fds[2];

	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	call_break(SCMP_SYS(io_uring_enter), EBUSY, GETEVENTS);
	for (unsigned i = 0; i < ASIDE; i++) {
		probes[i].op.done = probe_done;
		io_read(io, &probes[i].op, fds[0], buffer, sizeof buffer);
		io_cancel(io, &probes[i].op);
	}
	for (unsigned i = 0; i < ASIDE; i++) {
		turn_until(io, &probes[i], 1);
		cr_assert_eq(probes[i].res, -ECANCELED);
	}
	io_close(io);
}

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
	cr_assert_eq(
		io_open(&(struct io_options){ .entries = QUEUE, .owner = reader }, &reader->io), 0);
}

Test(io_queue, mail_arrives_in_order_and_wakes_without_other_work)
{
	struct reader a, b;
	struct note notes[100] = { 0 };

	reader_open(&a);
	reader_open(&b);
	for (unsigned i = 0; i < 100; i++) {
		notes[i] = (struct note){ .mail.deliver = note_read, .number = i };
		mail_send(a.io, b.io, &notes[i].mail);
		if (i % 10 == 0)
			cr_assert_eq(io_turn(a.io, 0), 0);
	}
	cr_assert_eq(b.seen, 0);
	cr_assert_eq(io_turn(a.io, 0), 0);
	/* More than its completion queue holds: several turns. */
	while (b.seen < 100)
		cr_assert_gt(io_turn(b.io, UINT64_MAX), 0);
	cr_assert_eq(b.disordered, 0);
	cr_assert_eq(io_stats(a.io)->mails_sent, 100);
	cr_assert_eq(io_stats(b.io)->mails_received, 100);
	io_close(a.io);
	io_close(b.io);
}

Test(io_queue, mail_to_oneself_waits_for_the_next_turn)
{
	struct reader a;
	struct note note = { .mail.deliver = note_read };

	reader_open(&a);
	mail_send(a.io, a.io, &note.mail);
	cr_assert_eq(a.seen, 0);
	cr_assert_eq(io_turn(a.io, UINT64_MAX), 1);
	cr_assert_eq(a.seen, 1);
	io_close(a.io);
}

Test(io_queue, mail_to_many_loops_leaves_a_full_queue)
{
	struct reader sender, readers[8];
	struct note notes[8] = { 0 };

	reader_open(&sender);
	for (unsigned i = 0; i < 8; i++) {
		reader_open(&readers[i]);
		notes[i].mail.deliver = note_read;
		mail_send(sender.io, readers[i].io, &notes[i].mail);
	}
	/* Two fit the queue, and it is emptied by turns only. */
	call_break(SCMP_SYS(io_uring_enter), EBUSY, GETEVENTS);
	for (unsigned turns = 0; turns < 4; turns++)
		cr_assert_eq(io_turn(sender.io, turns < 3 ? UINT64_MAX : 0), 0);
	for (unsigned i = 0; i < 8; i++) {
		cr_assert_eq(io_turn(readers[i].io, 0), 1);
		io_close(readers[i].io);
	}
	io_close(sender.io);
}

Test(io_queue, mail_to_a_closed_loop_is_counted_as_lost)
{
	struct reader a, b;
	struct note note = { .mail.deliver = note_read };
	int last = -1;

	reader_open(&a);
	reader_open(&b);
	mail_send(a.io, b.io, &note.mail);
	/* As the kernel sees a closed loop, but without freed memory: opened last, highest. */
	for (int fd = 3; fd < 64; fd++) {
		char path[32], target[64] = "";

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "[io_uring]"))
			last = fd;
	}
	cr_assert_geq(last, 0);
	close(last);
	cr_assert_eq(io_turn(a.io, 0), 0);
	cr_assert_eq(io_stats(a.io)->mails_lost, 1);
	io_close(a.io);
	io_close(b.io);
}

/* ---- what a turn may take ---- */

struct worker {
	struct io_op op;
	struct io *io;
	unsigned *order, *count, number;
};

/* Longer than the ops of a turn may take. */
static void worker_done(struct io_op *op, int res)
{
	struct worker *worker = container_of(op, struct worker, op);
	uint64_t until_ns = io_clock_ns(worker->io) + MS;

	(void)res; /* the descriptor is bad on purpose: it completes at once */
	while (io_clock_ns(worker->io) < until_ns)
		;
	worker->order[(*worker->count)++] = worker->number;
}

/* Mail that came after all of them is read before most; none is lost, and their order stays. */
Test(io_queue, many_slow_ops_hold_up_neither_a_turn_nor_mail)
{
	enum { WORKERS = 12, TURN_MAX = 4 };
	struct worker workers[WORKERS] = { 0 };
	unsigned order[WORKERS], count = 0;
	struct reader a, b;
	struct note note = { .mail.deliver = note_read };

	reader_open(&a);
	b = (struct reader){ .io = NULL };
	cr_assert_eq(io_open(&(struct io_options){ .entries = 2 * WORKERS, .owner = &b }, &b.io),
		     0);
	for (unsigned i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){ { .done = worker_done }, b.io, order, &count, i };
		io_read(b.io, &workers[i].op, -1, NULL, 0);
	}
	cr_assert_eq(io_turn(b.io, UINT64_MAX), TURN_MAX);
	mail_send(a.io, b.io, &note.mail);
	cr_assert_eq(io_turn(a.io, 0), 0);
	cr_assert_eq(b.seen, 0);
	/* It does not wait for what is to come, as long as something is left. */
	cr_assert_eq(io_turn(b.io, UINT64_MAX), TURN_MAX + 1);
	cr_assert_eq(b.seen, 1);
	while (count < WORKERS)
		cr_assert_gt(io_turn(b.io, UINT64_MAX), 0);
	for (unsigned i = 0; i < WORKERS; i++)
		cr_assert_eq(order[i], i);
	io_close(a.io);
	io_close(b.io);
}
