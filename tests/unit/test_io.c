#include "engine/base/io.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"

#define MS 1000000ull

struct probe {
	struct io_op op;
	struct io *io;
	unsigned calls;
	int res;
	bool more;
};

static void probe_done(struct io_op *op, int res)
{
	struct probe *probe = container_of(op, struct probe, op);

	probe->calls++;
	probe->res = res;
	probe->more = op->flags & IO_MORE;
}

static struct io *io_new(uint32_t entries)
{
	struct io *io = NULL;
	int r = io_open(&(struct io_options){ .entries = entries, .owner = &r }, &io);

	cr_assert_eq(r, 0, "io_open: %s", strerror(-r));
	return io;
}

/* Turn until `calls` were seen; a second is far too long. */
static void turn_until(struct io *io, const struct probe *probe, unsigned calls)
{
	uint64_t end_ns = io_clock_ns(io) + 1000 * MS;

	while (probe->calls < calls && io_clock_ns(io) < end_ns)
		cr_assert_geq(io_turn(io, end_ns), 0);
	cr_assert_eq(probe->calls, calls);
}

Test(io, turn_waits_until_its_deadline_and_reads_the_clock_once)
{
	struct io *io = io_new(8);
	uint64_t before_ns = io_clock_ns(io), now_ns;

	cr_assert_eq(io_turn(io, before_ns + 5 * MS), 0);
	now_ns = io_now_ns(io);
	cr_assert_geq(now_ns, before_ns + 5 * MS);
	cr_assert_lt(now_ns, before_ns + 500 * MS);
	usleep(1000);
	cr_assert_eq(io_now_ns(io), now_ns);
	io_close(io);
}

Test(io, turn_does_not_wait_for_a_deadline_in_the_past)
{
	struct io *io = io_new(8);

	cr_assert_eq(io_turn(io, 0), 0);
	cr_assert_eq(io_turn(io, 1), 0);
	io_close(io);
}

static void signal_ignore(int number)
{
	(void)number;
}

Test(io, signal_ends_a_turn_without_an_error)
{
	struct io *io = io_new(8);
	struct itimerval timer = { .it_value.tv_usec = 5000 };
	struct sigaction action = { .sa_handler = signal_ignore };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	cr_assert_eq(io_turn(io, io_clock_ns(io) + 2000 * MS), 0);
	io_close(io);
}

Test(io, read_and_write_complete_from_a_turn_only)
{
	struct io *io = io_new(8);
	struct probe reader = { .op.done = probe_done }, writer = { .op.done = probe_done };
	char buffer[8] = "";
	int fds[2];

	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	io_read(io, &reader.op, fds[0], buffer, sizeof buffer);
	io_write(io, &writer.op, fds[1], "hello", 5);
	cr_assert_eq(reader.calls + writer.calls, 0);
	turn_until(io, &reader, 1);
	turn_until(io, &writer, 1);
	cr_assert_eq(reader.res, 5);
	cr_assert_eq(writer.res, 5);
	cr_assert_str_eq(buffer, "hello");
	io_close(io);
}

Test(io, read_of_an_end_is_zero_and_of_a_bad_descriptor_an_error)
{
	struct io *io = io_new(8);
	struct probe end = { .op.done = probe_done }, bad = { .op.done = probe_done };
	char buffer[8];
	int fds[2];

	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	close(fds[1]);
	io_read(io, &end.op, fds[0], buffer, sizeof buffer);
	io_read(io, &bad.op, -1, buffer, sizeof buffer);
	turn_until(io, &end, 1);
	turn_until(io, &bad, 1);
	cr_assert_eq(end.res, 0);
	cr_assert_eq(bad.res, -EBADF);
	io_close(io);
}

Test(io, read_goes_on_at_the_position_of_the_file)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_done };
	FILE *file = tmpfile();
	char buffer[4] = "";

	fputs("abcdef", file);
	rewind(file);
	io_read(io, &probe.op, fileno(file), buffer, 3);
	turn_until(io, &probe, 1);
	cr_assert_str_eq(buffer, "abc");
	io_read(io, &probe.op, fileno(file), buffer, 3);
	turn_until(io, &probe, 2);
	cr_assert_str_eq(buffer, "def");
	fclose(file);
	io_close(io);
}

Test(io, send_to_a_closed_peer_raises_no_signal)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_done };
	struct iovec part = { "x", 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int fds[2];

	signal(SIGPIPE, SIG_DFL);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	close(fds[1]);
	io_send(io, &probe.op, fds[0], "x", 1);
	turn_until(io, &probe, 1);
	cr_assert_eq(probe.res, -EPIPE);
	io_sendmsg(io, &probe.op, fds[0], &message);
	turn_until(io, &probe, 2);
	cr_assert_eq(probe.res, -EPIPE);
	io_close(io);
}

Test(io, descriptors_are_received_close_on_exec)
{
	struct io *io = io_new(8);
	struct probe sender = { .op.done = probe_done }, receiver = { .op.done = probe_done };
	char byte = 'x', control[CMSG_SPACE(sizeof(int))] = "";
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof control };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int fds[2], sent = STDIN_FILENO, got;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	*header = (struct cmsghdr){ CMSG_LEN(sizeof sent), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(header), &sent, sizeof sent);
	io_sendmsg(io, &sender.op, fds[0], &message);
	turn_until(io, &sender, 1);
	cr_assert_eq(sender.res, 1);
	io_recvmsg(io, &receiver.op, fds[1], &message);
	turn_until(io, &receiver, 1);
	cr_assert_eq(receiver.res, 1);
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
	cr_assert_gt(got, 2);
	cr_assert_eq(fcntl(got, F_GETFD), FD_CLOEXEC);
	io_close(io);
}

