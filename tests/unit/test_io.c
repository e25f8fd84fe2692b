/*
 * The loop's turns and every operation it offers, on real descriptors. Each test is a process of
 * its own with its own ring.
 */
#include "engine/base/io.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/io_probe.h"

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

Test(io, poll_once_tells_one_event)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_done };
	int fds[2];

	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	io_poll_once(io, &probe.op, fds[0], POLLIN);
	cr_assert_eq(io_turn(io, io_clock_ns(io) + 5 * MS), 0);
	cr_assert_eq(write(fds[1], "x", 1), 1);
	turn_until(io, &probe, 1);
	cr_assert_eq(probe.res, POLLIN);
	cr_assert_not(probe.more);
	cr_assert_eq(write(fds[1], "x", 1), 1);
	cr_assert_eq(io_turn(io, io_clock_ns(io) + 5 * MS), 0);
	io_close(io);
}

Test(io, close_fd_closes)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_done };
	char byte;
	int fds[2];

	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	io_close_fd(io, &probe.op, fds[1]);
	turn_until(io, &probe, 1);
	cr_assert_eq(probe.res, 0);
	cr_assert_eq(read(fds[0], &byte, 1), 0);
	cr_assert_eq(fcntl(fds[1], F_GETFD), -1);
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
	char byte = 'x';
	struct iovec part = { &byte, 1 };
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

Test(io, open_folder_gives_a_folder_and_nothing_else)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_done };
	int root = open("/", O_PATH | O_CLOEXEC);
	struct stat found, wanted;

	io_open_folder(io, &probe.op, root, "proc/self");
	turn_until(io, &probe, 1);
	cr_assert_eq(probe.res, -ENOTDIR, "a link to a folder is none");
	io_open_folder(io, &probe.op, root, "proc/sys");
	turn_until(io, &probe, 2);
	cr_assert_geq(probe.res, 0);
	cr_assert_eq(fcntl(probe.res, F_GETFD), FD_CLOEXEC);
	cr_assert_eq(fcntl(probe.res, F_GETFL) & O_PATH, O_PATH);
	cr_assert_eq(fstat(probe.res, &found), 0);
	cr_assert_eq(stat("/proc/sys", &wanted), 0);
	cr_assert_eq(found.st_ino, wanted.st_ino);
	io_open_folder(io, &probe.op, root, "none/of/these");
	turn_until(io, &probe, 3);
	cr_assert_eq(probe.res, -ENOENT);
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

Test(io, watch_pid_tells_the_end_and_leaves_the_child_to_be_reaped)
{
	struct io *io = io_new(8);
	struct probe probe = { .op.done = probe_done };
	siginfo_t info = { 0 };
	pid_t pid = fork();

	if (pid == 0)
		_exit(7);
	io_watch_pid(io, &probe.op, pid, &info);
	turn_until(io, &probe, 1);
	cr_assert_eq(probe.res, 0);
	cr_assert_eq(info.si_pid, pid);
	cr_assert_eq(kill(pid, 0), 0, "the pid is still its own");
	io_wait_pid(io, &probe.op, pid, &info);
	turn_until(io, &probe, 2);
	cr_assert_eq(info.si_status, 7);
	cr_assert_eq(waitpid(pid, NULL, WNOHANG), -1);
	cr_assert_eq(errno, ECHILD);
	io_close(io);
}
