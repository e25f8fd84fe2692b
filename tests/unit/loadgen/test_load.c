/* The load loop's account on a simulated engine: exact, for time is simulated too. */
#include "loadgen/clock.h"
#include "loadgen/histogram.h"
#include "loadgen/load.h"
#include "tests/unit/loadgen/mock.h"

#include <dsec/dsec.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#define US 1000ull
#define MS 1000000ull

struct seen {
	uint64_t peak_live, peak_mock;
	int peaks, begins, ends;
};

static void begin_see(void *context)
{
	((struct seen *)context)->begins++;
}

static void end_see(void *context)
{
	((struct seen *)context)->ends++;
}

static int peak_see(void *context, uint64_t live)
{
	struct seen *seen = context;

	seen->peaks++;
	seen->peak_live = live;
	seen->peak_mock = mock_counts()->live;
	return 0;
}

static void progress_ignore(void *context, const char *phase, uint64_t units, double share)
{
	(void)context;
	(void)phase;
	(void)units;
	cr_assert(share >= 0);
}

static const struct mock_options usual = { .create_ns = 2 * MS,
					   .exec_ns = 1 * MS,
					   .destroy_ns = 1 * MS };

static struct load_options options_of(const char *scenario)
{
	return (struct load_options){ .scenario = load_scenario_find(scenario),
				      .seconds = 2,
				      .warmup_seconds = 0.5,
				      .in_flight = 8,
				      .count = 100,
				      .probe_every = 50,
				      .image = "debian",
				      .program = "/tiny",
				      .probe = "/probe",
				      .label = "test" };
}

static int load_try(const struct mock_options *mock, const struct load_options *options,
		    struct seen *seen, struct load_result *result)
{
	const struct load_hooks hooks = { .context = seen,
					  .measure_begin = begin_see,
					  .measure_end = end_see,
					  .peak = peak_see,
					  .progress = progress_ignore };
	int r;

	*seen = (struct seen){ 0 };
	cr_assert_eq(load_result_init(result), 0);
	r = load_run(mock_begin(mock), options, &hooks, result);
	cr_assert_eq(result->asked, result->done + result->refused + result->failed);
	return r;
}

static double share_ms(const struct histogram *histogram, double share)
{
	return (double)histogram_value_at(histogram, share) / MS;
}

Test(load, ready_counts_whole_lifecycles)
{
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	options.probe_every = 0;
	cr_assert_eq(load_try(&usual, &options, &seen, &result), 0);
	/* 8 in flight, 3 ms each. */
	cr_assert_float_eq((double)result.measured / 2, 8 / 0.003, 10);
	cr_assert_eq(result.duration_ns, 2 * CLOCK_SECOND_NS);
	cr_assert_eq(result.failed, 0);
	cr_assert_eq(result.refused, 0);
	cr_assert_eq(result.created, result.done);
	cr_assert_eq(result.destroyed, result.done);
	cr_assert_eq(result.reused, result.created);
	cr_assert_eq(mock_counts()->live, 0);
	cr_assert_float_eq(share_ms(result.latency, 0.5), 2, 0.01);
	cr_assert_float_eq(share_ms(result.lifecycle, 0.5), 3, 0.01);
	cr_assert_eq(seen.begins, 1);
	cr_assert_eq(seen.ends, 1);
	load_result_done(&result);
}

Test(load, rates_of_seconds_add_up_to_what_was_measured)
{
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	cr_assert_eq(load_try(&usual, &options, &seen, &result), 0);
	cr_assert_eq(result.rates[0] + result.rates[1], result.measured);
	cr_assert_eq(result.rates[2], 0);
	load_result_done(&result);
}

Test(load, peak_is_shown_while_sandboxes_live)
{
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	options.in_flight = 1;
	cr_assert_eq(load_try(&usual, &options, &seen, &result), 0);
	cr_assert_eq(seen.peaks, 1);
	cr_assert_eq(seen.peak_live, 1);
	cr_assert_eq(seen.peak_mock, 1);
	cr_assert_eq(mock_counts()->live, 0);
	load_result_done(&result);
}

Test(load, warm_up_is_counted_but_not_measured)
{
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	options.warmup_seconds = 4;
	cr_assert_eq(load_try(&usual, &options, &seen, &result), 0);
	cr_assert_float_eq((double)result.measured / (double)result.done, 1.0 / 3, 0.01);
	cr_assert_leq(result.latency->total, result.measured + options.in_flight);
	load_result_done(&result);
}

Test(load, exec_times_until_the_exit_status)
{
	struct load_options options = options_of("exec");
	struct load_result result;
	struct seen seen;

	options.probe_every = 0;
	cr_assert_eq(load_try(&usual, &options, &seen, &result), 0);
	cr_assert_float_eq(share_ms(result.latency, 0.5), 3, 0.01);
	cr_assert_eq(mock_counts()->execs, result.done);
	load_result_done(&result);
}

