/* A pipe's bytes as DATA: windows, their boundaries, credit, and the ends. */
#include "engine/request/outlet.h"

#include <errno.h>
#include <fcntl.h>

#include "tests/unit/stream_part.h"

struct fixture {
	struct io *io;
	struct outlet outlet;
	struct heard heard;
	int write_fd;
	int over, error;
};

static void fixture_over(struct outlet *outlet, int error)
{
	struct fixture *f = outlet->owner;

	f->over++;
	f->error = error;
}

static void fixture_open(struct fixture *f, uint64_t window_bytes)
{
	struct outlet_options options = { .part = &f->heard.part, .window_bytes = window_bytes };
	int pair[2];

	*f = (struct fixture){ .io = io_new(64) };
	cr_assert_eq(pipe2(pair, O_CLOEXEC), 0);
	cr_assert_eq(fcntl(pair[1], F_SETPIPE_SZ, 1 << 20), 1 << 20);
	f->write_fd = pair[1];
	f->outlet.owner = f;
	f->outlet.over = fixture_over;
	options.io = f->io;
	options.fd = pair[0];
	options.event.stream = 1;
	cr_assert_eq(outlet_open(&f->outlet, &options), 0);
}

static void fixture_close(struct fixture *f)
{
	if (!outlet_stop(&f->outlet)) {
		turn_to_rest(f->io);
		cr_assert_eq(f->error, -ECANCELED);
	}
	cr_assert_leq(f->over, 1);
	outlet_done(&f->outlet);
	free(f->heard.bytes);
	io_close(f->io);
}

static void fill(struct fixture *f, uint32_t count)
{
	char *bytes = malloc(count);

	for (uint32_t i = 0; i < count; i++)
		bytes[i] = (char)(i * 7 + i / 251);
	cr_assert_eq(write(f->write_fd, bytes, count), (ssize_t)count);
	free(bytes);
	turn_to_rest(f->io);
}

Test(outlet, all_bytes_come_in_order_and_then_the_end)
{
	struct fixture f;

	fixture_open(&f, 1 << 18);
	fill(&f, 100000);
	cr_assert_eq(f.heard.count, 100000);
	for (uint32_t i = 0; i < 100000; i++)
		cr_assert_eq(f.heard.bytes[i], (char)(i * 7 + i / 251));
	cr_assert_eq(f.over, 0);
	close(f.write_fd);
	turn_to_rest(f.io);
	cr_assert_eq(f.over, 1);
	cr_assert_eq(f.error, 0);
	fixture_close(&f);
}

Test(outlet, nothing_beyond_the_window_is_read_until_it_is_consumed)
{
	struct fixture f;

	fixture_open(&f, 1000);
	fill(&f, 5000);
	cr_assert_eq(f.heard.count, 1000);
	cr_assert_eq(outlet_credit(&f.outlet, 1), 0);
	turn_to_rest(f.io);
	cr_assert_eq(f.heard.count, 1001);
	cr_assert_eq(outlet_credit(&f.outlet, 1001), 0);
	turn_to_rest(f.io);
	cr_assert_eq(f.heard.count, 2001);
	cr_assert_eq(outlet_credit(&f.outlet, 500), 0); /* late, or again: nothing new */
	turn_to_rest(f.io);
	cr_assert_eq(f.heard.count, 2001);
	fixture_close(&f);
}

Test(outlet, credit_for_what_was_not_sent_is_refused)
{
	struct fixture f;

	fixture_open(&f, 1000);
	fill(&f, 2000);
	cr_assert_eq(outlet_credit(&f.outlet, 1001), -EINVAL);
	cr_assert_eq(outlet_credit(&f.outlet, UINT64_MAX), -EINVAL);
	turn_to_rest(f.io);
	cr_assert_eq(f.heard.count, 1000);
	fixture_close(&f);
}

Test(outlet, the_end_behind_a_full_window_is_told_after_the_last_byte)
{
	struct fixture f;

	fixture_open(&f, 1000);
	fill(&f, 1500);
	close(f.write_fd);
	turn_to_rest(f.io);
	cr_assert_eq(f.over, 0);
	cr_assert_eq(outlet_credit(&f.outlet, 1000), 0);
	turn_to_rest(f.io);
	cr_assert_eq(f.heard.count, 1500);
	cr_assert_eq(f.over, 1);
	fixture_close(&f);
}

Test(outlet, windows_have_a_default_and_a_ceiling)
{
	cr_assert_eq(window_at(0, 0).bytes, DSEC_WINDOW_BYTES_DEFAULT);
	cr_assert_eq(window_at(0, 1).bytes, 1);
	cr_assert_eq(window_at(0, UINT64_MAX).bytes, DSEC_WINDOW_BYTES_MAX);
}
