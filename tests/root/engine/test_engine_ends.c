/*
 * How commands end, and what becomes of what they started: background children, deadlines, deaths
 * of PID 1, many at once. One engine for all claims.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/slowness.h"

enum { LEAVES = 64, BURST = 200 };

/* ---- background ---- */

static void a_background_child_does_not_delay_the_result_and_lives_on(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran ran = shell_run(e->d, id, "sleep 300 & echo hi");

	expect(ran_says(&ran, "hi\n"));
	expect(ran.ms < longer(1000));
	expect(until(5000, engine_running(e, "sleep") == 1));
	auto_ran struct ran alive = shell_run(e->d, id, "pidof sleep | wc -w");

	expect(ran_says(&alive, "1\n"));
	sandbox_end(e->d, id);
}

/* More than any pipe holds, to both streams: it neither waits nor dies of it. */
static void what_a_background_child_writes_later_is_nobodys_and_harms_nobody(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran writer = shell_run(
		e->d, id,
		"(trap 'echo pipe >/tmp/trapped' PIPE; sleep 0.1; head -c 300000 /dev/zero;"
		"head -c 300000 /dev/zero >&2; echo $? >/tmp/wrote) & echo there");

	expect(ran_exited(&writer, 0) && !memcmp(ran_output(&writer, 1)->head.data, "there\n", 6));
	expect(until(5000, ({
			     auto_ran struct ran wrote =
				     shell_run(e->d, id, "cat /tmp/wrote /tmp/trapped; :");
			     ran_exited(&wrote, 0) && ran_wrote(&wrote, 1, "0\n", 2);
		     })));
	sandbox_end(e->d, id);
}

static void background_children_in_every_leaf_refuse_an_exec_until_one_ends(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	const struct command last = SH("true");

	for (int i = 0; i < LEAVES; i++) {
		auto_ran struct ran ran = shell_run(e->d, id, "sleep 300 >&- 2>&- & :");

		if (!expect(ran_exited(&ran, 0)))
			break;
	}
	expect(until(5000, engine_running(e, "sleep") == LEAVES)); /* the last may be starting */
	for (int i = 0; i < 3; i++) {
		auto_ran struct ran refused = command_run(e->d, id, &last);

		if (!expect(refused.status.code == DSEC_REFUSED &&
			    refused.status.retry_after_ms > 0))
			ran_note(&refused);
	}
	pid_t pids[LEAVES * 2];
	unsigned count = engine_members(e, pids, LEAVES * 2);

	/* The last listed is no PID 1, and PID 1 of the sandbox reaps it. */
	expect(count == LEAVES + 1);
	(void)kill(pids[count - 1], SIGKILL);
	expect(until(5000, ({
			     auto_ran struct ran again = command_run(e->d, id, &last);
			     again.status.code == DSEC_OK;
		     })));
	sandbox_end(e->d, id);
}

static void two_thousand_orphans_are_reaped(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);

	for (unsigned i = 0; i < fewer(20, 4); i++) {
		auto_ran struct ran ran = shell_run(
			e->d, id, "i=0; while [ $i -lt 100 ]; do (sleep 0.01 &); i=$((i+1)); done");

		expect(ran_exited(&ran, 0));
	}
	expect(until(10000, ({
			     auto_ran struct ran left = shell_run(
				     e->d, id,
				     "cat /proc/[0-9]*/stat | grep -c -e ') Z ' -e '(sleep)'; :");
			     ran_exited(&left, 0) && ran_wrote(&left, 1, "0\n", 2);
		     })));
	sandbox_end(e->d, id);
}

/* ---- deadlines ---- */

static void a_timeout_kills_every_descendant_and_keeps_what_was_written(struct engine *e)
{
	struct command c =
		SH("echo first; setsid sh -c 'while :; do echo x >>/tmp/grow; sleep 0.01;"
		   "done' & setsid setsid sleep 300 & echo second; sleep 99");
	struct dsec_id id = sandbox_make(e->d);
	char first[32], second[32];
	pid_t pids[8];

	c.timeout_ms = (uint32_t)longer(300);
	auto_ran struct ran ran = command_run(e->d, id, &c);

	if (!expect(ran.status.code == DSEC_OK && ran.result && ran.result->reason == DSEC_TIMEOUT))
		ran_note(&ran);
	expect(ran_wrote(&ran, 1, "first\nsecond\n", 13));
	expect(ran.ms >= c.timeout_ms && ran.ms < longer(5000));
	/* When the result is there, nothing of it runs: only PID 1 is left. */
	expect(engine_members(e, pids, 8) == 1);
	auto_ran struct ran size = shell_run(e->d, id, "wc -c </tmp/grow");
	auto_ran struct ran later = shell_run(e->d, id, "sleep 0.2; wc -c </tmp/grow");

	expect(ran_exited(&size, 0) && ran_exited(&later, 0));
	(void)snprintf(first, sizeof first, "%.*s", (int)ran_output(&size, 1)->head.bytes,
		       (const char *)ran_output(&size, 1)->head.data);
	(void)snprintf(second, sizeof second, "%.*s", (int)ran_output(&later, 1)->head.bytes,
		       (const char *)ran_output(&later, 1)->head.data);
	if (!expect(!strcmp(first, second) && atoi(first) > 0))
		note("%s then %s", first, second);
	sandbox_end(e->d, id);
}

