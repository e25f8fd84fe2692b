/*
 * Random tables of steps, walked on two loops through a hostile world: ops that fail, hang, are
 * refused or beat their cancel, calls answered by another loop, limits, injected faults, cancels at
 * any time. Whatever happens, every step's effect is live exactly once in a built flow and not at
 * all in one that turned round or was unwound, effects go in the reverse order they came, and the
 * flow says truly why it failed.
 *
 * usage: sim_flow [--must-fail] [SEED]    SEED replays one; --must-fail wants a failing one
 */
#include "tests/sim/trial.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { SEEDS = 10000, TURNS_MAX = 200000 };

static void item_journal(struct flow_host *host, const struct flow *f, int settled)
{
	struct item *item = container_of((struct flow *)(uintptr_t)f, struct item, flow);
	struct loop *loop = container_of(host, struct loop, host);

	CHECK(f->at < f->count);
	CHECK(item->told == (settled != 0));
	item->told = !settled;
	if (settled == 1)
		CHECK(item->live[f->at] == (f->direction > 0));
	if (settled < 0)
		CHECK(!item->live[f->at] && f->direction > 0);
	if (settled == 1 && f->direction > 0)
		loop->succeeded++;
	if (settled == 1 && f->direction < 0)
		loop->undone++;
}

/* The host's fault, when it is for the step that failed, is a reason like any other. */
static bool fault_explains(const struct item *item)
{
	const struct flow *f = &item->flow;
	const char *fault = item->loop->host.fault;
	size_t bytes = strlen(f->failed_step);

	return fault && strncmp(fault, f->table, strlen(f->table)) == 0 &&
	       strncmp(fault + strlen(f->table) + 1, f->failed_step, bytes) == 0 &&
	       f->error == -EXDEV;
}

static void item_check_failure(struct item *item)
{
	struct flow *f = &item->flow;

	if (f->failed_step && fault_explains(item)) {
		unsigned at = (unsigned)(f->failed_step[1] - '0');

		if (!strchr(item->loop->host.fault, '!'))
			CHECK(!item->began[at]);
		return;
	}
	CHECK(f->error == item->reason);
	if (item->reason_step)
		CHECK(f->failed_step && strcmp(f->failed_step, item->reason_step) == 0);
	else
		CHECK(!f->failed_step);
}

static void item_done(struct flow *f, int error)
{
	struct item *item = ITEM(f);
	bool up = error == 0 && !item->unwinding;

	CHECK(!item->over);
	CHECK(!f->waiting);
	CHECK(!timer_is_set(&f->limit));
	CHECK(!item->told);
	CHECK(error == f->error);
	CHECK(f->at == (up ? f->count : 0));
	for (unsigned i = 0; i < f->count; i++)
		CHECK(item->live[i] == up);
	CHECK(!flow_step_name(f));
	if (up) {
		CHECK(!item->reason);
		item->built = true;
		item->trial->built++;
		return;
	}
	item->over = true;
	if (item->unwinding) {
		CHECK(error == 0);
		return;
	}
	item->trial->failed++;
	item_check_failure(item);
	memset(f, 0xa5, sizeof *f); /* it may be freed here: whoever touches it after, trips */
}

static void table_make(struct trial *trial, unsigned number)
{
	struct table *table = &trial->tables[number];

	snprintf(table->name, sizeof table->name, "t%u", number % 10);
	table->count = (uint8_t)(1 + world_random(trial->world, STEPS_MAX));
	for (unsigned i = 0; i < table->count; i++) {
		snprintf(table->names[i], sizeof table->names[i], "s%u", i % 10);
		table->steps[i] = step_make(trial->world, table, i);
	}
}

static void loop_make(struct trial *trial, unsigned number)
{
	struct loop *loop = &trial->loops[number];
	struct io_options options = { .entries = 64, .owner = loop, .world = trial->world };
	unsigned table, step;

	loop->trial = trial;
	CHECK(io_open(&options, &loop->io) == 0);
	CHECK(timers_init(&loop->timers, ITEMS) == 0);
	loop->host = (struct flow_host){
		.io = loop->io,
		.timers = &loop->timers,
		.journal = item_journal,
		.stats = calloc(1, sizeof(struct flow_stats)),
	};
	CHECK(loop->host.stats);
	if (world_random(trial->world, 2))
		return;
	table = (unsigned)world_random(trial->world, TABLES);
	step = (unsigned)world_random(trial->world, STEPS_MAX);
	snprintf(loop->fault, sizeof loop->fault, "t%u.s%u%s:EXDEV", table, step,
		 world_random(trial->world, 2) ? "!" : "");
	CHECK(flow_fault_check(loop->fault) == 0);
	loop->host.fault = loop->fault;
}

static void item_make(struct trial *trial, unsigned number)
{
	struct item *item = &trial->items[number];
	unsigned loop = (unsigned)world_random(trial->world, LOOPS);

	item->trial = trial;
	item->loop = &trial->loops[loop];
	item->peer = &trial->loops[(loop + 1) % LOOPS];
	item->table = &trial->tables[world_random(trial->world, TABLES)];
	flow_init(&item->flow, &item->loop->host, item->table->name, item->table->steps,
		  item->table->count);
	item->flow.done = item_done;
	item->flow.cancel = step_cancel;
	flow_build(&item->flow);
}

