/* The driver of step tables, one walk at a time, in a simulated world that only moves its clock. */
#include "engine/base/flow.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/sim/world.h"

/* Three steps that write down what is done to them; `script` decides how each start ends. */
struct walk {
	struct flow flow;
	struct flow_host host;
	struct world *world;
	struct timers timers;
	char log[128];
	int script[3];	      /* of start: FLOW_NEXT, FLOW_WAIT, -errno */
	bool undo_waits;      /* of "b" */
	bool cancel_resumes;  /* the cancel hook settles the step with cancel_res */
	bool cancel_in_start; /* of "b" */
	int cancel_res;
	int finished[8], finish_count; /* what finish of "c" answers */
	unsigned done_count, asked;
	int done_error;
};

static void note(struct flow *f, char what)
{
	struct walk *walk = container_of(f, struct walk, flow);
	size_t bytes = strlen(walk->log);

	snprintf(walk->log + bytes, sizeof walk->log - bytes, "%s%c%s", bytes ? " " : "", what,
		 f->steps[f->at].name);
}

static int walk_start(struct flow *f)
{
	struct walk *walk = container_of(f, struct walk, flow);

	note(f, '+');
	if (walk->cancel_in_start && f->at == 1)
		flow_cancel(f);
	return walk->script[f->at];
}

static int walk_finish(struct flow *f, int res)
{
	struct walk *walk = container_of(f, struct walk, flow);

	note(f, '=');
	return res < 0 ? res : walk->finished[walk->finish_count++];
}

static int walk_undo(struct flow *f)
{
	struct walk *walk = container_of(f, struct walk, flow);

	note(f, '-');
	return walk->undo_waits && f->at == 1 ? FLOW_WAIT : FLOW_NEXT;
}

static void walk_cancel(struct flow *f)
{
	struct walk *walk = container_of(f, struct walk, flow);

	walk->asked++;
	if (walk->cancel_resumes)
		flow_resume(f, walk->cancel_res);
}

static void walk_done(struct flow *f, int error)
{
	struct walk *walk = container_of(f, struct walk, flow);

	walk->done_count++;
	walk->done_error = error;
}

static const struct flow_step walk_steps[] = {
	/* name, start, finish, undo, limit_ms */
	{ "a", walk_start, NULL, walk_undo, 0 },
	{ "b", walk_start, NULL, walk_undo, 10 },
	{ "c", walk_start, walk_finish, walk_undo, 0 },
};

static void walk_init(struct walk *walk)
{
	struct io_options options = { .entries = 8 };

	*walk = (struct walk){ .world = world_new(&(struct world_options){ .seed = 1 }) };
	options.world = walk->world;
	cr_assert_eq(io_open(&options, &walk->host.io), 0);
	cr_assert_eq(timers_init(&walk->timers, 1), 0);
	walk->host.timers = &walk->timers;
	flow_init(&walk->flow, &walk->host, "walk", walk_steps, 3);
	walk->flow.done = walk_done;
	walk->flow.cancel = walk_cancel;
}

static void walk_free(struct walk *walk)
{
	timers_done(&walk->timers);
	io_close(walk->host.io);
	world_free(walk->world);
	free(walk->host.stats);
}

static void walk_expect(const struct walk *walk, const char *log, int error)
{
	cr_assert_str_eq(walk->log, log);
	cr_assert_eq(walk->done_count, 1);
	cr_assert_eq(walk->done_error, error);
	cr_assert_eq(walk->flow.at, error ? 0 : 3);
	cr_assert_eq(walk->flow.direction, 0);
	cr_assert_eq(walk->timers.count, 0);
}

Test(flow, build_walks_down_and_unwind_back)
{
	struct walk walk;

	walk_init(&walk);
	flow_build(&walk.flow);
	walk_expect(&walk, "+a +b +c", 0);
	flow_unwind(&walk.flow);
	cr_assert_str_eq(walk.log, "+a +b +c -c -b -a");
	cr_assert_eq(walk.done_count, 2);
	cr_assert_eq(walk.done_error, 0);
	cr_assert_eq(walk.flow.at, 0);
	walk_free(&walk);
}

