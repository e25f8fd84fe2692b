/* INPUT bytes into a pipe: offsets, the end, back-pressure, and what a reader's end means. */
#include "engine/request/inlet.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <termios.h>

#include "tests/unit/stream_part.h"

struct fixture {
	struct io *io;
	struct inlet inlet;
	int read_fd;
	int closed, error, quiet;
};

static void fixture_closed(struct inlet *inlet, int error)
{
	struct fixture *f = inlet->owner;

	f->closed++;
	f->error = error;
}

static void fixture_quiet(struct inlet *inlet)
{
	((struct fixture *)inlet->owner)->quiet++;
}

static void fixture_open(struct fixture *f)
{
	int pair[2];

	(void)signal(SIGPIPE, SIG_IGN); /* as the engine does */
	*f = (struct fixture){ .io = io_new(64) };
	cr_assert_eq(pipe2(pair, O_CLOEXEC), 0);
	f->read_fd = pair[0];
	f->inlet.owner = f;
	f->inlet.closed = fixture_closed;
	f->inlet.quiet = fixture_quiet;
	inlet_open(&f->inlet, f->io, pair[1]);
}

static void fixture_close(struct fixture *f)
{
	struct status over = status_of_errno(-EPIPE, "test", "over");

	if (!inlet_stop(&f->inlet, &over))
		while (!f->quiet)
			cr_assert_geq(io_turn(f->io, io_clock_ns(f->io) + 100 * MS), 0);
	inlet_done(&f->inlet);
	io_close(f->io);
}

static struct asked *give(struct fixture *f, uint64_t offset, const void *bytes, uint32_t count)
{
	struct asked *asked = ask_input(offset, bytes, count);

	inlet_add(&f->inlet, &asked->part);
	turn_to_rest(f->io);
	return asked;
}

static uint16_t give_code(struct fixture *f, uint64_t offset, const char *text)
{
	struct asked *asked = give(f, offset, text, (uint32_t)strlen(text));
	uint16_t code = asked->status.code;

	asked_free(asked);
	return code;
}

static void expect_read(struct fixture *f, const char *text)
{
	char bytes[64] = "";

	cr_assert_eq(read(f->read_fd, bytes, sizeof bytes - 1), (ssize_t)strlen(text));
	cr_assert_str_eq(bytes, text);
}

Test(inlet, bytes_are_written_in_order_and_the_end_closes)
{
	struct fixture f;

	fixture_open(&f);
	cr_assert_eq(give_code(&f, 0, "abc"), DSEC_OK);
	cr_assert_eq(give_code(&f, 3, "def"), DSEC_OK);
	expect_read(&f, "abcdef");
	cr_assert_eq(give_code(&f, 6, ""), DSEC_OK);
	expect_read(&f, "");
	cr_assert_eq(f.closed, 1);
	cr_assert_eq(f.error, 0);
	fixture_close(&f);
}

Test(inlet, what_came_before_is_taken_once)
{
	struct fixture f;

	fixture_open(&f);
	cr_assert_eq(give_code(&f, 0, "abcdef"), DSEC_OK);
	cr_assert_eq(give_code(&f, 0, "abcdef"), DSEC_OK);
	cr_assert_eq(give_code(&f, 2, "cd"), DSEC_OK);
	cr_assert_eq(give_code(&f, 6, "g"), DSEC_OK);
	expect_read(&f, "abcdefg");
	cr_assert_eq(give_code(&f, 7, ""), DSEC_OK);
	cr_assert_eq(give_code(&f, 7, ""), DSEC_OK);
	cr_assert_eq(give_code(&f, 6, "g"), DSEC_OK);
	cr_assert_eq(f.closed, 1);
	fixture_close(&f);
}

Test(inlet, gaps_overlaps_and_bytes_after_the_end_are_invalid_and_leave_nothing)
{
	struct fixture f;

	fixture_open(&f);
	cr_assert_eq(give_code(&f, 1, "x"), DSEC_INVALID);
	cr_assert_eq(give_code(&f, UINT64_MAX, "xy"), DSEC_INVALID);
	cr_assert_eq(give_code(&f, 0, "abc"), DSEC_OK);
	cr_assert_eq(give_code(&f, 2, "cd"), DSEC_INVALID);
	cr_assert_eq(give_code(&f, 4, "x"), DSEC_INVALID);
	cr_assert_eq(give_code(&f, 2, ""), DSEC_INVALID);
	cr_assert_eq(give_code(&f, 4, ""), DSEC_INVALID);
	cr_assert_eq(give_code(&f, 3, "d"), DSEC_OK);
	cr_assert_eq(give_code(&f, 4, ""), DSEC_OK);
	cr_assert_eq(give_code(&f, 4, "x"), DSEC_INVALID);
	expect_read(&f, "abcd");
	expect_read(&f, "");
	fixture_close(&f);
}

