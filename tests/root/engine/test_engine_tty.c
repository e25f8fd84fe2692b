/*
 * Programs on terminals, signals to programs and limits of them, as clients see them. One engine
 * for all claims; each makes the sandboxes it needs and ends them.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/engine_session.h"

enum { LOSSES = 40, KEPT = 64 /* EXECS_KEPT_PER_SANDBOX */ };

/* ---- terminals ---- */

static void a_terminal_is_one_stream_and_of_the_size_asked_for(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session s = session_start(
		e, id, "test -t 0 -a -t 1 -a -t 2 || exit 9; stty size; tty; echo err >&2; exit 3");

	expect(session_exited(&s, 3));
	expect(follower_has(&s.out, 1, "24 80\r\n/dev/pts/0\r\nerr\r\n", 24));
	sandbox_end(e->d, id);
}

static void a_new_size_is_seen_and_told(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session s = session_start(
		e, id, "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.1; done");

	expect(session_sees(&s, "ready"));
	expect(session_resize(&s, 50, 132).code == DSEC_OK);
	expect(session_sees(&s, "50 132"));
	expect(session_exited(&s, 0));
	sandbox_end(e->d, id);
}

static void interrupts_end_the_command_and_not_the_shell(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session s = session_start(e, id, NULL);

	expect(session_sees(&s, "# "));
	expect(session_type(&s, "echo beg''in; sleep 1000\n"));
	expect(session_sees(&s, "begin"));
	pause_ms(50); /* for the sleep to have the terminal */
	expect(session_type(&s, "\3"));
	expect(session_sees(&s, "# "));
	expect(session_type(&s, "echo al''ive; exit 4\n"));
	expect(session_sees(&s, "alive"));
	expect(session_exited(&s, 4));
	expect(engine_running(e, "sleep") == 0);
	sandbox_end(e->d, id);
}

static void jobs_are_stopped_and_go_on(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session s = session_start(e, id, NULL);

	expect(session_sees(&s, "# "));
	expect(session_type(&s, "echo beg''in; cat\n"));
	expect(session_sees(&s, "begin"));
	pause_ms(50); /* for cat to have the terminal: the shell's own way with keys is not ours */
	expect(session_type(&s, "first\n"));
	expect(session_sees(&s, "first\r\nfirst\r\n"));
	expect(session_type(&s, "\x1a"));
	expect(session_sees(&s, "Stopped"));
	expect(session_type(&s, "jobs; echo st''ill\n"));
	expect(session_sees(&s, "still"));
	expect(session_type(&s, "fg\n"));
	expect(session_sees(&s, "cat\r\n"));
	pause_ms(50); /* as above */
	expect(session_type(&s, "second\n"));
	expect(session_sees(&s, "second\r\nsecond\r\n"));
	expect(session_type(&s, "\4"));
	expect(session_sees(&s, "# "));
	expect(session_type(&s, "exit 5\n"));
	expect(session_exited(&s, 5));
	sandbox_end(e->d, id);
}

static void the_end_of_input_is_typed(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session s =
		session_start(e, id, "stty -echo; echo ready; cat; echo end");

	expect(session_sees(&s, "ready"));
	expect(session_type(&s, "half a line"));
	expect(session_type(&s, "")); /* the end */
	expect(session_sees(&s, "half a line"));
	expect(session_sees(&s, "end"));
	expect(session_exited(&s, 0));
	sandbox_end(e->d, id);
}

static void without_one_there_is_no_controlling_terminal(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran ran = shell_run(
		e->d, id, "(exec 3<>/dev/tty) 2>&1; test -t 0 -o -t 1 -o -t 2 || echo none");

	expect(ran_exited(&ran, 0));
	expect(ran_output(&ran, 1) && strstr(ran_output(&ran, 1)->head.data, "No such device"));
	expect(strstr(ran_output(&ran, 1)->head.data, "none"));
	sandbox_end(e->d, id);
}

static void a_child_that_keeps_the_terminal_does_not_hold_the_result(struct engine *e)
{
	static const char *const scripts[] = {
		"sleep 1000 & echo said; exit 6",
		"(trap '' HUP; sleep 1000) & echo said; exit 6",
		"setsid sleep 1000 & echo said; exit 6",
		"(trap '' HUP; while :; do echo more 2>/dev/null; sleep 0.01; done) & sleep 0.2;"
		"echo said; exit 6",
	};
	struct dsec_id id = sandbox_make(e->d);

	for (unsigned i = 0; i < sizeof scripts / sizeof *scripts; i++) {
		auto_session struct session s = session_start(e, id, scripts[i]);
		uint64_t begun = now_ms();

		expect(session_exited(&s, 6));
		expect(session_said(&s, "said\r\n"));
		expect(now_ms() - begun < SESSION_ANSWER_MS / 2);
	}
	sandbox_end(e->d, id);
}