static void a_timeout_ends_what_ignores_signals_or_only_stops(struct engine *e)
{
	static const char *const scripts[] = {
		"trap '' TERM INT HUP; while :; do :; done",
		"kill -STOP $$; sleep 99",
		"sleep 99 | sleep 99 | sleep 99",
		"yes",
		"exec >&- 2>&-; sleep 99",
	};
	struct dsec_id id = sandbox_make(e->d);
	pid_t pids[8];

	for (unsigned i = 0; i < sizeof scripts / sizeof *scripts; i++) {
		struct command c = SH(scripts[i]);

		c.timeout_ms = 100;
		auto_ran struct ran ran = command_run(e->d, id, &c);

		if (!expect(ran.result && ran.result->reason == DSEC_TIMEOUT &&
			    ran.ms < longer(5000))) {
			note("%s", scripts[i]);
			ran_note(&ran);
		}
		expect(engine_members(e, pids, 8) == 1);
	}
	sandbox_end(e->d, id);
}

static void a_timeout_that_passes_spares_the_next_exec_of_the_leaf(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);

	for (unsigned i = 0; i < fewer(50, 10); i++) {
		struct command c = SH("sleep 99");

		c.timeout_ms = 1;
		auto_ran struct ran ran = command_run(e->d, id, &c);
		auto_ran struct ran next = shell_run(e->d, id, "echo alive");

		if (!expect(ran.result && ran.result->reason == DSEC_TIMEOUT))
			ran_note(&ran);
		expect(ran_says(&next, "alive\n"));
	}
	sandbox_end(e->d, id);
}

/* ---- many at once ---- */

static void sixty_four_run_at_once_and_more_are_refused_with_a_hint(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	const struct command wait = SH("echo up; exec cat /tmp/gate");
	int64_t tickets[LEAVES];
	auto_ran struct ran gate = shell_run(e->d, id, "mkfifo /tmp/gate");

	expect(ran_exited(&gate, 0));
	for (int i = 0; i < LEAVES - 1; i++)
		tickets[i] = command_start(e->d, id, &wait, NULL);
	/* All of them wait at the gate, and PID 1. */
	expect(until(10000, engine_running(e, "cat") == LEAVES - 1));
	auto_ran struct ran last = shell_run(e->d, id, "echo last");

	expect(ran_says(&last, "last\n"));
	tickets[LEAVES - 1] = command_start(e->d, id, &wait, NULL);
	expect(until(10000, engine_running(e, "cat") == LEAVES));
	/* Beyond what one connection has in flight at most. */
	struct dsec *other = engine_connect(e);

	for (int i = 0; i < 3 && other; i++) {
		auto_ran struct ran more = shell_run(other, id, "echo more");

		if (!expect(more.status.code == DSEC_REFUSED && more.status.retry_after_ms > 0))
			ran_note(&more);
	}
	sandbox_end(other, id);
	dsec_close(other);
	for (int i = 0; i < LEAVES; i++) {
		auto_ran struct ran ran = command_wait(e->d, tickets[i]);

		if (!expect(ran.result && ran.result->reason == DSEC_KILLED &&
			    ran_wrote(&ran, 1, "up\n", 3)))
			ran_note(&ran);
	}
}

static void a_burst_of_execs_over_many_sandboxes_all_end_well(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(20);
	auto_made struct made made = create_run(e->d, &opts);
	const struct command c = SH("echo $$ >/dev/null; echo done");
	const unsigned burst = fewer(BURST, 60);
	auto_free int64_t *tickets = calloc(burst, sizeof *tickets);

	expect(made.created == 20);
	for (unsigned i = 0; i < burst; i++)
		tickets[i] = command_start(e->d, made.ids[i % 20], &c, NULL);
	for (unsigned i = 0; i < burst; i++) {
		auto_ran struct ran ran = command_wait(e->d, tickets[i]);

		expect(ran_says(&ran, "done\n"));
	}
	expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
}

/* ---- deaths ---- */