static void item_cancel(struct item *item)
{
	if (item->over || item->built)
		return;
	item_reason(item, item->flow.error ? item->flow.error : -ECANCELED, NULL);
	flow_cancel(&item->flow);
}

/* What the test does between two turns. Everything ends in time. */
static void items_stir(struct trial *trial, unsigned turn)
{
	for (unsigned i = 0; i < ITEMS; i++) {
		struct item *item = &trial->items[i];

		if (item->over)
			continue;
		if (item->built && !item->unwinding && item_dice(item, 8) == 0) {
			item->unwinding = true;
			flow_unwind(&item->flow);
		} else if (!item->built && (turn > 2000 || item_dice(item, 400) == 0)) {
			item_cancel(item);
		}
	}
}

/* A step over its limit must have been turned round. */
static void limits_check(struct loop *loop)
{
	for (unsigned i = 0; i < ITEMS; i++) {
		struct item *item = &loop->trial->items[i];
		const struct flow *f = &item->flow;

		if (item->over || item->loop != loop || f->direction <= 0 || !f->waiting)
			continue;
		if (f->steps[f->at].limit_ms)
			CHECK(f->error ||
			      io_now_ns(loop->io) <
				      f->step_ns + f->steps[f->at].limit_ms * 1000000ull);
	}
}

static void loop_check_stats(struct loop *loop)
{
	uint64_t succeeded = 0, undone = 0;

	for (unsigned i = 0; i < FLOW_STATS_STEPS_MAX; i++) {
		const struct flow_step_stats *stats = &loop->host.stats->steps[i];

		if (!stats->step)
			continue;
		succeeded += stats->latency.count;
		undone += stats->undone;
	}
	CHECK(loop->host.stats->unregistered == 0);
	CHECK(succeeded == loop->succeeded);
	CHECK(undone == loop->undone);
}

static bool trial_is_over(const struct trial *trial)
{
	for (unsigned i = 0; i < ITEMS; i++)
		if (!trial->items[i].over)
			return false;
	return world_is_idle(trial->world);
}

/* Returns the trace of what happened. */
static uint64_t trial_run(uint64_t seed, struct trial *trial)
{
	struct world_options options = {
		.seed = seed, .serve = step_serve, .may_hang = step_may_hang, .context = trial
	};
	uint64_t trace;

	*trial = (struct trial){ .world = world_new(&options) };
	for (unsigned i = 0; i < LOOPS; i++)
		loop_make(trial, i);
	for (unsigned i = 0; i < TABLES; i++)
		table_make(trial, i);
	for (unsigned i = 0; i < ITEMS; i++)
		item_make(trial, i);
	for (unsigned turn = 0; !trial_is_over(trial); turn++) {
		struct loop *loop = &trial->loops[world_random(trial->world, LOOPS)];

		CHECK(turn < TURNS_MAX);
		CHECK(io_turn(loop->io, timers_next(&loop->timers)) >= 0);
		timers_run(&loop->timers, io_now_ns(loop->io), UINT32_MAX);
		limits_check(loop);
		items_stir(trial, turn);
	}
	trace = world_trace(trial->world);
	for (unsigned i = 0; i < LOOPS; i++) {
		loop_check_stats(&trial->loops[i]);
		CHECK(trial->loops[i].timers.count == 0);
		timers_done(&trial->loops[i].timers);
		free(trial->loops[i].host.stats);
		io_close(trial->loops[i].io);
	}
	world_free(trial->world);
	return trace;
}

/* Told to the parent, which outlives an abort. */
struct progress {
	uint64_t seed, trials, built, failed;
};

static void seeds_run(struct progress *progress, uint64_t first, uint64_t count)
{
	struct trial *trial = calloc(1, sizeof *trial);

	CHECK(trial);
	for (uint64_t seed = first; seed < first + count; seed++) {
		uint64_t trace;

		progress->seed = seed;
		trace = trial_run(seed, trial);
		progress->built += trial->built;
		progress->failed += trial->failed;
		progress->trials++;
		/* A seed says all there is to say. */
		if (seed % 64 == 0)
			CHECK(trial_run(seed, trial) == trace);
	}
	free(trial);
}

int main(int argc, char **argv)
{
	bool must_fail = argc > 1 && strcmp(argv[1], "--must-fail") == 0;
	const char *seed = argc > 1 + must_fail ? argv[1 + must_fail] : NULL;
	struct progress *progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t pid;

	if (progress == MAP_FAILED)
		return 1;
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		seeds_run(progress, seed ? strtoull(seed, NULL, 10) : 1, seed ? 1 : SEEDS);
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	printf("%lu trials: %lu flows built and unwound, %lu turned round\n", progress->trials,
	       progress->built, progress->failed);
	if (status)
		printf("failing seed %lu (%s %lu replays it)\n", progress->seed, argv[0],
		       progress->seed);
	printf("Tested: %lu\n", progress->trials + !!status);
	return (status != 0) == must_fail ? 0 : 1;
}
