/*
 * How long programs may run and be silent, how they are ended, and those that nobody waits for. One
 * engine for all claims; each makes the sandboxes it needs and ends them.
 */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_follow.h"
#include "tests/root/engine/engine_harness.h"

enum { WAIT_MS = 20000 };

static bool ended_for(const struct ran *ran, uint32_t reason)
{
	if (ran->status.code == DSEC_OK && ran->result && ran->result->reason == reason)
		return true;
	ran_note(ran);
	return false;
}

/* ---- times ---- */

static void a_silent_program_ends_by_its_own_reason_and_keeps_what_it_wrote(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct command silent = SH("echo a; sleep 9"), busy = silent, both = silent;

	silent.idle_timeout_ms = longer(300);
	silent.timeout_ms = 30000;
	auto_ran struct ran first = command_run(e->d, id, &silent);

	expect(ended_for(&first, DSEC_IDLE_TIMEOUT));
	expect(ran_wrote(&first, 1, "a\n", 2) && first.ms >= 300 && first.ms < longer(5000));
	/* One that writes now and then, to either stream, is not silent. */
	busy = (struct command)SH("for i in 1 2 3 4 5 6 7; do sleep 0.15; echo $i; sleep 0.15;"
				  "echo $i >&2; done");
	busy.idle_timeout_ms = longer(1500);
	auto_ran struct ran second = command_run(e->d, id, &busy);

	expect(ran_exited(&second, 0));
	both.timeout_ms = longer(300);
	both.idle_timeout_ms = longer(5000);
	auto_ran struct ran third = command_run(e->d, id, &both);

	expect(ended_for(&third, DSEC_TIMEOUT));
	expect(ran_wrote(&third, 1, "a\n", 2));
	sandbox_end(e->d, id);
}

static void a_program_whose_reader_stops_is_not_called_silent(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct command c = SH("head -c 300000 /dev/zero; exit 6");
	struct dsec_event *event = NULL;
	int64_t ticket;

	c.flags = DSEC_EXEC_STREAM;
	c.idle_timeout_ms = 800;
	ticket = command_start(e->d, id, &c, NULL);
	/* Nothing is freed for three times as long. */
	expect(dsec_wait(e->d, ticket, WAIT_MS, &event) == 0);
	pause_ms(2400);
	dsec_event_free(event);
	auto_follower struct follower f = follower_of(e->d, ticket);

	if (!expect(follower_to_end(&f, WAIT_MS) && f.result && f.result->reason == DSEC_EXIT))
		note("reason %u, %llu bytes, wrong offset %d", f.result ? f.result->reason : 99,
		     (unsigned long long)f.streams[0].next, f.wrong_offset);
	expect(f.result && f.result->exit_code == 6 && f.streams[0].next == 300000);
	sandbox_end(e->d, id);
}

static void kill_after_lets_a_program_end_and_takes_what_it_left(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct command c = SH("trap 'echo bye; exit 5' TERM; setsid sleep 300 & while :; do "
			      "sleep 0.02; done");
	pid_t pids[8];

	c.timeout_ms = 200;
	c.kill_after_ms = 10000;
	auto_ran struct ran polite = command_run(e->d, id, &c);

	expect(ended_for(&polite, DSEC_TIMEOUT));
	expect(polite.result && polite.result->exit_code == 5 && polite.ms < longer(5000));
	expect(ran_wrote(&polite, 1, "bye\n", 4));
	/* What it left: the long sleep, and maybe a short one. */
	expect(polite.result && polite.result->processes_killed >= 1 &&
	       polite.result->processes_killed <= 2);
	expect(engine_members(e, pids, 8) == 1);
	/* One that does not listen is killed, not before its time. */
	c = (struct command)SH("trap '' TERM; echo deaf; while :; do sleep 0.02; done");
	c.timeout_ms = 100;
	c.kill_after_ms = 400;
	auto_ran struct ran deaf = command_run(e->d, id, &c);

	expect(ended_for(&deaf, DSEC_TIMEOUT));
	expect(deaf.result && deaf.result->signal == 9 && deaf.ms >= 500 && deaf.ms < longer(5000));
	expect(engine_members(e, pids, 8) == 1);
	sandbox_end(e->d, id);
}

