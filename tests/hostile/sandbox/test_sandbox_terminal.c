/*
 * Sandboxes at terminals: another exec's, and their own, whose master the engine holds. What one
 * does to its terminal must reach neither its neighbours nor the engine's shards.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/engine_image.h"
#include "tests/root/engine/engine_session.h"

enum { RESIZES = 200 };

static struct command attack_of(const char *what, const char *argument, const char *user)
{
	return (struct command){ .argv = { "attack", what, argument }, .user = user };
}

static void the_terminal_of_another_exec_is_not_typed_to_taken_or_hung_up(struct engine *e)
{
	const struct command as_root = attack_of("steal-terminal", "/dev/pts/0", NULL);
	const struct command as_other = attack_of("steal-terminal", "/dev/pts/0", "agent");
	struct dsec_id id = sandbox_make(e->d), neighbour = sandbox_make(e->d);
	auto_session struct session victim = session_start(e, id, NULL);

	expect(session_sees(&victim, "# "));
	auto_ran struct ran root = command_run(e->d, id, &as_root);
	auto_ran struct ran other = command_run(e->d, id, &as_other);
	auto_ran struct ran outside = command_run(e->d, neighbour, &as_root);

	if (!expect(ran_says(&root, "done\n")))
		ran_note(&root);
	expect(ran_says(&other, "closed\n"));
	expect(ran_says(&outside, "ENOENT\n")); /* each sandbox has its own */
	expect(session_type(&victim, "tty; exit 3\n"));
	expect(session_sees(&victim, "/dev/pts/0"));
	expect(session_exited(&victim, 3));
	sandbox_end(e->d, id);
	sandbox_end(e->d, neighbour);
}

static void masters_that_a_sandbox_holds_get_nothing_of_an_execs_terminal(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session holder = session_start(
		e, id, "exec 3<>/dev/ptmx; stty -echo; echo holds; head -c 1 <&3; echo got");
	auto_session struct session other = { .out.ticket = -1 };

	expect(session_sees(&holder, "holds"));
	other = session_start(e, id, "tty; read x; echo \"$x\"; sleep 0.3");
	expect(session_sees(&other, "/dev/pts/2"));
	expect(session_type(&other, "secret\n"));
	expect(session_exited(&other, 0));
	expect(!session_said(&holder, "got"));
	expect(session_signal(&holder, SIGKILL | DSEC_SIGNAL_ALL).code == DSEC_OK);
	expect(session_ends(&holder));
	sandbox_end(e->d, id);
}

static void who_wrestles_with_its_terminal_holds_nobody_up(struct engine *e)
{
	static const char *const words[] = { "attack", "wrestle-terminal", NULL };
	struct dsec_id id = sandbox_make(e->d), neighbour = sandbox_make(e->d);
	uint64_t slow = holdings_now(e->d).callbacks_over_1ms, begun_ms;
	auto_session struct session s = session_of(e, id, words);
	double worst_ms = 0;

	expect(session_sees(&s, "wrestling"));
	for (unsigned i = 0; i < RESIZES; i++) {
		struct dsec_status status = session_resize(&s, 1 + i, 80);

		if (!expect(status.code == DSEC_OK))
			note("resize %u: code %u error %d", i, status.code, status.error);
		if (i % 10)
			continue;
		auto_ran struct ran ran = shell_run(e->d, neighbour, "echo fine");

		expect(ran_says(&ran, "fine\n"));
		worst_ms = ran.ms > worst_ms ? ran.ms : worst_ms;
		while (follower_step(&s.out, 0)) /* as a person would look at it */
			;
	}
	expect(session_type(&s, "typed\n"));
	begun_ms = now_ms();
	expect(session_signal(&s, SIGKILL | DSEC_SIGNAL_ALL).code == DSEC_OK);
	expect(session_ends(&s));
	expect(s.out.result && s.out.result->reason == DSEC_KILLED);
	slow = holdings_now(e->d).callbacks_over_1ms - slow;
	note("a neighbour's command took %.1f ms at worst, %llu callbacks of the engine over 1 ms, "
	     "its end %llu ms",
	     worst_ms, (unsigned long long)slow, (unsigned long long)(now_ms() - begun_ms));
	expect(now_ms() - begun_ms < held_up_ms());
	expect(worst_ms < (double)held_up_ms());
	sandbox_end(e->d, id);
	sandbox_end(e->d, neighbour);
}

static void a_wrestler_is_hung_up_like_anybody(struct engine *e)
{
	static const char *const words[] = { "attack", "wrestle-terminal", NULL };
	struct dsec_id id = sandbox_make(e->d);
	auto_session struct session s = session_of(e, id, words);

	expect(session_sees(&s, "wrestling"));
	expect(session_signal(&s, SIGHUP | DSEC_SIGNAL_TERMINAL).code == DSEC_OK);
	expect(session_signal(&s, SIGTERM).code == DSEC_OK); /* it ignores the hang-up */
	expect(session_ends(&s));
	auto_ran struct ran ran = shell_run(e->d, id, "echo well");

	expect(ran_says(&ran, "well\n"));
	sandbox_end(e->d, id);
}

static const struct claim claims[] = {
	CLAIM(the_terminal_of_another_exec_is_not_typed_to_taken_or_hung_up),
	CLAIM(masters_that_a_sandbox_holds_get_nothing_of_an_execs_terminal),
	CLAIM(who_wrestles_with_its_terminal_holds_nobody_up),
	CLAIM(a_wrestler_is_hung_up_like_anybody),
};

static const char *const arguments[] = { "--sandboxes-max", "16", "--shards", "2", NULL };
static const struct suite suites[] = { SUITE("terminal", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	image_add(ATTACK_PATH, "attack");
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
