/*
 * A fault in every step of creating a sandbox, of running a command and of working on a file,
 * before the step and after it: the client is told which step and that the platform is to blame,
 * and nothing is left. An engine per fault: `dsecd-faults`, which differs from dsecd in knowing
 * DSEC_FAULT.
 */
#include <errno.h>
#include <string.h>

#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/file_client.h"

enum { ROUNDS = 5 };

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

static const struct claim creates[] = { CLAIM(a_create_fails_there_and_leaves_nothing) };
static const struct claim files[] = { CLAIM(a_file_operation_fails_there_and_leaves_nothing) };
static const struct claim execs[] = { CLAIM(an_exec_fails_there_and_leaves_nothing) };
static const char *const arguments[] = { "--sandboxes-max", "16", "--shards", "2", NULL };

#define FAULT(claims_, fault_)                                                                     \
	SUITE(fault_, claims_, .fault = fault_ ":EIO", .arguments = arguments)

static const struct suite suites[] = {
	FAULT(creates, "container.slot"),
	FAULT(creates, "container.slot!"),
	FAULT(creates, "container.spawn"),
	FAULT(creates, "container.spawn!"),
	FAULT(creates, "container.network"),
	FAULT(creates, "container.network!"),
	FAULT(creates, "container.guard"),
	FAULT(creates, "container.guard!"),
	FAULT(execs, "exec.pipes"),
	FAULT(execs, "exec.pipes!"),
	FAULT(execs, "exec.start"),
	FAULT(execs, "exec.start!"),
	FAULT(execs, "exec.run"),
	FAULT(execs, "exec.run!"),
	FAULT(execs, "exec.quiet"),
	FAULT(execs, "exec.quiet!"),
	FAULT(execs, "exec.drain"),
	FAULT(execs, "exec.drain!"),
	FAULT(files, "file.channels"),
	FAULT(files, "file.channels!"),
	FAULT(files, "file.start"),
	FAULT(files, "file.start!"),
	FAULT(files, "file.answer"),
	FAULT(files, "file.answer!"),
};

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