static void all_that_was_written_comes(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session s =
		session_start(e, id, "i=0; while [ $i -lt 9999 ]; do echo $i; i=$((i+1)); done");
	static char all[9999 * 7];
	int bytes = 0;

	for (int i = 0; i < 9999; i++)
		bytes += snprintf(all + bytes, sizeof all - (size_t)bytes, "%d\r\n", i);
	expect(session_exited(&s, 0));
	expect(follower_has(&s.out, 1, all, (uint64_t)bytes));
	sandbox_end(e->d, id);
}

static void a_terminal_that_was_left_and_opened_again_is_read_on(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session s = session_start(
		e, id,
		"echo before; exec </dev/null >/dev/null 2>&1; sleep 0.5; exec >/dev/tty;"
		"i=0; while [ $i -lt 30000 ]; do echo $i; i=$((i+1)); done; echo after; exit 3");

	expect(session_exited(&s, 3));
	expect(session_said(&s, "before\r\n0\r\n1\r\n"));
	expect(session_said(&s, "\r\n29998\r\n29999\r\nafter\r\n"));
	sandbox_end(e->d, id);
}

static void hanging_up_ends_what_hangs_on_it(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session s =
		session_start(e, id, "trap 'exit 7' HUP; echo ready; while :; do sleep 0.1; done");

	expect(session_sees(&s, "ready"));
	expect(session_signal(&s, SIGTERM | DSEC_SIGNAL_TERMINAL).code == DSEC_INVALID);
	expect(session_signal(&s, SIGHUP | DSEC_SIGNAL_TERMINAL).code == DSEC_OK);
	expect(session_exited(&s, 7));
	sandbox_end(e->d, id);
}

static void what_has_no_terminal_gets_no_size(struct engine *e)
{
	struct command c = SH("echo; sleep 1000");
	struct dsec_id id = sandbox_make(e->d);
	int64_t ticket = command_start(e->d, id, &c, NULL);
	struct dsec_event *event;
	struct dsec_status status;

	expect(dsec_wait(e->d, ticket, SESSION_ANSWER_MS, &event) == 0 &&
	       event->kind == DSEC_EV_STARTED);
	dsec_event_free(event);
	status = ticket_end(e->d, dsec_resize(e->d, NULL, id, 1, 1u << 16 | 1));
	expect(status.code == DSEC_CONFLICT && !strcmp(status.step, "exec.tty"));
	status = ticket_end(e->d, dsec_signal(e->d, NULL, id, 1, SIGHUP | DSEC_SIGNAL_TERMINAL));
	expect(status.code == DSEC_CONFLICT && !strcmp(status.step, "exec.tty"));
	expect(dsec_resize(e->d, NULL, id, 1, 0) == -EINVAL);
	sandbox_end(e->d, id);
	auto_ran struct ran ran = command_wait(e->d, ticket);
}

/* E21 */
static void a_sandbox_that_holds_all_its_terminals_hurts_itself_only(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d), other = sandbox_make(e->d);
	auto_ran struct ran ran =
		shell_run(e->d, id,
			  "i=0; while [ $i -lt 70 ]; do sleep 1000 3<>/dev/ptmx & i=$((i+1)); done "
			  "2>/dev/null; sleep 1; ls /dev/pts | wc -l");
	auto_session struct session full = session_start(e, id, "echo no");
	struct dsec_status status;
	auto_session struct session neighbour = session_start(e, other, "tty");

	expect(ran_says(&ran, "65\n")); /* with ptmx */
	session_ends(&full);
	status = session_status(&full);
	expect(status.code == DSEC_FAILED && status.blame == DSEC_BLAME_GUEST);
	expect(status.error == EDQUOT && !strcmp(status.step, "tty"));
	expect(full.out.result && full.out.result->reason == DSEC_NOT_STARTED &&
	       full.out.result->exit_code == 126);
	expect(session_exited(&neighbour, 0) && session_said(&neighbour, "/dev/pts/0"));
	sandbox_end(e->d, id);
	sandbox_end(e->d, other);
}

/* ---- signals ---- */

static void a_signal_is_for_the_main_process(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session s =
		session_start(e, id, "trap 'echo got; exit 8' USR1; sleep 1000 & echo ready; wait");

	expect(session_sees(&s, "ready"));
	expect(session_signal(&s, SIGUSR1).code == DSEC_OK);
	expect(session_sees(&s, "got"));
	expect(session_exited(&s, 8));
	expect(session_signal(&s, SIGUSR1).code == DSEC_CONFLICT);
	sandbox_end(e->d, id);
}

