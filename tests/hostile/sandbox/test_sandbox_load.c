/*
 * Sandboxes that use all they get: processes, signals, descriptors, files, output, system calls.
 * The attacker alone may suffer; the engine answers, neighbours run, and the end is as quick as
 * any.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/engine_image.h"

enum { PIDS = 200, MIB = 1 << 20, ROUNDS = 60 };

struct attacker {
	struct dsec_id id;
	int64_t ticket;
};

/* Starts an attack and waits until `name` runs in at least `count` processes. */
static bool attack_start(struct engine *e, struct attacker *a, const char *const argv[],
			 unsigned count)
{
	struct command c = { .argv = { "attack", argv[0], argv[1] }, .timeout_ms = 60000 };
	unsigned before = engine_running(e, "attack");

	a->id = sandbox_make(e->d);
	a->ticket = command_start(e->d, a->id, &c, NULL);
	return expect(until(20000, engine_running(e, "attack") >= before + count));
}

#define ATTACK(e, a, count, ...)                                                                   \
	attack_start(e, a, (const char *const[]){ __VA_ARGS__, NULL }, count)

/* Destroys the sandbox: how long that took. */
static double attack_end(struct engine *e, struct attacker *a)
{
	double begun_ms = clock_ms();

	sandbox_end(e->d, a->id);
	double ms = clock_ms() - begun_ms;
	auto_ran struct ran ran = command_wait(e->d, a->ticket);

	if (!expect(ran.status.code == DSEC_OK && ran.result))
		ran_note(&ran);
	return ms;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct latency {
	double p50_ms, p99_ms;
};

/* A neighbour's life: commands in a sandbox that is there, every one of which must do. */
static struct latency neighbour_run(struct engine *e, struct dsec_id id, int rounds)
{
	double ms[ROUNDS];

	for (int i = 0; i < rounds; i++) {
		auto_ran struct ran ran = shell_run(e->d, id, "echo fine");

		expect(ran_says(&ran, "fine\n"));
		ms[i] = ran.ms;
	}
	qsort(ms, (size_t)rounds, sizeof *ms, by_value);
	return (struct latency){ ms[rounds / 2], ms[rounds - 1] };
}

/* New sandboxes are made and ended meanwhile: how long each takes, at the median. */
static double makes_run(struct engine *e)
{
	double ms[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		double begun_ms = clock_ms();
		struct dsec_id id = sandbox_make(e->d);

		sandbox_end(e->d, id);
		ms[i] = clock_ms() - begun_ms;
	}
	qsort(ms, ROUNDS, sizeof *ms, by_value);
	return ms[ROUNDS / 2];
}

/* ---- processes ---- */

static void fork_bomb(struct engine *e, const char *name, int rounds)
{
	struct dsec_id neighbour = sandbox_make(e->d);
	struct latency before = neighbour_run(e, neighbour, ROUNDS), during;
	struct attacker a;
	unsigned running;
	double end_ms;

	if (!ATTACK(e, &a, PIDS / 2, name))
		return;
	during = neighbour_run(e, neighbour, rounds);
	running = engine_running(e, "attack");
	/* The sandbox's own execs: not started for want of processes, or run; nothing else. */
	for (int i = 0; i < 3; i++) {
		auto_ran struct ran ran = shell_run(e->d, a.id, "exit 0");

		bool ended = ran.result &&
			     (ran.result->reason == DSEC_EXIT || ran.result->reason == DSEC_SIGNAL);

		if (!expect((ran.status.code == DSEC_OK && ended) ||
			    (ran.status.error == EAGAIN && ran.status.blame == DSEC_BLAME_GUEST)))
			ran_note(&ran);
	}
	end_ms = attack_end(e, &a);
	note("%s: %u processes; neighbour p50 %.1f p99 %.1f ms, before %.1f and %.1f; end %.0f ms",
	     name, running, during.p50_ms, during.p99_ms, before.p50_ms, before.p99_ms, end_ms);
	expect(running <= PIDS + 1);
	expect(during.p99_ms < (double)held_up_ms());
	expect(end_ms < (double)held_up_ms());
	expect(engine_running(e, "attack") == 0);
	sandbox_end(e->d, neighbour);
}

static void a_fork_bomb_dies_alone(struct engine *e)
{
	fork_bomb(e, "bomb-forks", ROUNDS);
}

static void a_bomb_that_flees_into_sessions_dies_alone(struct engine *e)
{
	/* Each session gets a share of the CPU: without the controller there is no other bound. */
	fork_bomb(e, "bomb-sessions", ROUNDS / 4);
}

static void a_fork_bomb_ends_with_its_timeout_and_leaves_the_sandbox_usable(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	const struct command bomb = { .argv = { "attack", "bomb-sessions" }, .timeout_ms = 300 };
	auto_ran struct ran ran = command_run(e->d, id, &bomb);

	if (!expect(ran.result && ran.result->reason == DSEC_TIMEOUT && ran.ms < longer(10000)))
		ran_note(&ran);
	expect(engine_running(e, "attack") == 0);
	auto_ran struct ran next = shell_run(e->d, id, "echo usable");

	expect(ran_says(&next, "usable\n"));
	sandbox_end(e->d, id);
}

/* ---- signals ---- */

static void signals_to_everything(struct engine *e, const char *number)
{
	struct dsec_id neighbour = sandbox_make(e->d);
	uint64_t lost = holdings_now(e->d).launchers_lost;
	struct attacker a;
	double worst_ms = 0;

	if (!ATTACK(e, &a, 1, "signal", number))
		return;
	for (int i = 0; i < 10; i++) {
		struct command c = SH("exit 0");

		c.timeout_ms = 200;
		auto_ran struct ran ran = command_run(e->d, a.id, &c);

		/* It got through, was killed, stopped until its time was over, or never began. */
		if (!expect(ran.status.code == DSEC_OK || ran.status.code == DSEC_FAILED))
			ran_note(&ran);
		worst_ms = ran.ms > worst_ms ? ran.ms : worst_ms;
	}
	note("signal %s: the sandbox's own execs take up to %.0f ms", number, worst_ms);
	expect(worst_ms < longer(8000));
	struct latency during = neighbour_run(e, neighbour, ROUNDS);

	expect(during.p50_ms < (double)held_up_ms());
	expect(holdings_now(e->d).launchers_lost == lost);
	expect(attack_end(e, &a) < (double)held_up_ms());
	sandbox_end(e->d, neighbour);
}

static void stopping_everything_stops_nobody_else(struct engine *e)
{
	signals_to_everything(e, "19");
}

static void killing_everything_kills_nobody_else(struct engine *e)
{
	signals_to_everything(e, "9");
}

static void what_is_traced_ends_with_its_timeout(struct engine *e)
{
	struct attacker a;

	if (!ATTACK(e, &a, 1, "trace"))
		return;
	for (int i = 0; i < 10; i++) {
		struct command c = SH("sleep 0.01; echo done; exit 3");

		c.timeout_ms = 100;
		auto_ran struct ran ran = command_run(e->d, a.id, &c);

		/* Not before: the tracer has its zombie. Its own end is known all the same. */
		if (!expect(ran.status.code == DSEC_OK && ran.result && ran.ms < longer(3000)))
			ran_note(&ran);
	}
	expect(attack_end(e, &a) < (double)held_up_ms());
}

/* ---- things that run out ---- */

static void what_one_takes_another_still_has(struct engine *e)
{
	static const char *const takes[] = { "take-files",  "take-watches", "take-terminals",
					     "take-queues", "take-polls",   "take-pipes",
					     "take-sockets" };
	const struct command each = { .argv = { "attack", "one-of-each" } };
	struct dsec_id neighbour = sandbox_make(e->d);

	for (unsigned i = 0; i < sizeof takes / sizeof *takes; i++) {
		struct attacker a;

		if (!ATTACK(e, &a, 20, takes[i]))
			return;
		/* Until nothing more is taken: then everybody sleeps. */
		pause_ms(300);
		auto_ran struct ran ran = command_run(e->d, neighbour, &each);

		if (!expect(ran_says(&ran, "done\n")))
			note("%s", takes[i]);
		struct dsec_id fresh = sandbox_make(e->d);
		auto_ran struct ran in_fresh = command_run(e->d, fresh, &each);

		if (!expect(ran_says(&in_fresh, "done\n")))
			note("%s, in a new one", takes[i]);
		/* And so has the host. */
		expect(system(ATTACK_PATH " one-of-each >/dev/null") == 0);
		sandbox_end(e->d, fresh);
		expect(attack_end(e, &a) < (double)held_up_ms());
	}
	sandbox_end(e->d, neighbour);
}

static void a_sandbox_full_of_files_goes_without_stalling_others(struct engine *e)
{
	const struct command fill = { .argv = { "attack", "fill" }, .timeout_ms = 60000 };
	struct dsec_id id = sandbox_make(e->d), neighbour = sandbox_make(e->d);
	auto_ran struct ran full = command_run(e->d, id, &fill);
	double before_ms = makes_run(e), begun_ms, end_ms, after_ms;

	expect(ran_exited(&full, 0));
	note("%.*s in %.0f ms", (int)ran_output(&full, 1)->head.bytes - 1,
	     (const char *)ran_output(&full, 1)->head.data, full.ms);
	begun_ms = clock_ms();
	sandbox_end(e->d, id);
	end_ms = clock_ms() - begun_ms;
	struct latency during = neighbour_run(e, neighbour, ROUNDS);

	after_ms = makes_run(e);
	note("its end %.0f ms; then a neighbour's p99 %.1f ms, making one %.1f ms, before %.1f ms",
	     end_ms, during.p99_ms, after_ms, before_ms);
	expect(end_ms < (double)held_up_ms() && during.p99_ms < (double)held_up_ms() &&
	       after_ms < (double)held_up_ms());
	sandbox_end(e->d, neighbour);
}

/* ---- calls that cost others ---- */

/* The best of three: others use this machine, too. */
static double makes_beside(struct engine *e, const char *attack)
{
	double best_ms = 0;

	for (int i = 0; i < 3; i++) {
		struct attacker a;
		double ms;

		if (!ATTACK(e, &a, 1, attack))
			return 0;
		ms = makes_run(e);
		(void)attack_end(e, &a);
		best_ms = !i || ms < best_ms ? ms : best_ms;
	}
	return best_ms;
}

static void syncing_costs_others_no_more_than_spinning(struct engine *e)
{
	double idle_ms = makes_run(e), spin_ms = 0, sync_ms = 0;
	bool holds = false;

	/* Others use this machine, too: it holds if it does in one of a few rounds. */
	for (int i = 0; i < 4 && !holds; i++) {
		spin_ms = makes_beside(e, "spin");
		sync_ms = makes_beside(e, "sync");
		holds = sync_ms > 0 && spin_ms > 0 && sync_ms < spin_ms * 3 + 1;
	}
	note("making one: %.2f ms idle, %.2f beside a spinner, %.2f beside a syncer", idle_ms,
	     spin_ms, sync_ms);
	expect(holds);
}

static void crashes_leave_no_core_and_no_trace(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	const struct command crash = { .argv = { "attack", "crash", "300" } };
	auto_ran struct ran ran = command_run(e->d, id, &crash);
	auto_ran struct ran look = shell_run(e->d, id, "ls / /tmp | grep -i core; :");

	expect(ran_says(&ran, ""));
	expect(ran_says(&look, ""));
	sandbox_end(e->d, id);
}

/* ---- output ---- */

static void a_flood_of_output_costs_the_engine_no_memory(struct engine *e)
{
	struct dsec_id neighbour = sandbox_make(e->d);
	uint64_t before = process_rss_bytes(engine_pid(e));
	struct attacker floods[4];

	for (int i = 0; i < 4; i++)
		if (!ATTACK(e, &floods[i], 1, "flood"))
			return;
	struct latency during = neighbour_run(e, neighbour, ROUNDS);
	uint64_t after = process_rss_bytes(engine_pid(e));

	for (int i = 0; i < 4; i++)
		expect(attack_end(e, &floods[i]) < (double)held_up_ms());
	note("beside four floods: neighbour p50 %.1f p99 %.1f ms, the engine grew by %lld KiB",
	     during.p50_ms, during.p99_ms, ((long long)after - (long long)before) / 1024);
	expect(during.p50_ms < (double)held_up_ms() && after < before + 16 * MIB);
	sandbox_end(e->d, neighbour);
}

static void streams_held_open_hold_nobody_up(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	const struct command hold = { .argv = { "attack", "hold-streams" } };
	unsigned fds = process_fd_count(engine_pid(e));

	for (int i = 0; i < 20; i++) {
		auto_ran struct ran ran = command_run(e->d, id, &hold);

		expect(ran_exited(&ran, 0) && ran.ms < longer(2000));
	}
	/* What they write on goes to sinks, two for each, and those go with the sandbox. */
	expect(process_fd_count(engine_pid(e)) <= fds + 2 * 20);
	sandbox_end(e->d, id);
	expect(until(5000, process_fd_count(engine_pid(e)) <= fds));
}

static const struct claim claims[] = {
	CLAIM(a_fork_bomb_dies_alone),
	CLAIM(a_bomb_that_flees_into_sessions_dies_alone),
	CLAIM(a_fork_bomb_ends_with_its_timeout_and_leaves_the_sandbox_usable),
	CLAIM(stopping_everything_stops_nobody_else),
	CLAIM(killing_everything_kills_nobody_else),
	CLAIM(what_is_traced_ends_with_its_timeout),
	CLAIM(what_one_takes_another_still_has),
	CLAIM(a_sandbox_full_of_files_goes_without_stalling_others),
	CLAIM(syncing_costs_others_no_more_than_spinning),
	CLAIM(crashes_leave_no_core_and_no_trace),
	CLAIM(a_flood_of_output_costs_the_engine_no_memory),
	CLAIM(streams_held_open_hold_nobody_up),
};

static const char *const arguments[] = { "--sandboxes-max", "32",     "--shards", "2",
					 "--pids",	    "200",    "--disk",	  "64M",
					 "--inodes",	    "100000", NULL };
static const struct suite suites[] = { SUITE("load", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	image_add(ATTACK_PATH, "attack");
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
