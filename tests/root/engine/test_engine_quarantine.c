/*
 * What does not end: a sandbox whose PID 1 cannot be reaped, a program that no signal ends, a
 * worker that hangs at any step of a create. Everything has its deadline, is told by name, and
 * gives back what it held.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/slowness.h"

enum { DESTROY_MS = 10000, EXEC_MS = 5500, SLACK_MS = 5000, RETRY_MS = 5000 };

/* The one PID 1 that is not among `before`. */
static pid_t init_new(struct engine *e, const pid_t *before, unsigned had)
{
	pid_t inits[64];
	unsigned count = engine_inits(e, inits, 64);

	for (unsigned i = 0; i < count; i++) {
		bool is_new = true;

		for (unsigned k = 0; k < had; k++)
			is_new &= inits[i] != before[k];
		if (is_new)
			return inits[i];
	}
	return -1;
}

/* A tracer on the host keeps the dead from being reaped, as an unkillable child would. */
static struct dsec_id undead_make(struct engine *e, pid_t *ret_pid)
{
	pid_t before[64];
	unsigned had = engine_inits(e, before, 64);
	struct dsec_id id = sandbox_make(e->d);

	*ret_pid = init_new(e, before, had);
	expect(*ret_pid > 0 && ptrace(PTRACE_SEIZE, *ret_pid, NULL, NULL) == 0);
	return id;
}

static void undead_release(pid_t pid)
{
	int status;

	expect(waitpid(pid, &status, __WALL) == pid && WIFSIGNALED(status));
}

static uint32_t state_of(struct dsec *d, struct dsec_id id)
{
	int64_t ticket = dsec_inspect(d, NULL, id);
	struct dsec_event *event;
	uint32_t state = 0;

	if (!expect(ticket >= 0) || !expect(dsec_wait(d, ticket, -1, &event) == 0))
		return 0;
	if (event->body)
		state = ((const struct dsec_inspected *)event->body)->state;
	dsec_event_free(event);
	return state;
}

static bool is_quarantine(const struct dsec_status *s)
{
	if (s->code == DSEC_FAILED && s->blame == DSEC_BLAME_PLATFORM &&
	    !strcmp(s->step, "destroy.quarantine"))
		return true;
	note("code %u at \"%s\": %s", s->code, s->step, s->detail);
	return false;
}

static void what_cannot_be_ended_is_quarantined_and_said_so(struct engine *e)
{
	struct dsec_id neighbour = sandbox_make(e->d), id;
	double begun_ms = clock_ms();
	struct dsec_status s;
	pid_t pid;

	id = undead_make(e, &pid);
	s = sandboxes_end(e->d, &id, 1);
	expect(is_quarantine(&s));
	if (!expect(clock_ms() - begun_ms < DESTROY_MS + (double)longer(SLACK_MS)))
		note("%.0f ms", clock_ms() - begun_ms);
	expect(state_of(e->d, id) == DSEC_STATE_QUARANTINED && list_has(e->d, id));
	expect(holdings_now(e->d).quarantined == 1);
	/* Delete is legal still, and answered at once. */
	begun_ms = clock_ms();
	s = sandboxes_end(e->d, &id, 1);
	expect(is_quarantine(&s) && clock_ms() - begun_ms < (double)held_up_ms());
	/* Nobody else is touched, and its slot is nobody's. */
	for (unsigned i = 0; i < fewer(20, 4); i++) {
		struct dsec_id other = sandbox_make(e->d);
		auto_ran struct ran ran = shell_run(e->d, other, "echo fine");
		auto_ran struct ran next = shell_run(e->d, neighbour, "echo fine");

		expect(ran_says(&ran, "fine\n") && ran_says(&next, "fine\n"));
		sandbox_end(e->d, other);
	}
	/* Gone as soon as it can be, without being asked again. */
	undead_release(pid);
	expect(until(RETRY_MS + longer(SLACK_MS), state_of(e->d, id) == DSEC_STATE_ENDED));
	expect(holdings_now(e->d).quarantined == 0 && !list_has(e->d, id));
	sandbox_end(e->d, neighbour);
}