Test(load, wrong_exit_status_fails_the_unit_and_destroys_the_sandbox)
{
	struct mock_options mock = usual;
	struct load_options options = options_of("exec");
	struct load_result result;
	struct seen seen;

	mock.fail_exec_every = 100;
	cr_assert_eq(load_try(&mock, &options, &seen, &result), 0);
	cr_assert_eq(result.failed, mock_counts()->execs / 100);
	cr_assert_eq(result.created, result.destroyed);
	cr_assert_eq(mock_counts()->live, 0);
	cr_assert(strstr(result.trouble, "status 1"));
	load_result_done(&result);
}

Test(load, too_many_failures_end_the_run_and_leave_nothing)
{
	struct mock_options mock = usual;
	struct load_options options = options_of("exec");
	struct load_result result;
	struct seen seen;

	mock.fail_exec_every = 1;
	cr_assert_eq(load_try(&mock, &options, &seen, &result), -ECANCELED);
	cr_assert_geq(result.failed, 1000);
	cr_assert_leq(result.failed, 1000 + options.in_flight);
	cr_assert_eq(result.created, result.destroyed);
	cr_assert_eq(mock_counts()->live, 0);
	load_result_done(&result);
}

Test(load, failed_isolation_fails_the_unit)
{
	struct mock_options mock = usual;
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	mock.fail_probe_every = 3;
	cr_assert_eq(load_try(&mock, &options, &seen, &result), 0);
	cr_assert_gt(result.failed, 0);
	cr_assert_eq(result.failed, mock_counts()->probes / 3);
	cr_assert(strstr(result.trouble, "FAILED uid_map"));
	cr_assert_eq(mock_counts()->live, 0);
	load_result_done(&result);
}

Test(load, a_probe_that_asserts_little_fails_the_unit)
{
	struct mock_options mock = usual;
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	mock.assertions = 3;
	cr_assert_eq(load_try(&mock, &options, &seen, &result), 0);
	cr_assert_eq(result.failed, mock_counts()->probes);
	cr_assert_eq(result.probes, 0);
	load_result_done(&result);
}

Test(load, every_nth_sandbox_is_probed)
{
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	cr_assert_eq(load_try(&usual, &options, &seen, &result), 0);
	cr_assert_eq(result.probes, (result.asked + 49) / 50);
	cr_assert_eq(result.assertions, 40 * result.probes);
	load_result_done(&result);
}

Test(load, refusals_are_counted_and_heeded)
{
	struct mock_options mock = usual;
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	mock.refuse_every = 10;
	cr_assert_eq(load_try(&mock, &options, &seen, &result), 0);
	cr_assert_eq(result.failed, 0);
	cr_assert_eq(result.refused, mock_counts()->creates / 10);
	cr_assert_eq(result.created, result.done);
	/* Each refusal is followed by 10 ms of restraint. */
	cr_assert_leq(result.refused, 2500 / 10 + options.in_flight);
	load_result_done(&result);
}

Test(load, destroy_that_fails_leaves_live_sandboxes)
{
	struct mock_options mock = usual;
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	mock.fail_destroy_every = 50;
	cr_assert_eq(load_try(&mock, &options, &seen, &result), 0);
	cr_assert_eq(result.failed, mock_counts()->destroys / 50);
	cr_assert_eq(result.created - result.destroyed, result.failed);
	load_result_done(&result);
}

Test(load, lack_of_room_is_waited_for)
{
	struct mock_options mock = usual;
	struct load_options options = options_of("exec");
	struct load_result result;
	struct seen seen;

	mock.room = 4;
	cr_assert_eq(load_try(&mock, &options, &seen, &result), 0);
	cr_assert_gt(mock_counts()->again, 0);
	cr_assert_eq(result.failed, 0);
	cr_assert_gt(result.done, 1000);
	load_result_done(&result);
}

Test(load, lost_connection_fails_what_was_under_way)
{
	struct mock_options mock = usual;
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	mock.lost_ns = 1 * CLOCK_SECOND_NS;
	cr_assert_eq(load_try(&mock, &options, &seen, &result), -ENOTCONN);
	cr_assert_eq(result.failed, options.in_flight);
	cr_assert_gt(result.done, 0);
	load_result_done(&result);
}

Test(load, silence_ends_the_run)
{
	struct mock_options mock = usual;
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	mock.stall_from_ns = 1 * CLOCK_SECOND_NS;
	mock.stall_until_ns = 1000 * CLOCK_SECOND_NS;
	cr_assert_eq(load_try(&mock, &options, &seen, &result), -ETIMEDOUT);
	cr_assert_eq(result.failed, options.in_flight);
	load_result_done(&result);
}