static void a_signal_for_all_reaches_other_sessions(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session s = session_start(
		e, id,
		"setsid sleep 1000 & setsid sh -c 'sleep 1000; :' & echo ready; sleep 1000; :");

	expect(session_sees(&s, "ready"));
	expect(until(5000, engine_running(e, "sleep") == 3));
	expect(session_signal(&s, SIGTERM | DSEC_SIGNAL_ALL).code == DSEC_OK);
	session_ends(&s);
	expect(s.out.result && s.out.result->reason == DSEC_SIGNAL &&
	       s.out.result->signal == SIGTERM);
	expect(until(5000, engine_running(e, "sleep") == 0));
	sandbox_end(e->d, id);
}

static void killing_all_is_the_end_of_it(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session s = session_start(
		e, id,
		"trap '' TERM HUP; setsid sleep 1000 & echo ready; while :; do sleep 1; done");

	expect(session_sees(&s, "ready"));
	expect(session_signal(&s, SIGKILL | DSEC_SIGNAL_ALL).code == DSEC_OK);
	session_ends(&s);
	expect(s.out.result && s.out.result->reason == DSEC_KILLED);
	expect(until(5000, engine_running(e, "sleep") == 0));
	sandbox_end(e->d, id);
}

static void what_never_ran_is_told_from_what_has_ended_or_is_forgotten(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct session s = { .d = e->d, .id = id, .out.exec = 1 };
	struct dsec_status status = session_signal(&s, SIGTERM);

	expect(status.code == DSEC_ABSENT && status.error == ENOENT);
	auto_ran struct ran ran = shell_run(e->d, id, "exit 0");

	status = session_signal(&s, SIGTERM);
	expect(ran_exited(&ran, 0));
	expect(status.code == DSEC_CONFLICT && !strcmp(status.step, "exec.ended"));
	for (unsigned i = 0; i < KEPT; i++) { /* as many as are kept: then the first is not */
		auto_ran struct ran more = shell_run(e->d, id, "exit 0");

		expect(ran_exited(&more, 0));
	}
	status = session_signal(&s, SIGTERM);
	expect(status.code == DSEC_ABSENT && status.error == ESTALE);
	expect(dsec_signal(e->d, NULL, id, 1, 0) == -EINVAL);
	expect(dsec_signal(e->d, NULL, id, 1, 65) == -EINVAL);
	sandbox_end(e->d, id);
	expect(session_signal(&s, SIGTERM).code == DSEC_ABSENT);
}

/* E36 */
static void a_sandbox_can_stop_and_kill_its_own_and_nothing_of_ours(struct engine *e)
{
	static const char *const scripts[] = {
		"kill -STOP 1; kill -KILL 1; kill -TERM 1; kill -HUP 1; echo tried",
		"kill -STOP -1",
		"kill -9 -1",
		"stty -echo; kill -STOP 0",
	};
	struct dsec_id id = sandbox_make(e->d);

	for (unsigned i = 0; i < sizeof scripts / sizeof *scripts; i++) {
		auto_session struct session s = session_start(e, id, scripts[i]);

		pause_ms(100);					     /* for it to try */
		(void)session_signal(&s, SIGKILL | DSEC_SIGNAL_ALL); /* or it has ended */
		session_ends(&s);
		auto_ran struct ran ran = shell_run(e->d, id, "echo well");

		expect(ran_says(&ran, "well\n"));
	}
	sandbox_end(e->d, id);
}

/* ---- limits ---- */

static struct ran limited_run(struct engine *e, struct dsec_id id, const char *script,
			      struct dsec_rlimit limit)
{
	const char *const words[] = { "/bin/sh", "-c", script };
	struct dsec_bytes argv[3];
	struct dsec_exec_opts opts = {
		.size = sizeof opts,
		.flags = DSEC_EXEC_CAPTURE,
		.argv = argv,
		.argc = 3,
		.rlimits = &limit,
		.rlimit_count = 1,
	};

	for (unsigned i = 0; i < 3; i++)
		argv[i] = (struct dsec_bytes){ words[i], strlen(words[i]) };
	return command_wait(e->d, dsec_exec(e->d, NULL, id, &opts));
}

static void limits_are_the_programs(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran files =
		limited_run(e, id, "ulimit -Sn; ulimit -Hn", (struct dsec_rlimit){ 7, 0, 33, 44 });
	auto_ran struct ran usual = shell_run(e->d, id, "ulimit -Sn; ulimit -Hc");
	auto_ran struct ran size = limited_run(e, id, "head -c 5000 /dev/zero >/tmp/x",
					       (struct dsec_rlimit){ 1, 0, 4096, 4096 });

	expect(ran_says(&files, "33\n44\n"));
	expect(ran_says(&usual, "1024\n0\n"));
	expect(!ran_exited(&size, 0));
	sandbox_end(e->d, id);
}