static uint64_t bytes_written(const struct ran *ran)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; ran->result && i < ran->result->output_count; i++)
		bytes += ran->result->outputs[i].total_bytes;
	return bytes;
}

/* What it has beyond is what was on its way: a read of each stream, and what their pipes hold. */
static void over_its_output_limit_a_program_and_all_it_started_is_killed(struct engine *e)
{
	enum { LIMIT = 200000, ON_ITS_WAY = 2 * ((16 << 10) + (64 << 10)) };
	static const uint32_t flags[] = { 0, DSEC_EXEC_STREAM | DSEC_EXEC_CAPTURE, DSEC_EXEC_TTY };
	struct dsec_id id = sandbox_make(e->d);
	pid_t pids[8];

	for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
		struct command c = SH("trap '' TERM HUP; setsid yes >&2 & yes; exit 3");

		c.output_limit_bytes = LIMIT;
		c.flags = flags[i];
		auto_ran struct ran ran = command_run(e->d, id, &c);
		const struct dsec_output *out = ran_output(&ran, 1);

		expect(ended_for(&ran, DSEC_OUTPUT_LIMIT) && ran.result->signal == 9);
		if (!expect(bytes_written(&ran) > LIMIT &&
			    bytes_written(&ran) <= LIMIT + ON_ITS_WAY))
			note("%llu bytes", (unsigned long long)bytes_written(&ran));
		expect(out && out->head.bytes > 1000 && !memcmp(out->head.data, "y", 1));
		expect(engine_members(e, pids, 8) == 1);
	}
	sandbox_end(e->d, id);
}

/* To the byte, over both streams, and however quick it is to end; an exec's own wins. */
static void an_output_limit_is_the_execs_or_else_its_sandboxs(struct engine *e)
{
	static const struct {
		const char *script;
		uint64_t limit_bytes;
		uint32_t reason;
	} rows[] = {
		{ "printf 12345; printf 67890 >&2", 0, DSEC_EXIT },
		{ "printf 123456; printf 67890 >&2", 0, DSEC_OUTPUT_LIMIT },
		{ "printf 12", 2, DSEC_EXIT },
		{ "printf 12; printf 3 >&2", 2, DSEC_OUTPUT_LIMIT },
		{ "printf 12345678901", 11, DSEC_EXIT },
		{ "head -c 3000000 /dev/zero", UINT64_MAX, DSEC_EXIT },
	};
	struct dsec_create_opts opts = create_opts(1);

	opts.output_limit_bytes = 10;
	auto_made struct made made = create_run(e->d, &opts);

	if (!expect(made.created == 1))
		return;
	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct command c = SH(rows[i].script);

		c.output_limit_bytes = rows[i].limit_bytes;
		auto_ran struct ran ran = command_run(e->d, made.ids[0], &c);

		if (!expect(ended_for(&ran, rows[i].reason)))
			note("%s: %llu bytes", c.argv[2], (unsigned long long)bytes_written(&ran));
	}
	struct command wrong = SH(":");

	wrong.output_limit_bytes = 1ull << 50;
	auto_ran struct ran ran = command_run(e->d, made.ids[0], &wrong);

	expect(ran.status.code == DSEC_INVALID && !strcmp(ran.status.step, "exec.output_limit"));
	sandbox_end(e->d, made.ids[0]);
}

static void impossible_times_are_refused_by_field(struct engine *e)
{
	static const struct {
		uint32_t timeout_ms, idle_timeout_ms, kill_after_ms;
		const char *step;
	} rows[] = {
		{ UINT32_MAX, 0, 0, "exec.timeout" },
		{ 24 * 3600 * 1000 + 1, 0, 0, "exec.timeout" },
		{ 1u << 31, 0, 0, "exec.timeout" },
		{ 0, UINT32_MAX, 0, "exec.idle_timeout" },
		{ 0, 0, UINT32_MAX, "exec.kill_after" },
		{ 0, 0, 600 * 1000 + 1, "exec.kill_after" },
	};
	struct dsec_id id = sandbox_make(e->d);

	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct command c = SH(":");

		c.timeout_ms = rows[i].timeout_ms;
		c.idle_timeout_ms = rows[i].idle_timeout_ms;
		c.kill_after_ms = rows[i].kill_after_ms;
		auto_ran struct ran ran = command_run(e->d, id, &c);

		if (!expect(ran.status.code == DSEC_INVALID && ran.status.error == ERANGE &&
			    !strcmp(ran.status.step, rows[i].step)))
			ran_note(&ran);
	}
	sandbox_end(e->d, id);
}