static void a_destroyed_sandbox_ends_its_execs_as_killed(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	const struct command c = SH("echo here; exec sleep 300");
	int64_t ticket = command_start(e->d, id, &c, NULL);
	pid_t pids[8];

	expect(until(5000, engine_running(e, "sleep") == 1));
	sandbox_end(e->d, id);
	auto_ran struct ran ran = command_wait(e->d, ticket);

	if (!expect(ran.status.code == DSEC_OK && ran.result && ran.result->reason == DSEC_KILLED &&
		    ran_wrote(&ran, 1, "here\n", 5)))
		ran_note(&ran);
	expect(engine_members(e, pids, 8) == 0);
}

static void the_death_of_pid_1_ends_its_execs_as_killed_and_the_sandbox(struct engine *e)
{
	const struct command c = SH("echo here; exec sleep 300");

	for (unsigned i = 0; i < fewer(20, 5); i++) {
		struct dsec_id id = sandbox_make(e->d);
		int64_t tickets[3];
		pid_t pids[16];

		for (int n = 0; n < 3; n++)
			tickets[n] = command_start(e->d, id, &c, NULL);
		expect(until(5000, engine_running(e, "sleep") == 3));
		if (!expect(engine_inits(e, pids, 16) == 1))
			break;
		(void)kill(pids[0], SIGKILL); /* PID 1 of the only sandbox: the engine reaps it */
		for (int n = 0; n < 3; n++) {
			auto_ran struct ran ran = command_wait(e->d, tickets[n]);

			if (!expect(ran.result && ran.result->reason == DSEC_KILLED &&
				    ran_wrote(&ran, 1, "here\n", 5)))
				ran_note(&ran);
		}
		expect(until(5000, !list_has(e->d, id)));
		auto_ran struct ran late = shell_run(e->d, id, "true");

		expect(late.status.code == DSEC_ABSENT);
		expect(engine_members(e, pids, 16) == 0);
	}
}

static void execs_that_race_with_the_death_of_pid_1_end_in_a_known_way(struct engine *e)
{
	const struct command c = SH("echo here");

	for (unsigned i = 0; i < fewer(50, 8); i++) {
		struct dsec_id id = sandbox_make(e->d);
		int64_t tickets[8];
		pid_t pids[16];

		if (!expect(engine_inits(e, pids, 16) == 1))
			break;
		for (unsigned n = 0; n < 8; n++) {
			tickets[n] = command_start(e->d, id, &c, NULL);
			if (n == i % 8)
				(void)kill(pids[0], SIGKILL); /* as above */
		}
		for (int n = 0; n < 8; n++) {
			auto_ran struct ran ran = command_wait(e->d, tickets[n]);
			const struct dsec_result *result = ran.result;
			bool known =
				ran.status.code == DSEC_OK ?
					result && (result->reason == DSEC_KILLED ||
						   ran_says(&ran, "here\n")) :
					ran.status.code == DSEC_ABSENT ||
						(ran.status.code == DSEC_FAILED && !ran.started);

			if (!expect(known))
				ran_note(&ran);
		}
		expect(until(5000, !list_has(e->d, id)));
	}
}

static void a_program_that_kills_itself_is_not_called_killed(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran ran = shell_run(e->d, id, "kill -9 $$");

	if (!expect(ran.result && ran.result->reason == DSEC_SIGNAL && ran.result->signal == 9))
		ran_note(&ran);
	sandbox_end(e->d, id);
}

static const struct claim claims[] = {
	CLAIM(a_background_child_does_not_delay_the_result_and_lives_on),
	CLAIM(what_a_background_child_writes_later_is_nobodys_and_harms_nobody),
	CLAIM(background_children_in_every_leaf_refuse_an_exec_until_one_ends),
	CLAIM(two_thousand_orphans_are_reaped),
	CLAIM(a_timeout_kills_every_descendant_and_keeps_what_was_written),
	CLAIM(a_timeout_ends_what_ignores_signals_or_only_stops),
	CLAIM(a_timeout_that_passes_spares_the_next_exec_of_the_leaf),
	CLAIM(sixty_four_run_at_once_and_more_are_refused_with_a_hint),
	CLAIM(a_burst_of_execs_over_many_sandboxes_all_end_well),
	CLAIM(a_destroyed_sandbox_ends_its_execs_as_killed),
	CLAIM(the_death_of_pid_1_ends_its_execs_as_killed_and_the_sandbox),
	CLAIM(execs_that_race_with_the_death_of_pid_1_end_in_a_known_way),
	CLAIM(a_program_that_kills_itself_is_not_called_killed),
};

static const char *const arguments[] = { "--sandboxes-max", "64", "--shards", "2", NULL };
static const struct suite suites[] = {
	SUITE("ends", claims, .arguments = arguments),
	SUITE("ends without BPF", claims, .arguments = arguments, .has_no_bpf = true),
};

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