static int listener_new(struct sockaddr_un *ret_address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t bytes = sizeof *ret_address;

	*ret_address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	/* An abstract name of the kernel's choice. */
	cr_assert_eq(bind(fd, (struct sockaddr *)ret_address, sizeof(sa_family_t)), 0);
	cr_assert_eq(listen(fd, 16), 0);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)ret_address, &bytes), 0);
	return fd;
}

static int peer_new(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_eq(connect(fd, (const struct sockaddr *)address,
			     (socklen_t)(sizeof(sa_family_t) + 6)),
		     0);
	return fd;
}

Test(io, accept_stays_armed_and_a_receive_on_its_socket_waits)
{
	struct io *io = io_new(8);
	struct probe acceptor = { .op.done = probe_done }, receiver = { .op.done = probe_done };
	struct sockaddr_un address;
	int listener = listener_new(&address), peer;
	char buffer[4] = "";

	io_accept(io, &acceptor.op, listener);
	(void)peer_new(&address); /* open until the test ends */
	turn_until(io, &acceptor, 1);
	cr_assert(acceptor.more);
	peer = peer_new(&address);
	turn_until(io, &acceptor, 2);
	cr_assert(acceptor.more);
	cr_assert_eq(fcntl(acceptor.res, F_GETFD), FD_CLOEXEC);
	cr_assert(fcntl(acceptor.res, F_GETFL) & O_NONBLOCK);

	io_recv(io, &receiver.op, acceptor.res, buffer, sizeof buffer);
	cr_assert_eq(io_turn(io, 0), 0);
	cr_assert_eq(write(peer, "abc", 3), 3);
	turn_until(io, &receiver, 1);
	cr_assert_eq(receiver.res, 3);

	io_cancel(io, &acceptor.op);
	turn_until(io, &acceptor, 3);
	cr_assert_eq(acceptor.res, -ECANCELED);
	cr_assert_not(acceptor.more);
	io_close(io);
}

Test(io, poll_tells_of_each_new_event)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_done };
	char buffer[4];
	int fds[2];

	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	io_poll(io, &probe.op, fds[0], POLLIN);
	for (unsigned i = 1; i <= 3; i++) {
		cr_assert_eq(write(fds[1], "x", 1), 1);
		turn_until(io, &probe, i);
		cr_assert(probe.more);
		cr_assert_eq(probe.res, POLLIN);
		cr_assert_eq(read(fds[0], buffer, sizeof buffer), 1);
	}
	io_cancel(io, &probe.op);
	turn_until(io, &probe, 4);
	cr_assert_not(probe.more);
	io_close(io);
}

Test(io, wait_pid_reaps_and_says_how_it_ended)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_done };
	siginfo_t info = { 0 };
	int fds[2];
	pid_t pid;

	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		char byte;

		close(fds[1]);
		_exit(read(fds[0], &byte, 1) == 0 ? 7 : 8);
	}
	io_wait_pid(io, &probe.op, pid, &info);
	cr_assert_eq(io_turn(io, 0), 0);
	close(fds[1]);
	turn_until(io, &probe, 1);
	cr_assert_eq(probe.res, 0);
	cr_assert_eq(info.si_pid, pid);
	cr_assert_eq(info.si_code, CLD_EXITED);
	cr_assert_eq(info.si_status, 7);
	cr_assert_eq(waitpid(pid, NULL, WNOHANG), -1);
	cr_assert_eq(errno, ECHILD);
	io_close(io);
}

Test(io, cancel_ends_what_waits_once)
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

Test(io, cancel_of_an_idle_op_does_nothing)
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
Test(io, cancel_never_hits_the_next_use_of_an_op)
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

Test(io, close_leaves_no_buffer_to_the_kernel)
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

Test(io, callbacks_that_submit_are_not_nested)
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
	io_close(io);
}

static void probe_sleep(struct io_op *op, int res)
{
	usleep(2000);
	probe_done(op, res);
}

Test(io, watchdog_counts_a_slow_callback_and_names_it)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_sleep };

	io_read(io, &probe.op, -1, NULL, 0);
	turn_until(io, &probe, 1);
	cr_assert_eq(io_stats(io)->callbacks, 1);
	cr_assert_eq(io_stats(io)->callbacks_over_1ms, 1);
	cr_assert_geq(io_stats(io)->callback_max_ns, 2 * MS);
	cr_assert_eq(io_stats(io)->callback_max_address, (uintptr_t)probe_sleep);
	io_close(io);
}

Test(io, random_bytes_differ)
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

Test(io, open_explains_what_forbids_it)
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
Test(io, op_that_finds_no_room_completes_from_a_later_turn)
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

Test(io, cancel_of_an_op_set_aside_follows_it)
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

Test(io, mail_arrives_in_order_and_wakes_without_other_work)
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

Test(io, mail_to_oneself_waits_for_the_next_turn)
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

Test(io, mail_to_many_loops_leaves_a_full_queue)
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

Test(io, mail_to_a_closed_loop_is_counted_as_lost)
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
}