/* Stops where it would end, and no signal ends that: as in a system call that does not return. */
static pid_t unkillable_make(struct engine *e, const char *name)
{
	pid_t pids[8];
	unsigned count = engine_named(e, name, pids, 8);

	for (unsigned i = 0; i < count && i < 8; i++)
		if (ptrace(PTRACE_SEIZE, pids[i], NULL, PTRACE_O_TRACEEXIT) == 0)
			return pids[i];
	return -1;
}

static void unkillable_release(pid_t pid)
{
	int status;

	expect(waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status) &&
	       ptrace(PTRACE_DETACH, pid, NULL, NULL) == 0);
}

static bool ends_undying(const struct ran *ran, uint32_t reason)
{
	if (ran->status.code == DSEC_FAILED && ran->status.blame == DSEC_BLAME_PLATFORM &&
	    !strcmp(ran->status.step, "exec.kill") && ran->result &&
	    ran->result->reason == reason && ran_wrote(ran, 1, "a\n", 2))
		return true;
	ran_note(ran);
	return false;
}

static void an_exec_that_does_not_die_is_told_and_quarantines_its_sandbox(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct command c = SH("echo a; exec sleep 1000"), fed = SH("echo a; exec sleep 999");
	int64_t timed, taken;
	struct dsec_status s;
	double begun_ms;
	pid_t pids[2];

	c.timeout_ms = 500;
	timed = command_start(e->d, id, &c, NULL);
	expect(until(5000, engine_running(e, "sleep") == 1));
	pids[0] = unkillable_make(e, "sleep");
	begun_ms = clock_ms();
	auto_ran struct ran ran = command_wait(e->d, timed);

	expect(pids[0] > 0 && ends_undying(&ran, DSEC_TIMEOUT));
	expect(clock_ms() - begun_ms < EXEC_MS + (double)longer(SLACK_MS));
	expect(holdings_now(e->d).execs_undying == 1 && holdings_now(e->d).execs == 1);
	/* Its sandbox works until it is to end; then it cannot, and others that wait are told. */
	auto_ran struct ran next = shell_run(e->d, id, "echo fine");

	expect(ran_says(&next, "fine\n") && state_of(e->d, id) == DSEC_STATE_RUNNING);
	fed.flags = DSEC_EXEC_STREAM | DSEC_EXEC_CAPTURE | DSEC_EXEC_INPUT_STREAM;
	taken = command_start(e->d, id, &fed, NULL);
	expect(until(5000, engine_running(e, "sleep") == 2));
	pids[1] = unkillable_make(e, "sleep"); /* not the first, which is traced already */
	s = sandboxes_end(e->d, &id, 1);
	expect(is_quarantine(&s) && state_of(e->d, id) == DSEC_STATE_QUARANTINED);
	auto_ran struct ran last = command_wait(e->d, taken);

	expect(pids[1] > 0 && ends_undying(&last, DSEC_KILLED));
	expect(holdings_now(e->d).execs_undying == 2);
	unkillable_release(pids[0]);
	unkillable_release(pids[1]);
	expect(until(RETRY_MS + longer(SLACK_MS), state_of(e->d, id) == DSEC_STATE_ENDED));
	struct dsec_holdings held = holdings_now(e->d);

	expect(holdings_are_none(&held));
}

/* Stopping has a bound and a report; what is left is left to the next engine, which sweeps it. */
static void stopping_does_not_wait_for_what_cannot_be_ended(struct engine *e)
{
	static const char *const arguments[] = { "--sandboxes-max", "16", "--shards", "2",
						 "--stop-timeout",  "10", NULL };
	struct engine_options options = { .arguments = arguments };
	struct engine other = { 0 };
	double begun_ms;
	pid_t pid;

	(void)e;
	if (!expect(engine_start(&other, &options)))
		return;
	for (int i = 0; i < 5; i++)
		(void)sandbox_make(other.d);
	(void)undead_make(&other, &pid);
	begun_ms = clock_ms();
	(void)kill(other.keeper, SIGTERM);
	int status = engine_wait(&other, 30000);

	expect(clock_ms() - begun_ms < (double)longer(15000) && status >= 0);
	if (!expect(WIFEXITED(status) && WEXITSTATUS(status) == 1))
		note("status %x", (unsigned)status);
	expect(engine_log_has(&other, "destroyed=5 left=1"));
	expect(engine_log_has(&other, "sandbox left id="));
	undead_release(pid);
	dsec_close(other.d);
	/* The next engine of that instance finds what was left. */
	struct engine next = { 0 };

	options.instance = other.instance;
	if (expect(engine_start(&next, &options)))
		engine_end(&next);
}

