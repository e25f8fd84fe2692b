/*
 * Sandboxes that write without end: y's, zeros, a million short lines, one line of a gigabyte;
 * while somebody waits for them, reads them, or nobody does. The engine's memory stays, and so does
 * the neighbour's pace.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_follow.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/engine_image.h"

enum { MIB = 1 << 20, ROUNDS = 40, SECOND_MS = 1000, WAIT_MS = 60000 };

static const char *const endless[] = { "exec yes", "exec cat /dev/zero",
				       "while :; do echo; done; :" };

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median of a neighbour's commands, in ms. */
static double neighbour_ms(struct engine *e, struct dsec_id id)
{
	double ms[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		auto_ran struct ran ran = shell_run(e->d, id, "echo fine");

		expect(ran_says(&ran, "fine\n"));
		ms[i] = ran.ms;
	}
	qsort(ms, ROUNDS, sizeof *ms, by_value);
	return ms[ROUNDS / 2];
}

struct flood {
	struct dsec_id id;
	int64_t ticket; /* -1: detached */
};

/* It has written a megabyte at least. */
static struct flood flood_start(struct engine *e, const char *script, uint32_t flags)
{
	struct command c = SH(script);
	struct flood flood = { .id = sandbox_make(e->d), .ticket = -1 };

	c.flags = flags;
	if (flags & DSEC_EXEC_DETACH) {
		auto_ran struct ran ran = command_run(e->d, flood.id, &c);

		expect(ran.result && ran.result->reason == DSEC_RUNNING);
	} else {
		flood.ticket = command_start(e->d, flood.id, &c, NULL);
	}
	return flood;
}

static double flood_end(struct engine *e, const struct flood *flood)
{
	double begun_ms = clock_ms();

	sandbox_end(e->d, flood->id);
	if (flood->ticket >= 0) {
		auto_follower struct follower f = follower_of(e->d, flood->ticket);

		expect(follower_to_end(&f, WAIT_MS));
		expect(f.result && f.result->reason == DSEC_KILLED);
	}
	return clock_ms() - begun_ms;
}

/* Floods of all kinds together, for a while; then they must go as quickly as any. */
static void floods_check(struct engine *e, uint32_t flags, const char *what)
{
	enum { COUNT = sizeof endless / sizeof *endless };
	struct dsec_id neighbour = sandbox_make(e->d);
	uint64_t before = process_rss_bytes(engine_pid(e)), most = before;
	double quiet_ms = neighbour_ms(e, neighbour), beside_ms;
	struct flood floods[COUNT];

	for (int i = 0; i < COUNT; i++)
		floods[i] = flood_start(e, endless[i], flags);
	beside_ms = neighbour_ms(e, neighbour);
	for (int i = 0; i < 10; i++) {
		uint64_t now = process_rss_bytes(engine_pid(e));

		most = now > most ? now : most;
		pause_ms(SECOND_MS / 10);
	}
	for (int i = 0; i < COUNT; i++)
		expect(flood_end(e, &floods[i]) < (double)held_up_ms());
	note("%s: neighbour %.2f ms, %.2f beside; the engine grew by %llu KiB", what, quiet_ms,
	     beside_ms, (unsigned long long)(most - before) / 1024);
	expect(beside_ms < (double)held_up_ms());
	expect(most < before + 16 * MIB);
	sandbox_end(e->d, neighbour);
}

static void floods_that_are_waited_for_cost_no_memory(struct engine *e)
{
	floods_check(e, 0, "captured");
}

static void floods_that_nobody_waits_for_cost_no_memory(struct engine *e)
{
	floods_check(e, DSEC_EXEC_DETACH, "detached");
}

static void floods_whose_reader_is_stuck_stand_still(struct engine *e)
{
	floods_check(e, DSEC_EXEC_STREAM, "unread streams");
}

static void floods_that_outlive_their_exec_go_to_a_sink(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d), neighbour = sandbox_make(e->d);
	uint64_t before = process_rss_bytes(engine_pid(e));
	unsigned fds = process_fd_count(engine_pid(e));

	for (int i = 0; i < 20; i++) {
		auto_ran struct ran ran = shell_run(e->d, id, "yes & exec cat /dev/null");

		expect(ran_exited(&ran, 0) && ran.ms < (double)held_up_ms());
	}
	/* None died of a pipe that was closed. */
	if (!expect(until(5000, engine_running(e, "yes") == 20)))
		note("%u run", engine_running(e, "yes"));
	note("beside 20 in the background: neighbour %.2f ms", neighbour_ms(e, neighbour));
	expect(process_rss_bytes(engine_pid(e)) < before + 16 * MIB);
	sandbox_end(e->d, id);
	/* And with the writers go the descriptors. */
	expect(until(5000, process_fd_count(engine_pid(e)) <= fds));
	sandbox_end(e->d, neighbour);
}

/* ---- pipes whose lock somebody inside keeps ---- */

enum { HELD = 6 };