/* What the same program takes to start and to end without us, on this machine and just now. */
static double spawn_ms(void)
{
	char name[] = "true", *const argv[] = { name, NULL };
	const double begun_ms = clock_ms();
	int status = -1;
	pid_t pid;

	expect(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0 &&
	       waitpid(pid, &status, 0) == pid && status == 0);
	return clock_ms() - begun_ms;
}

/* The quickest of many, both: others use this machine, too. */
static void an_exec_takes_little_more_than_its_program(struct engine *e)
{
	enum { ROUNDS = 200, TIMES = 4 };
	struct dsec_id id = sandbox_make(e->d);
	const struct command c = { .argv = { "true" } };
	double exec_ms = WAIT_MS, bare_ms = WAIT_MS;

	for (int i = 0; i < ROUNDS; i++) {
		const double spawned_ms = spawn_ms();
		auto_ran struct ran ran = command_run(e->d, id, &c);

		expect(ran_exited(&ran, 0));
		bare_ms = spawned_ms < bare_ms ? spawned_ms : bare_ms;
		exec_ms = ran.ms < exec_ms ? ran.ms : exec_ms;
	}
	note("of %d: %.2f ms in a sandbox, %.2f without", ROUNDS, exec_ms, bare_ms);
	expect(exec_ms <= TIMES * bare_ms);
	sandbox_end(e->d, id);
}

/* ---- programs that nobody waits for ---- */

static struct ran detach(struct engine *e, struct dsec_id id, const char *script)
{
	struct command c = SH(script);

	c.flags = DSEC_EXEC_DETACH;
	return command_run(e->d, id, &c);
}

static void a_detached_program_runs_on_and_is_followed_to_its_end(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran ran = detach(e, id, "echo begun; sleep 1; echo ended; exit 9");

	expect(ended_for(&ran, DSEC_RUNNING) && ran.started);
	auto_follower struct follower f =
		follower_attach(e->d, id, ran.event ? ran.event->exec : 0, 0, 0);

	expect(follower_to_end(&f, WAIT_MS) && f.result && f.result->exit_code == 9);
	expect(follower_has(&f, 1, "begun\nended\n", 12));
	sandbox_end(e->d, id);
}

static void a_detached_program_that_cannot_start_says_so(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct command c = { .argv = { "nosuch" }, .flags = DSEC_EXEC_DETACH };
	auto_ran struct ran ran = command_run(e->d, id, &c);

	expect(ran.status.code == DSEC_FAILED && ran.result &&
	       ran.result->reason == DSEC_NOT_STARTED && ran.result->exit_code == 127);
	c = (struct command){ .argv = { "true" }, .flags = DSEC_EXEC_DETACH | DSEC_EXEC_CAPTURE };
	expect(command_try(e->d, id, &c, NULL) == -EINVAL);
	sandbox_end(e->d, id);
}

/* ---- lists ---- */

static bool bytes_are(struct dsec_bytes bytes, const char *text)
{
	return bytes.bytes == strlen(text) && !memcmp(bytes.data, text, bytes.bytes);
}

struct listed {
	unsigned rows, running, wrong;
	uint64_t last;
};

/* Each has said what its number is. */
static void row_note(struct listed *listed, const struct dsec_exec_row *row)
{
	char number[32];

	(void)snprintf(number, sizeof number, "N=%u", (unsigned)row->exec);
	listed->wrong += row->exec <= listed->last || row->argc != 3 ||
			 !bytes_are(row->argv[0], "/bin/sh") || !row->env_count ||
			 !bytes_are(row->env[0], number) || !bytes_are(row->cwd, "/usr") ||
			 !bytes_are(row->user, "1000") || row->truncated;
	listed->wrong += row->reason != DSEC_RUNNING && row->exit_code != (int)row->exec;
	listed->running += row->reason == DSEC_RUNNING;
	listed->last = row->exec;
	listed->rows++;
}