Test(inlet, unread_input_waits_and_a_cancelled_one_leaves_nothing)
{
	static char big[200000];
	struct fixture f;
	struct asked *first, *second, *third, *fourth;
	char bytes[4096];
	uint64_t read_bytes = 0;

	fixture_open(&f);
	memset(big, 'a', sizeof big);
	first = give(&f, 0, big, sizeof big);
	cr_assert(first->over); /* taken: held, though the pipe is full */
	second = give(&f, sizeof big, "bb", 2);
	third = give(&f, sizeof big + 2, "cc", 2);
	fourth = give(&f, sizeof big, "dd", 2);
	cr_assert_not(second->over);
	cr_assert_not(third->over);
	inlet_cancel(&second->part);
	cr_assert_eq(second->status.code, DSEC_CANCELLED);
	cr_assert_eq(fcntl(f.read_fd, F_SETFL, O_NONBLOCK), 0);
	for (int idle = 0; idle < 2000 && (!fourth->over || read_bytes < sizeof big + 2);) {
		ssize_t n = read(f.read_fd, bytes, sizeof bytes);

		if (n > 0)
			read_bytes += (uint64_t)n;
		idle = n > 0 ? 0 : idle + 1;
		cr_assert_geq(io_turn(f.io, io_clock_ns(f.io) + (n > 0 ? 0 : 5 * MS)), 0);
		if (n > 0 && read_bytes == sizeof big + 2)
			cr_assert_eq(bytes[n - 1], 'd');
	}
	cr_assert_eq(read_bytes, sizeof big + 2);
	cr_assert_eq(third->status.code, DSEC_INVALID); /* what it followed did not come */
	cr_assert_eq(fourth->status.code, DSEC_OK);
	asked_free(first);
	asked_free(second);
	asked_free(third);
	asked_free(fourth);
	fixture_close(&f);
}

Test(inlet, a_reader_that_went_is_told_to_who_waits_and_who_comes_later)
{
	static char big[200000];
	struct fixture f;
	struct asked *first, *second;

	fixture_open(&f);
	first = give(&f, 0, big, sizeof big);
	second = give(&f, sizeof big, "b", 1);
	cr_assert_not(second->over);
	close(f.read_fd);
	turn_to_rest(f.io);
	cr_assert_eq(second->status.code, DSEC_FAILED);
	cr_assert_eq(second->status.error, EPIPE);
	cr_assert_eq(second->status.blame, DSEC_BLAME_GUEST);
	cr_assert_eq(f.closed, 1);
	cr_assert_eq(f.error, -EPIPE);
	cr_assert_eq(give_code(&f, sizeof big, "c"), DSEC_FAILED);
	asked_free(first);
	asked_free(second);
	fixture_close(&f);
}

Test(inlet, stopping_ends_a_write_in_flight_and_answers_all)
{
	static char big[200000];
	struct status over = { .code = DSEC_ABSENT };
	struct fixture f;
	struct asked *first, *second;

	fixture_open(&f);
	first = give(&f, 0, big, sizeof big);
	second = give(&f, sizeof big, "b", 1);
	cr_assert_not(inlet_stop(&f.inlet, &over));
	cr_assert_eq(second->status.code, DSEC_ABSENT);
	turn_to_rest(f.io);
	cr_assert_eq(f.quiet, 1);
	cr_assert_eq(f.closed, 0);
	cr_assert_eq(give_code(&f, 0, "c"), DSEC_ABSENT);
	asked_free(first);
	asked_free(second);
	fixture_close(&f);
}

/* As whoever frees it there: what lay in it is other people's from then on. */
static void forget(struct inlet *inlet)
{
	struct fixture *f = inlet->owner;

	f->quiet++;
	inlet_done(inlet);
	memset(inlet, 0, sizeof *inlet);
	inlet->fd = -1;
}