static void pipes_that_are_held_hold_nobody_up(struct engine *e)
{
	static const char input[256 << 10];
	const struct command attacks[] = {
		{ .argv = { "attack", "hold-output", "1" }, .timeout_ms = 2000 },
		{ .argv = { "attack", "hold-output", "2" }, .timeout_ms = 2000 },
		{ .argv = { "attack", "hold-input" },
		  .input = input,
		  .input_bytes = sizeof input,
		  .timeout_ms = 2000 },
	};
	struct dsec_id neighbours[2] = { sandbox_make(e->d), sandbox_make(e->d) };
	struct dsec_id ids[HELD];
	int64_t tickets[HELD];

	for (int i = 0; i < HELD; i++) {
		ids[i] = sandbox_make(e->d); /* on every shard, each kind */
		tickets[i] = command_start(e->d, ids[i], &attacks[i % 3], NULL);
	}
	pause_ms(SECOND_MS / 5);
	for (int i = 0; i < 2; i++)
		expect(neighbour_ms(e, neighbours[i]) < (double)held_up_ms());
	for (int i = 0; i < HELD; i++) {
		auto_ran struct ran ran = command_wait(e->d, tickets[i]);

		if (!expect(ran.result && ran.result->reason == DSEC_TIMEOUT))
			ran_note(&ran);
		sandbox_end(e->d, ids[i]);
	}
	/* Whoever is left behind has the pipe: its exec ends, without what nobody can read. */
	auto_ran struct ran left =
		shell_run(e->d, neighbours[0], "echo before; attack hold-output 1 & sleep 0.3");

	if (!expect(ran_exited(&left, 0) && left.ms < (double)held_up_ms()))
		ran_note(&left);
	for (int i = 0; i < 2; i++)
		sandbox_end(e->d, neighbours[i]);
}

/* One of its threads waits in the kernel for a lock that a sandbox has, and no signal ends that. */
static void an_engine_killed_while_pipes_are_held_is_replaced(struct engine *e)
{
	const struct command attack = { .argv = { "attack", "hold-output", "1" } };
	struct dsec_id ids[2] = { sandbox_make(e->d), sandbox_make(e->d) };
	pid_t pid = engine_pid(e), left[8];

	for (int i = 0; i < 2; i++)
		expect(command_start(e->d, ids[i], &attack, NULL) >= 0);
	expect(until(10000, engine_running(e, "attack") == 2));
	pause_ms(SECOND_MS / 5);
	(void)kill(pid, SIGKILL); /* the keeper has not reaped it yet */
	dsec_close(e->d);
	e->d = NULL;
	expect(until(20000, engine_pid(e) && engine_pid(e) != pid));
	e->d = engine_connect(e);
	if (!e->d)
		return;
	expect(list_count(e->d) == 0 && engine_members(e, left, 8) == 0);
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran ran = shell_run(e->d, id, "echo new");

	expect(ran_says(&ran, "new\n"));
	sandbox_end(e->d, id);
}

/* ---- what ends, and is counted to the byte ---- */

static void a_million_short_lines_are_counted_and_cut(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	uint64_t before = process_rss_bytes(engine_pid(e));
	auto_ran struct ran ran = shell_run(e->d, id, "yes x | head -n 1000000; echo err >&2");
	const struct dsec_output *out = ran_output(&ran, 1);

	expect(ran_exited(&ran, 0) && out && out->total_bytes == 2000000 && out->truncated);
	expect(ran_wrote(&ran, 2, "err\n", 4));
	expect(process_rss_bytes(engine_pid(e)) < before + 16 * MIB);
	/* And where they are read as they come, every one of them. */
	struct command c = SH("yes x | head -n 1000000");

	c.flags = DSEC_EXEC_STREAM;
	auto_follower struct follower f = follower_of(e->d, command_start(e->d, id, &c, NULL));

	expect(follower_to_end(&f, WAIT_MS) && f.streams[0].next == 2000000 && !f.streams[0].gaps);
	sandbox_end(e->d, id);
}

static void a_line_of_a_gigabyte_is_counted_and_cut(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d), neighbour = sandbox_make(e->d);
	uint64_t before = process_rss_bytes(engine_pid(e));
	uint64_t bytes = (uint64_t)fewer(1024, 128) * MIB;
	char script[64];

	(void)snprintf(script, sizeof script, "head -c %llu /dev/zero; echo err >&2",
		       (unsigned long long)bytes);
	const struct command c = SH(script);
	int64_t ticket = command_start(e->d, id, &c, NULL);
	double beside_ms = neighbour_ms(e, neighbour);
	auto_ran struct ran ran = command_wait(e->d, ticket);
	const struct dsec_output *out = ran_output(&ran, 1);

	expect(ran_exited(&ran, 0) && out && out->total_bytes == bytes && out->truncated);
	expect(ran_wrote(&ran, 2, "err\n", 4));
	note("beside a gigabyte: neighbour %.2f ms", beside_ms);
	expect(process_rss_bytes(engine_pid(e)) < before + 16 * MIB);
	sandbox_end(e->d, id);
	sandbox_end(e->d, neighbour);
}

static const struct claim claims[] = {
	CLAIM(floods_that_are_waited_for_cost_no_memory),
	CLAIM(floods_that_nobody_waits_for_cost_no_memory),
	CLAIM(floods_whose_reader_is_stuck_stand_still),
	CLAIM(floods_that_outlive_their_exec_go_to_a_sink),
	CLAIM(pipes_that_are_held_hold_nobody_up),
	CLAIM(a_million_short_lines_are_counted_and_cut),
	CLAIM(a_line_of_a_gigabyte_is_counted_and_cut),
};

static const struct claim hurt[] = { CLAIM(an_engine_killed_while_pipes_are_held_is_replaced) };

static const char *const arguments[] = { "--sandboxes-max", "32", "--shards", "2", NULL };
static const struct suite suites[] = {
	SUITE("output", claims, .arguments = arguments),
	SUITE("output of a dead engine", hurt, .arguments = arguments, .is_hurt = true),
};

int main(int argc, char **argv)
{
	image_add(ATTACK_PATH, "attack");
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
