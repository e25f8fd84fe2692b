/*
 * A fault in every step of every flow, as flow_steps.py finds them in the sources, before the step
 * and after it: the client is told which step and that the platform is to blame, and nothing is
 * left. An engine per fault: `dsecd-faults`, which differs from dsecd in knowing DSEC_FAULT.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/root/engine/call_client.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/file_client.h"

enum { ROUNDS = 2, SUITES_MAX = 256 };

static bool is_fault(const struct dsec_status *s, const char *fault)
{
	size_t bytes = strcspn(fault, "!:");

	return s->code == DSEC_FAILED && s->blame == DSEC_BLAME_PLATFORM && s->error == EIO &&
	       strlen(s->step) == bytes && !strncmp(s->step, fault, bytes);
}

static void a_create_fails_there_and_leaves_nothing(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(8);
	pid_t pids[8];

	for (int i = 0; i < ROUNDS; i++) {
		auto_made struct made made = create_run(e->d, &opts);

		if (!expect(made.failed == 8 && is_fault(&made.trouble, e->options.fault)))
			note("%u failed, code %u blame %u error %d at \"%s\"", made.failed,
			     made.trouble.code, made.trouble.blame, made.trouble.error,
			     made.trouble.step);
		expect(holdings_now(e->d).sandboxes == 0);
		expect(until(10000, engine_members(e, pids, 8) == 0));
	}
}

static void an_exec_fails_there_and_leaves_nothing(struct engine *e)
{
	/* One that ends, one that stays, one with more input than it takes. */
	static const char input[100000];
	const struct command commands[] = {
		SH("echo out; echo err >&2"),
		SH("setsid sleep 300 >&- 2>&- & exec sleep 300"),
		{ .argv = { "true" }, .input = input, .input_bytes = sizeof input },
	};
	/* Some steps come only when the program has ended. */
	bool is_late = strstr(e->options.fault, "quiet") || strstr(e->options.fault, "drain") ||
		       strstr(e->options.fault, "run!");
	struct dsec_id id = sandbox_make(e->d);
	pid_t pids[8];

	for (unsigned i = 0; i < ROUNDS * 3; i++) {
		struct command c = commands[i % 3];

		c.timeout_ms = is_late ? 100 : 0;
		auto_ran struct ran ran = command_run(e->d, id, &c);

		if (!expect(is_fault(&ran.status, e->options.fault) && !ran.result))
			ran_note(&ran);
	}
	expect(until(10000, engine_members(e, pids, 8) == 1));
	sandbox_end(e->d, id);
}

static void a_file_operation_fails_there_and_leaves_nothing(struct engine *e)
{
	const struct dsec_file_opts asked[] = {
		{ .verb = DSEC_FILE_READ, .path = bytes_of("/etc/passwd") },
		{ .verb = DSEC_FILE_WRITE, .path = bytes_of("/tmp/a"), .input = bytes_of("text") },
		{ .verb = DSEC_FILE_LIST, .path = bytes_of("/") },
		{ .verb = DSEC_FILE_READ, .flags = DSEC_FILE_TAR, .path = bytes_of("/etc") },
	};
	struct dsec_id id = sandbox_make(e->d);
	pid_t pids[8];

	for (unsigned i = 0; i < ROUNDS * 4; i++) {
		struct dsec_file_opts opts = asked[i % 4];

		opts.size = sizeof opts;
		auto_filed struct filed filed = file_run(e->d, id, &opts);

		if (!expect(is_fault(&filed.status, e->options.fault)))
			(void)filed_well(&filed);
	}
	expect(until(10000, engine_members(e, pids, 8) == 1));
	sandbox_end(e->d, id);
}

/* Fresh and in a domain; one that ends, one that stays, one with input. */
static void a_call_fails_there_and_leaves_nothing(struct engine *e)
{
	static const char *const scripts[] = { "echo out; echo err >&2",
					       "setsid sleep 300 & exec sleep 300", "exit 1" };
	/* Some steps come only when the program has ended. */
	const struct dsec_function_opts opts = { .wall_ms = 100 };
	pid_t pids[8];

	for (unsigned i = 0; i < 6; i++) {
		struct dsec_function_opts o = opts;

		o.isolation = i % 2;
		struct dsec_id id = function_of(e->d, "fails", scripts[i / 2], &o);

		for (int n = 0; n < ROUNDS; n++) {
			auto_called struct called called = call_run(e->d, id, "input");

			if (!expect(is_fault(&called.status, e->options.fault) &&
				    !called.result.size))
				(void)called_is(&called, 0);
		}
		expect(function_end(e->d, id).code == DSEC_OK);
	}
	expect(until(10000, engine_members(e, pids, 8) == 0));
}