Test(inlet, what_is_quiet_may_be_freed_at_once)
{
	struct status over = status_absent();
	struct fixture f;
	struct asked *large;
	char *bytes = calloc(1, 1 << 20);

	fixture_open(&f);
	f.inlet.quiet = forget;
	large = give(&f, 0, bytes, 1 << 20); /* more than the pipe takes */
	cr_assert_not(inlet_stop(&f.inlet, &over));
	turn_to_rest(f.io);
	cr_assert_eq(f.quiet, 1);
	cr_assert_eq(f.closed, 0);
	cr_assert_eq(f.inlet.over.code, DSEC_OK); /* nobody touched it since */
	cr_assert_null(f.inlet.chunk);
	asked_free(large);
	free(bytes);
	io_close(f.io);
}

/* A terminal in place of the pipe; read_fd is its program's end. */
static void terminal_open(struct fixture *f)
{
	struct termios mode;
	int master;

	*f = (struct fixture){ .io = io_new(64) };
	master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	cr_assert_geq(master, 0);
	cr_assert_eq(unlockpt(master), 0);
	f->read_fd = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	cr_assert_geq(f->read_fd, 0);
	cr_assert_eq(tcgetattr(f->read_fd, &mode), 0);
	mode.c_lflag &= ~(tcflag_t)ECHO;
	cr_assert_eq(tcsetattr(f->read_fd, TCSANOW, &mode), 0);
	f->inlet.owner = f;
	f->inlet.closed = fixture_closed;
	f->inlet.quiet = fixture_quiet;
	inlet_open(&f->inlet, f->io, fcntl(master, F_DUPFD_CLOEXEC, 0));
	f->inlet.is_terminal = true;
}

Test(inlet, the_end_of_a_terminals_input_is_typed_and_the_line_stays)
{
	struct fixture f;

	terminal_open(&f);
	cr_assert_eq(give_code(&f, 0, "abc\n"), DSEC_OK);
	expect_read(&f, "abc\n");
	cr_assert_eq(give_code(&f, 4, "de"), DSEC_OK);
	cr_assert_eq(f.closed, 0);
	cr_assert_eq(give_code(&f, 6, ""), DSEC_OK);
	expect_read(&f, "de");
	expect_read(&f, ""); /* the end, as a program reads it */
	cr_assert_eq(f.closed, 1);
	cr_assert_eq(f.error, 0);
	cr_assert_eq(write(f.read_fd, "x", 1), 1); /* not hung up */
	fixture_close(&f);
}

Test(inlet, a_terminal_at_the_start_of_a_line_gets_one_end)
{
	struct fixture f;

	terminal_open(&f);
	cr_assert_eq(give_code(&f, 0, ""), DSEC_OK);
	expect_read(&f, "");
	cr_assert_eq(fcntl(f.read_fd, F_SETFL, O_NONBLOCK), 0);
	cr_assert_eq(read(f.read_fd, &(char){ 0 }, 1), -1);
	cr_assert_eq(errno, EAGAIN);
	fixture_close(&f);
}

Test(inlet, a_terminal_that_nobody_reads_makes_input_wait_and_loses_none)
{
	static char lines[400000];
	struct fixture f;
	struct asked *first, *second;
	char bytes[4096];
	size_t read_bytes = 0;
	ssize_t n;

	terminal_open(&f);
	memset(lines, 'x', sizeof lines);
	for (size_t at = 99; at < sizeof lines; at += 100)
		lines[at] = '\n';
	first = give(&f, 0, lines, sizeof lines);
	second = give(&f, sizeof lines, "\n", 1);
	cr_assert(first->over);
	cr_assert_not(second->over);
	cr_assert(f.inlet.writing); /* waits, and does not try again and again */
	cr_assert_eq(io_turn(f.io, io_clock_ns(f.io) + 5 * MS), 0);
	cr_assert_eq(fcntl(f.read_fd, F_SETFL, O_NONBLOCK), 0);
	for (int idle = 0; idle < 2000 && read_bytes < sizeof lines + 1;) {
		n = read(f.read_fd, bytes, sizeof bytes);
		if (n > 0)
			read_bytes += (size_t)n;
		idle = n > 0 ? 0 : idle + 1;
		cr_assert_geq(io_turn(f.io, io_clock_ns(f.io) + (n > 0 ? 0 : 5 * MS)), 0);
	}
	cr_assert_eq(read_bytes, sizeof lines + 1);
	cr_assert(second->over);
	asked_free(first);
	asked_free(second);
	fixture_close(&f);
}