/* 200 a second for 2 s, and an engine that answers nothing for half a second in the middle. */
Test(load, open_loop_sees_a_stall_in_every_unit_it_delays)
{
	struct mock_options mock = usual;
	struct load_options options = options_of("ready");
	struct load_result open, closed;
	struct seen seen;

	mock.stall_from_ns = 1000 * MS;
	mock.stall_until_ns = 1500 * MS;
	options.probe_every = 0;
	options.in_flight = 4;
	options.rate_per_s = 200;
	cr_assert_eq(load_try(&mock, &options, &seen, &open), 0);
	/* One more may be made for hooks->peak to see. */
	cr_assert(open.asked == 500 || open.asked == 501);
	cr_assert_eq(open.latency->total, 400);
	cr_assert_eq(open.failed, 0);
	/* 100 of 400 units were meant to start in the stall: evenly 0 to 500 ms late, and
	 * then the backlog is worked off at 1,333 a second. */
	cr_assert_float_eq(share_ms(open.latency, 0.99), 490, 25);
	cr_assert_float_eq(share_ms(open.latency, 0.875), 285, 25);
	cr_assert_float_eq(share_ms(open.latency, 0.5), 2, 0.5);

	/* A closed loop only sees those in flight: that is the omission. */
	options.rate_per_s = 0;
	cr_assert_eq(load_try(&mock, &options, &seen, &closed), 0);
	cr_assert_float_eq(share_ms(closed.latency, 0.99), 2, 0.5);
	load_result_done(&open);
	load_result_done(&closed);
}

Test(load, open_loop_asks_late_what_it_could_not_ask_in_time)
{
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	/* Twice what 4 in flight can do. */
	options.in_flight = 4;
	options.rate_per_s = 8 / 0.003;
	cr_assert_eq(load_try(&usual, &options, &seen, &result), 0);
	cr_assert_float_eq((double)result.asked, options.rate_per_s * 2.5, 2);
	cr_assert_eq(result.done, result.asked);
	cr_assert_gt(share_ms(result.latency, 0.99), 1000);
	load_result_done(&result);
}

Test(load, open_loop_gives_up_in_the_end)
{
	struct load_options options = options_of("ready");
	struct load_result result;
	struct seen seen;

	options.in_flight = 1;
	options.rate_per_s = 10000;
	cr_assert_eq(load_try(&usual, &options, &seen, &result), -ECANCELED);
	cr_assert_float_eq((double)result.asked, 25000, 2);
	cr_assert_gt(result.failed, 1000);
	cr_assert(strstr(result.trouble, "could not start"));
	load_result_done(&result);
}

Test(load, hold_has_all_alive_at_once_and_destroys_all)
{
	struct load_options options = options_of("hold");
	struct load_result result;
	struct seen seen;

	options.count = 1000;
	cr_assert_eq(load_try(&usual, &options, &seen, &result), 0);
	cr_assert_eq(seen.peak_live, 1000);
	cr_assert_eq(seen.peak_mock, 1000);
	cr_assert_eq(result.asked, 1000);
	cr_assert_eq(result.done, 1000);
	cr_assert_eq(result.measured, 1000);
	cr_assert_eq(result.latency->total, 1000);
	cr_assert_eq(result.latency_first->total, 100);
	cr_assert_eq(result.latency_last->total, 100);
	/* Once when made, once after it was held. */
	cr_assert_eq(result.probes, 2 * 20);
	cr_assert_eq(mock_counts()->live, 0);
	load_result_done(&result);
}

Test(load, hold_over_the_limit_is_created_plus_refused)
{
	struct mock_options mock = usual;
	struct load_options options = options_of("hold");
	struct load_result result;
	struct seen seen;

	mock.sandboxes_max = 100;
	options.count = 1000;
	cr_assert_eq(load_try(&mock, &options, &seen, &result), 0);
	cr_assert_eq(result.created, 100);
	cr_assert_eq(result.refused, 900);
	cr_assert_eq(result.done, 100);
	cr_assert_eq(result.asked, 1000);
	load_result_done(&result);
}

Test(load, live_exec_counts_execs_and_leaves_no_sandbox)
{
	struct load_options options = options_of("live-exec");
	struct load_result result;
	struct seen seen;

	cr_assert_eq(load_try(&usual, &options, &seen, &result), 0);
	cr_assert_eq(seen.peak_live, 8);
	cr_assert_eq(result.created, 8);
	cr_assert_eq(result.destroyed, 8);
	cr_assert_eq(result.done, mock_counts()->execs);
	cr_assert_float_eq((double)result.measured / 2, 8 / 0.001, 10);
	cr_assert_float_eq(share_ms(result.latency, 0.5), 1, 0.01);
	load_result_done(&result);
}

Test(load, live_exec_survives_a_failed_exec)
{
	struct mock_options mock = usual;
	struct load_options options = options_of("live-exec");
	struct load_result result;
	struct seen seen;

	mock.fail_exec_every = 1000;
	cr_assert_eq(load_try(&mock, &options, &seen, &result), 0);
	cr_assert_eq(result.failed, mock_counts()->execs / 1000);
	cr_assert_eq(result.done, mock_counts()->execs - result.failed);
	cr_assert_eq(mock_counts()->live, 0);
	load_result_done(&result);
}