Test(flow, failing_step_is_not_undone_but_all_below_are)
{
	struct walk walk;

	walk_init(&walk);
	walk.script[2] = -ENOSPC;
	flow_build(&walk.flow);
	walk_expect(&walk, "+a +b +c -b -a", -ENOSPC);
	cr_assert_str_eq(walk.flow.failed_step, "c");
	walk_free(&walk);
}

Test(flow, waiting_step_settles_by_resume)
{
	struct walk walk;

	walk_init(&walk);
	walk.script[0] = FLOW_WAIT;
	flow_build(&walk.flow);
	cr_assert_str_eq(flow_step_name(&walk.flow), "a");
	cr_assert_eq(walk.done_count, 0);
	flow_resume(&walk.flow, 5);
	walk_expect(&walk, "+a +b +c", 0);
	cr_assert_null(flow_step_name(&walk.flow));
	walk_free(&walk);
}

Test(flow, negative_result_without_finish_fails_the_step)
{
	struct walk walk;

	walk_init(&walk);
	walk.script[1] = FLOW_WAIT;
	flow_build(&walk.flow);
	flow_resume(&walk.flow, -EIO);
	walk_expect(&walk, "+a +b -a", -EIO);
	cr_assert_str_eq(walk.flow.failed_step, "b");
	walk_free(&walk);
}

Test(flow, again_starts_the_same_step_once_more)
{
	struct walk walk;

	walk_init(&walk);
	walk.script[2] = FLOW_WAIT;
	walk.finished[0] = walk.finished[1] = FLOW_AGAIN;
	flow_build(&walk.flow);
	for (unsigned i = 0; i < 3; i++)
		flow_resume(&walk.flow, 1);
	walk_expect(&walk, "+a +b +c =c +c =c +c =c", 0);
	walk_free(&walk);
}

Test(flow, again_of_a_cancelled_step_is_its_end)
{
	struct walk walk;

	walk_init(&walk);
	walk.script[2] = FLOW_WAIT;
	walk.finished[0] = FLOW_AGAIN;
	flow_build(&walk.flow);
	flow_cancel(&walk.flow);
	flow_resume(&walk.flow, 1);
	walk_expect(&walk, "+a +b +c =c -b -a", -ECANCELED);
	walk_free(&walk);
}

Test(flow, cancel_while_waiting_asks_once_and_unwinds)
{
	struct walk walk;

	walk_init(&walk);
	walk.script[1] = FLOW_WAIT;
	flow_build(&walk.flow);
	flow_cancel(&walk.flow);
	flow_cancel(&walk.flow);
	cr_assert_eq(walk.asked, 1);
	cr_assert_eq(walk.done_count, 0);
	flow_resume(&walk.flow, -ECANCELED);
	walk_expect(&walk, "+a +b -a", -ECANCELED);
	cr_assert_null(walk.flow.failed_step);
	walk_free(&walk);
}

Test(flow, step_that_succeeds_in_spite_of_a_cancel_is_undone)
{
	struct walk walk;

	walk_init(&walk);
	walk.script[1] = FLOW_WAIT;
	flow_build(&walk.flow);
	flow_cancel(&walk.flow);
	flow_resume(&walk.flow, 0);
	walk_expect(&walk, "+a +b -b -a", -ECANCELED);
	walk_free(&walk);
}

Test(flow, cancel_hook_may_settle_the_step_itself)
{
	struct walk walk;

	walk_init(&walk);
	walk.script[1] = FLOW_WAIT;
	walk.cancel_resumes = true;
	walk.cancel_res = -EINTR;
	flow_build(&walk.flow);
	flow_cancel(&walk.flow);
	walk_expect(&walk, "+a +b -a", -ECANCELED);
	walk_free(&walk);
}

Test(flow, cancel_from_inside_start_is_asked_when_the_step_waits)
{
	struct walk walk;

	walk_init(&walk);
	walk.script[1] = FLOW_WAIT;
	walk.cancel_in_start = true;
	flow_build(&walk.flow);
	cr_assert_eq(walk.asked, 1);
	flow_resume(&walk.flow, -ECANCELED);
	walk_expect(&walk, "+a +b -a", -ECANCELED);
	walk_free(&walk);
}