static void a_limit_that_cannot_be_is_named(struct engine *e)
{
	static const struct {
		struct dsec_rlimit limit;
		uint32_t code;
		const char *step;
	} cases[] = {
		{ { 7, 0, 10, 1ull << 40 }, DSEC_DENIED, "limit.nofile" },
		{ { 7, 0, 2, 1 }, DSEC_INVALID, "limit.nofile" },
		{ { 16, 0, 1, 1 }, DSEC_INVALID, "limit.resource" },
		{ { 7, 1, 1, 1 }, DSEC_INVALID, "limit.resource" },
	};
	struct dsec_id id = sandbox_make(e->d);

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		auto_ran struct ran ran = limited_run(e, id, "echo ran", cases[i].limit);

		if (!expect(ran.status.code == cases[i].code &&
			    !strcmp(ran.status.step, cases[i].step)))
			note("%u: code %u at \"%s\"", i, ran.status.code, ran.status.step);
	}
	sandbox_end(e->d, id);
}

/* ---- while workers are lost ---- */

static void workers_kill(const struct engine *e)
{
	pid_t workers[16];
	unsigned count = engine_workers(e, workers, 16);

	for (unsigned i = 0; i < count && i < 16; i++)
		(void)kill(workers[i],
			   SIGKILL); /* the engine's, which may have reaped it: a test */
}

static void a_lost_worker_leaves_no_leaf_frozen_and_no_terminal_behind(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	unsigned sent = 0, fds;
	auto_session struct session s = session_start(
		e, id,
		"trap ':' USR1; for i in 1 2 3 4 5 6; do (trap '' USR1; exec sleep 1000) & done;"
		"echo ready; while :; do read x && echo \"got $x\"; done");

	expect(session_sees(&s, "ready"));
	fds = process_fd_count(engine_pid(e));
	for (unsigned i = 0; i < LOSSES; i++) {
		int64_t signal = dsec_signal(e->d, NULL, id, 1, SIGUSR1 | DSEC_SIGNAL_ALL);
		int64_t resize = dsec_resize(e->d, NULL, id, 1, (20 + i) << 16 | 80);

		if (i % 2)
			workers_kill(e);
		sent += ticket_end(e->d, signal).code == DSEC_OK;
		(void)ticket_end(e->d, resize); /* it may be lost with its worker */
	}
	note("%u of %u signals were sent", sent, LOSSES);
	expect(sent > 0);
	expect(session_type(&s, "it\n"));
	expect(session_sees(&s, "got it")); /* not frozen */
	expect(until(5000, process_fd_count(engine_pid(e)) <= fds));
	for (unsigned i = 0; i < LOSSES; i++) {
		auto_session struct session other = session_start(e, id, "tty; exit 9");

		if (i % 2)
			workers_kill(e);
		(void)session_ends(&other); /* it may be lost with its worker */
	}
	expect(session_signal(&s, SIGKILL | DSEC_SIGNAL_ALL).code == DSEC_OK);
	expect(session_ends(&s));
	expect(until(5000, process_fd_count(engine_pid(e)) <= fds));
	sandbox_end(e->d, id);
}

static const struct claim hurt_claims[] = {
	CLAIM(a_lost_worker_leaves_no_leaf_frozen_and_no_terminal_behind),
};

static const struct claim claims[] = {
	CLAIM(a_terminal_is_one_stream_and_of_the_size_asked_for),
	CLAIM(a_new_size_is_seen_and_told),
	CLAIM(interrupts_end_the_command_and_not_the_shell),
	CLAIM(jobs_are_stopped_and_go_on),
	CLAIM(the_end_of_input_is_typed),
	CLAIM(without_one_there_is_no_controlling_terminal),
	CLAIM(a_child_that_keeps_the_terminal_does_not_hold_the_result),
	CLAIM(all_that_was_written_comes),
	CLAIM(a_terminal_that_was_left_and_opened_again_is_read_on),
	CLAIM(hanging_up_ends_what_hangs_on_it),
	CLAIM(what_has_no_terminal_gets_no_size),
	CLAIM(a_sandbox_that_holds_all_its_terminals_hurts_itself_only),
	CLAIM(a_signal_is_for_the_main_process),
	CLAIM(a_signal_for_all_reaches_other_sessions),
	CLAIM(killing_all_is_the_end_of_it),
	CLAIM(what_never_ran_is_told_from_what_has_ended_or_is_forgotten),
	CLAIM(a_sandbox_can_stop_and_kill_its_own_and_nothing_of_ours),
	CLAIM(limits_are_the_programs),
	CLAIM(a_limit_that_cannot_be_is_named),
};

static const char *const arguments[] = { "--sandboxes-max", "64", "--shards", "2", NULL };
static const struct suite suites[] = {
	SUITE("terminals", claims, .arguments = arguments),
	SUITE("terminals, hurt", hurt_claims, .arguments = arguments, .is_hurt = true),
};

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