/* Version and policy stay, and the next move is one. */
static void a_phase_fails_there_and_leaves_it_in_the_one_before(struct engine *e)
{
	const struct dsec_phase_opts opts = { .size = sizeof opts,
					      .name = "next",
					      .policy = "fncall",
					      .flags = DSEC_PHASE_KILL_OLD };
	const struct command c = SH("exec sleep 300");
	struct dsec_id id = sandbox_make(e->d);

	for (unsigned i = 0; i < ROUNDS; i++) {
		int64_t exec = command_start(e->d, id, &c, NULL);
		struct dsec_event *event;

		expect(until(10000, engine_running(e, "sleep") >= 1));
		if (!expect(dsec_wait(e->d, dsec_phase(e->d, NULL, id, &opts), 20000, &event) == 0))
			break;
		expect(is_fault(&event->status, e->options.fault));
		expect(event->body && ((const struct dsec_phased *)event->body)->version == 1);
		dsec_event_free(event);
		if (engine_running(e, "sleep"))
			dsec_cancel(e->d, exec);
		auto_ran struct ran ran = command_wait(e->d, exec);
	}
	sandbox_end(e->d, id);
}

static const struct claim creates[] = { CLAIM(a_create_fails_there_and_leaves_nothing) };
static const struct claim phases[] = { CLAIM(a_phase_fails_there_and_leaves_it_in_the_one_before) };
static const struct claim files[] = { CLAIM(a_file_operation_fails_there_and_leaves_nothing) };
static const struct claim calls[] = { CLAIM(a_call_fails_there_and_leaves_nothing) };
static const struct claim execs[] = { CLAIM(an_exec_fails_there_and_leaves_nothing) };
static const char *const arguments[] = { "--sandboxes-max", "16", "--shards", "2", NULL };

/* What walks down each table. A new table has its row here: without one the test fails. */
static const struct {
	const char *table;
	const struct claim *claims;
} walkers[] = { { "container.", creates },
		{ "exec.", execs },
		{ "file.", files },
		{ "call.", calls },
		{ "phase.", phases } };

static const struct claim *walker_of(const char *step)
{
	for (unsigned i = 0; i < sizeof walkers / sizeof *walkers; i++)
		if (!strncmp(step, walkers[i].table, strlen(walkers[i].table)))
			return walkers[i].claims;
	return NULL;
}

/* Before the step, and after it. */
static void suite_add(struct suite *suite, const char *step, const char *when)
{
	char *fault = NULL;

	if (asprintf(&fault, "%s%s:EIO", step, when) < 0)
		abort(); /* a test without memory says nothing */
	*suite = (struct suite){
		.name = fault,
		.claims = walker_of(step),
		.claim_count = 1,
		.options = { .fault = fault, .arguments = arguments },
	};
}

/* A suite for each step that the sources have; 0: it cannot be said which. */
static unsigned suites_make(struct suite suites[static SUITES_MAX])
{
	FILE *steps = popen("python3 -B " FLOW_STEPS_PATH " " SOURCE_PATH, "re");
	unsigned count = 0;
	char step[64];

	while (steps && count + 2 <= SUITES_MAX && fscanf(steps, "%63s", step) == 1) {
		if (!walker_of(step)) {
			printf("%s: nothing in test_engine_faults.c walks its table\n", step);
			count = 0;
			break;
		}
		suite_add(&suites[count++], step, "");
		suite_add(&suites[count++], step, "!");
	}
	return steps && pclose(steps) == 0 ? count : 0;
}

int main(int argc, char **argv)
{
	static struct suite suites[SUITES_MAX];
	unsigned count = suites_make(suites);
	int r = count ? suites_main(argc, argv, suites, count) : 1;

	for (unsigned i = 0; i < count; i++)
		free((void *)(uintptr_t)suites[i].name);
	return r;
}