Test(flow, cancel_of_an_idle_or_unwinding_flow_does_nothing)
{
	struct walk walk;

	walk_init(&walk);
	walk.undo_waits = true;
	flow_cancel(&walk.flow);
	flow_build(&walk.flow);
	walk_expect(&walk, "+a +b +c", 0);
	flow_cancel(&walk.flow);
	flow_unwind(&walk.flow);
	flow_cancel(&walk.flow);
	cr_assert_eq(walk.asked, 0);
	cr_assert_eq(walk.flow.at, 1);
	flow_resume(&walk.flow, -EIO); /* an undo cannot fail */
	cr_assert_str_eq(walk.log, "+a +b +c -c -b -a");
	cr_assert_eq(walk.done_error, 0);
	walk_free(&walk);
}

static void clock_move(struct walk *walk, uint64_t ms)
{
	uint64_t end_ns = io_now_ns(walk->host.io) + ms * 1000000;

	while (io_now_ns(walk->host.io) < end_ns)
		cr_assert_geq(io_turn(walk->host.io, end_ns), 0);
	timers_run(&walk->timers, io_now_ns(walk->host.io), UINT32_MAX);
}

Test(flow, limit_turns_round_with_its_own_error)
{
	struct walk walk;

	walk_init(&walk);
	walk.script[1] = FLOW_WAIT;
	flow_build(&walk.flow);
	clock_move(&walk, 9);
	cr_assert_eq(walk.asked, 0);
	clock_move(&walk, 2);
	cr_assert_eq(walk.asked, 1);
	flow_cancel(&walk.flow); /* too late to be the reason */
	cr_assert_eq(walk.asked, 1);
	flow_resume(&walk.flow, 0);
	walk_expect(&walk, "+a +b -b -a", -ETIMEDOUT);
	cr_assert_str_eq(walk.flow.failed_step, "b");
	walk_free(&walk);
}

Test(flow, limit_ends_with_its_step)
{
	struct walk walk;

	walk_init(&walk);
	walk.script[1] = walk.script[2] = FLOW_WAIT;
	flow_build(&walk.flow);
	cr_assert_eq(walk.timers.count, 1);
	flow_resume(&walk.flow, 0);
	cr_assert_eq(walk.timers.count, 0);
	clock_move(&walk, 1000);
	cr_assert_eq(walk.asked, 0);
	flow_resume(&walk.flow, 0);
	walk_expect(&walk, "+a +b +c =c", 0);
	walk_free(&walk);
}

Test(flow, step_whose_limit_finds_no_timer_is_not_started)
{
	struct walk walk;
	struct timer other = { 0 };

	walk_init(&walk);
	cr_assert_eq(timer_set(&walk.timers, &other, UINT64_MAX), 0);
	flow_build(&walk.flow);
	timer_clear(&walk.timers, &other);
	walk_expect(&walk, "+a -a", -ENOSPC);
	cr_assert_str_eq(walk.flow.failed_step, "b");
	walk_free(&walk);
}

Test(flow, fault_fails_a_step_without_starting_it)
{
	struct walk walk;

	walk_init(&walk);
	walk.host.fault = "walk.b:ENOMEM";
	flow_build(&walk.flow);
	walk_expect(&walk, "+a -a", -ENOMEM);
	cr_assert_str_eq(walk.flow.failed_step, "b");
	walk_free(&walk);
}

Test(flow, fault_after_success_undoes_the_step)
{
	struct walk walk;

	walk_init(&walk);
	walk.host.fault = "walk.b!:EIO";
	flow_build(&walk.flow);
	walk_expect(&walk, "+a +b -b -a", -EIO);
	walk_free(&walk);
}

Test(flow, fault_of_another_step_or_table_does_nothing)
{
	static const char *const faults[] = { "walk.bb:EIO", "wal.b:EIO", "walk2.b:EIO" };

	for (unsigned i = 0; i < 3; i++) {
		struct walk walk;

		walk_init(&walk);
		walk.host.fault = faults[i];
		cr_assert_eq(flow_fault_check(faults[i]), 0);
		flow_build(&walk.flow);
		walk_expect(&walk, "+a +b +c", 0);
		walk_free(&walk);
	}
}