/* ---- 30: a hang in each step of a create ---- */

/* Stops the worker for ever at the nth system call from now on, in a process of its own. */
static pid_t hang_start(pid_t worker, unsigned nth)
{
	int status, ready[2];
	pid_t tracer;
	char byte;

	if (!expect(pipe(ready) == 0))
		return -1;
	tracer = fork();
	if (tracer == 0) {
		if (ptrace(PTRACE_SEIZE, worker, NULL, PTRACE_O_TRACESYSGOOD) < 0 ||
		    ptrace(PTRACE_INTERRUPT, worker, NULL, NULL) < 0 ||
		    waitpid(worker, &status, __WALL) != worker)
			_exit(1);
		(void)!write(ready[1], "", 1);
		/* An entry and an exit each; the one it waits in comes first. */
		for (unsigned stops = 0; stops < 2 * nth && WIFSTOPPED(status); stops++) {
			if (ptrace(PTRACE_SYSCALL, worker, NULL, NULL) < 0)
				_exit(1);
			(void)waitpid(worker, &status, __WALL);
		}
		/* Whoever ends it ends us. */
		while (WIFSTOPPED(status) && waitpid(worker, &status, __WALL) == worker)
			;
		_exit(0);
	}
	(void)close(ready[1]);
	expect(tracer > 0 && read(ready[0], &byte, 1) == 1);
	(void)close(ready[0]);
	return tracer;
}

static void a_create_that_hangs_fails_and_gives_back_its_place(struct engine *e)
{
	/* Of some 30 on a clean slot, and 150 with a fresh root. */
	static const unsigned at[] = { 2, 9, 17, 25 };

	sandbox_end(e->d, sandbox_make(e->d)); /* the image is there */
	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		double begun_ms = clock_ms();
		struct dsec_create_opts opts = create_opts(1);
		struct dsec_holdings held;
		pid_t workers[8], tracer;
		int status;

		if (!expect(engine_workers(e, workers, 8) == 1))
			return;
		if (i % 2)
			opts.flags |= DSEC_CREATE_FRESH_ROOT;
		tracer = hang_start(workers[0], at[i]);
		auto_made struct made made = create_run(e->d, &opts);

		if (!expect(made.failed == 1 && *made.trouble.step &&
			    made.trouble.blame == DSEC_BLAME_PLATFORM &&
			    clock_ms() - begun_ms < (double)longer(20000)))
			note("call %u: created %u failed %u at \"%s\"", at[i], made.created,
			     made.failed, made.trouble.step);
		note("call %u: \"%s\" after %.0f ms", at[i], made.trouble.step,
		     clock_ms() - begun_ms);
		expect(waitpid(tracer, &status, 0) == tracer && status == 0);
		list_destroy(e->d);
		/* All of its places are there again. */
		opts = create_opts(4);
		auto_made struct made full = create_run(e->d, &opts);

		expect(full.created == 4 && sandboxes_end(e->d, full.ids, 4).code == DSEC_OK);
		held = holdings_now(e->d);
		expect(!held.sandboxes && !held.quarantined && !held.slots_quarantined);
	}
}

static const struct claim undead[] = {
	CLAIM(what_cannot_be_ended_is_quarantined_and_said_so),
	CLAIM(an_exec_that_does_not_die_is_told_and_quarantines_its_sandbox),
	CLAIM(stopping_does_not_wait_for_what_cannot_be_ended),
};
static const struct claim hangs[] = {
	CLAIM(a_create_that_hangs_fails_and_gives_back_its_place),
};

static const char *const arguments[] = { "--sandboxes-max", "16", "--shards", "2", NULL };
static const char *const small[] = { "--sandboxes-max", "4", "--shards", "1",
				     "--launchers",	"1", NULL };
static const struct suite suites[] = {
	SUITE("undead", undead, .arguments = arguments),
	SUITE("hangs", hangs, .arguments = small, .is_hurt = true),
};

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