static struct listed list_execs(struct engine *e, struct dsec_id id, uint64_t after)
{
	struct dsec_list_opts opts = { .size = sizeof opts,
				       .what = DSEC_LIST_EXECS,
				       .sandbox = id,
				       .after = { id.hi, after } };
	int64_t ticket = dsec_list(e->d, NULL, &opts);
	struct listed listed = { .last = after };
	struct dsec_event *event;
	bool last = false;

	while (!last && expect(dsec_wait(e->d, ticket, WAIT_MS, &event) == 0)) {
		last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_ROW && event->body)
			row_note(&listed, event->body);
		listed.wrong += last && event->status.code != DSEC_OK;
		dsec_event_free(event);
	}
	return listed;
}

static void execs_are_listed_with_all_they_were_started_with(struct engine *e)
{
	enum { ENDED = 5, RUNNING = 3 };
	struct dsec_id id = sandbox_make(e->d);
	struct listed all, some;

	for (int i = 1; i <= ENDED + RUNNING; i++) {
		struct command c = { .argv = { "/bin/sh", "-c", "exit $N" },
				     .cwd = "/usr",
				     .user = "1000" };
		char number[32];

		(void)snprintf(number, sizeof number, "N=%d", i);
		c.env[0] = number;
		if (i > ENDED) {
			c.argv[2] = "sleep 60";
			c.flags = DSEC_EXEC_DETACH;
		}
		auto_ran struct ran ran = command_run(e->d, id, &c);

		expect(ran.result && ran.result->exec == (uint64_t)i);
	}
	all = list_execs(e, id, 0);
	expect(all.rows == ENDED + RUNNING && all.running == RUNNING && !all.wrong);
	some = list_execs(e, id, 4);
	expect(some.rows == ENDED + RUNNING - 4 && some.running == RUNNING && !some.wrong);
	sandbox_end(e->d, id);
	expect(list_execs(e, id, 0).wrong == 1); /* no such sandbox */
}

/* Half a megabyte of arguments must not become a row that no client can take. */
static void a_row_of_huge_arguments_is_cut_and_says_so(struct engine *e)
{
	static char big[60000];
	struct dsec_id id = sandbox_make(e->d);
	struct command c = { .argv = { "/bin/sh", "-c", ":", big } };
	struct dsec_list_opts opts = { .size = sizeof opts,
				       .what = DSEC_LIST_EXECS,
				       .sandbox = id };
	struct dsec_event *event;

	memset(big, 'a', sizeof big - 1);
	auto_ran struct ran ran = command_run(e->d, id, &c);

	expect(ran_exited(&ran, 0));
	int64_t ticket = dsec_list(e->d, NULL, &opts);

	if (expect(dsec_wait(e->d, ticket, WAIT_MS, &event) == 0)) {
		const struct dsec_exec_row *row = event->body;

		expect(row && row->truncated && row->argc == 3 && row->env_count == 1);
		dsec_event_free(event);
		expect(ticket_end(e->d, ticket).code == DSEC_OK);
	}
	sandbox_end(e->d, id);
}

static const struct claim claims[] = {
	CLAIM(a_silent_program_ends_by_its_own_reason_and_keeps_what_it_wrote),
	CLAIM(a_program_whose_reader_stops_is_not_called_silent),
	CLAIM(kill_after_lets_a_program_end_and_takes_what_it_left),
	CLAIM(over_its_output_limit_a_program_and_all_it_started_is_killed),
	CLAIM(an_output_limit_is_the_execs_or_else_its_sandboxs),
	CLAIM(impossible_times_are_refused_by_field),
	CLAIM(an_exec_takes_little_more_than_its_program),
	CLAIM(a_detached_program_runs_on_and_is_followed_to_its_end),
	CLAIM(a_detached_program_that_cannot_start_says_so),
	CLAIM(execs_are_listed_with_all_they_were_started_with),
	CLAIM(a_row_of_huge_arguments_is_cut_and_says_so),
};

static const char *const arguments[] = { "--sandboxes-max", "64", "--shards", "2", NULL };
static const struct suite suites[] = {
	SUITE("times", claims, .arguments = arguments),
	SUITE("times without BPF", claims, .arguments = arguments, .has_no_bpf = true),
};

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