Test(flow, malformed_faults_are_refused)
{
	static const char *const faults[] = { "",	  "b:EIO",     "walk.b",     "walk.b:",
					      ".b:EIO",	  "walk.:EIO", "walk.!:EIO", "walk.b:EWHAT",
					      "walk.b:5", "a:EIO.b" };

	for (unsigned i = 0; i < sizeof faults / sizeof faults[0]; i++)
		cr_assert_eq(flow_fault_check(faults[i]), -EINVAL, "%s", faults[i]);
	cr_assert_eq(flow_fault_check("container.rootfs:ENOSPC"), 0);
	cr_assert_eq(flow_fault_check("container.rootfs!:ENOSPC"), 0);
}

static void walk_journal(struct flow_host *host, const struct flow *f, int settled)
{
	struct walk *walk = container_of(host, struct walk, host);
	size_t bytes = strlen(walk->log);

	snprintf(walk->log + bytes, sizeof walk->log - bytes, "%s%c%s:%d", bytes ? " " : "",
		 f->direction > 0 ? 'v' : '^', f->steps[f->at].name, settled);
}

Test(flow, journal_is_told_before_each_effect_and_after_it)
{
	struct walk walk;

	walk_init(&walk);
	walk.script[1] = -EIO;
	walk.host.journal = walk_journal;
	flow_build(&walk.flow);
	walk_expect(&walk, "va:0 +a va:1 vb:0 +b vb:-5 ^a:0 -a ^a:1", -EIO);
	walk_free(&walk);
}

Test(flow, statistics_count_each_step)
{
	struct walk walk;
	struct flow_step_stats *a, *b;

	walk_init(&walk);
	walk.host.stats = calloc(1, sizeof *walk.host.stats);
	walk.script[0] = FLOW_WAIT;
	walk.script[1] = -EIO;
	flow_build(&walk.flow);
	clock_move(&walk, 20);
	flow_resume(&walk.flow, 0);
	walk_expect(&walk, "+a +b -a", -EIO);
	a = flow_stats_of(walk.host.stats, "walk", &walk_steps[0]);
	b = flow_stats_of(walk.host.stats, "walk", &walk_steps[1]);
	cr_assert_eq(walk.host.stats->count, 2);
	cr_assert_str_eq(a->table, "walk");
	cr_assert_eq(a->latency.count, 1);
	cr_assert_geq(a->latency.sum, 20000);
	cr_assert_eq(a->undone, 1);
	cr_assert_eq(a->failed, 0);
	cr_assert_eq(b->latency.count, 0);
	cr_assert_eq(b->failed, 1);
	cr_assert_eq(b->undone, 0);
	walk_free(&walk);
}

Test(flow, statistics_say_when_no_slot_is_left)
{
	static const struct flow_step rows[FLOW_STATS_STEPS_MAX + 1];
	struct flow_stats *stats = calloc(1, sizeof *stats);

	for (unsigned i = 0; i < FLOW_STATS_STEPS_MAX; i++)
		cr_assert_not_null(flow_stats_of(stats, "rows", &rows[i]));
	cr_assert_null(flow_stats_of(stats, "rows", &rows[FLOW_STATS_STEPS_MAX]));
	cr_assert_eq(stats->unregistered, 1);
	cr_assert_eq(flow_stats_of(stats, "rows", &rows[7])->step, &rows[7]);
	free(stats);
}

Test(flow, without_a_host_a_flow_still_walks)
{
	struct walk walk;

	walk_init(&walk);
	flow_init(&walk.flow, NULL, "walk", walk_steps, 3);
	walk.script[1] = FLOW_WAIT;
	flow_build(&walk.flow);
	flow_cancel(&walk.flow);
	flow_resume(&walk.flow, -ECANCELED);
	walk_expect(&walk, "+a +b -a", -ECANCELED);
	walk_free(&walk);
}
