/*
 * Functions and their calls as clients see them: verdicts, limits, many inputs, the registry. One
 * engine for all claims; each removes the functions it made.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/call_client.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

static const uint32_t isolations[] = { DSEC_ISOLATION_FRESH, DSEC_ISOLATION_DOMAIN };

/* Those that this host enforces; see the VM tests for memory. */
static bool enforces(struct engine *e, uint32_t limit)
{
	const struct dsec_caps *caps;

	return expect(dsec_capabilities(e->d, &caps) == 0) && !(caps->unenforced & limit);
}

/* ---- six programs, six verdicts ---- */

struct judged {
	const char *name, *script, *says;
	uint32_t verdict, reason;
	int exit_code, signal;
};

static const struct judged programs[] = {
	{ "ok", "cat; echo err >&2", "in", DSEC_VERDICT_OK, DSEC_EXIT, 0, 0 },
	{ "re-exit", "cat; exit 3", "in", DSEC_VERDICT_RE, DSEC_EXIT, 3, 0 },
	{ "re-signal", "cat; kill -SEGV $$", "in", DSEC_VERDICT_RE, DSEC_SIGNAL, -1, SIGSEGV },
	{ "tle-cpu", "cat; while :; do :; done", "in", DSEC_VERDICT_TLE, DSEC_TIMEOUT, -1,
	  SIGKILL },
	{ "ole", "cat; while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done",
	  NULL, DSEC_VERDICT_OLE, DSEC_OUTPUT_LIMIT, -1, SIGKILL },
};

static void judge(struct engine *e, const struct judged *program, uint32_t isolation)
{
	/* What is over its limit may be over a small one. */
	const uint64_t cpu_ms = program->verdict == DSEC_VERDICT_TLE ? 300 : longer(300);
	const struct dsec_function_opts opts = { .isolation = isolation,
						 .cpu_ms = (uint32_t)cpu_ms,
						 .output_bytes = 40000,
						 .wall_ms = (uint32_t)longer(20000) };
	struct dsec_id id = function_of(e->d, program->name, program->script, &opts);

	/* The second finds what the first one left: nothing. */
	for (int i = 0; i < 2; i++) {
		auto_called struct called called = call_run(e->d, id, "in");
		const struct dsec_called *result = &called.result;

		if (!expect(called_is(&called, program->verdict)))
			continue;
		expect(result->reason == program->reason);
		expect(result->exit_code == program->exit_code);
		expect(result->signal == program->signal);
		if (program->says)
			expect(called.bytes[0] && !strcmp(called.bytes[0], program->says));
		if (program->verdict == DSEC_VERDICT_OLE)
			expect(called.counts[0] == opts.output_bytes);
		if (program->verdict == DSEC_VERDICT_TLE)
			expect(result->cpu_us >= opts.cpu_ms * 1000);
	}
	expect(function_end(e->d, id).code == DSEC_OK);
}

static void each_program_has_its_verdict_in_both_classes(struct engine *e)
{
	for (unsigned i = 0; i < sizeof isolations / sizeof *isolations; i++)
		for (unsigned n = 0; n < sizeof programs / sizeof *programs; n++)
			judge(e, &programs[n], isolations[i]);
}

static void what_takes_too_much_memory_is_mle(struct engine *e)
{
	for (unsigned i = 0; i < sizeof isolations / sizeof *isolations; i++) {
		const struct dsec_bytes argv[] = { { "/bin/sh", 7 },
						   { "-c", 2 },
						   { "head -c 64m /dev/zero | tail", 28 } };
		struct dsec_function_opts opts = { .size = sizeof opts,
						   .verb = DSEC_FUNCTION_REGISTER,
						   .name = "mle",
						   .image = "test",
						   .argv = argv,
						   .argc = 3,
						   .isolation = isolations[i],
						   .memory_bytes = 16 << 20 };
		struct dsec_id id;
		struct dsec_status status = function_try(e->d, &opts, &id);

		if (!enforces(e, DSEC_LIMIT_MEMORY)) {
			expect(status.code == DSEC_UNSUPPORTED && strstr(status.step, "memory"));
			continue;
		}
		for (int n = 0; n < 2; n++) {
			auto_called struct called called = call_run(e->d, id, "");

			expect(called_is(&called, DSEC_VERDICT_MLE));
		}
		expect(function_end(e->d, id).code == DSEC_OK);
	}
}

static void a_program_that_is_not_there_is_ie_and_says_so(struct engine *e)
{
	const struct dsec_bytes argv = { "/nosuch", 7 };
	const struct dsec_function_opts opts = { .argv = &argv, .argc = 1 };
	struct dsec_id id = function_of(e->d, "ie", NULL, &opts);
	auto_called struct called called = call_run(e->d, id, "in");

	expect(called_is(&called, DSEC_VERDICT_IE));
	expect(called.result.reason == DSEC_NOT_STARTED && called.result.exit_code == 127);
	expect(called.status.code == DSEC_FAILED && called.status.blame == DSEC_BLAME_GUEST);
	expect(called.status.error == ENOENT && !strcmp(called.status.step, "argv0"));
	expect(function_end(e->d, id).code == DSEC_OK);
}

/* ---- time ---- */

static void sleeping_is_over_by_the_clock(struct engine *e)
{
	const struct dsec_function_opts opts = { .wall_ms = 300, .cpu_ms = 200 };
	struct dsec_id id = function_of(e->d, "sleeper", "sleep 1000", &opts);
	auto_called struct called called = call_run(e->d, id, "");

	expect(called_is(&called, DSEC_VERDICT_TLE));
	expect(called.result.wall_us >= 300000 && called.result.cpu_us < 200000);
	expect(called.ms < held_up_ms());
	expect(function_end(e->d, id).code == DSEC_OK);
}

/* Whoever works is counted, whatever session it is in and whoever its parent is. */
static void children_do_not_escape_the_cpu_limit(struct engine *e)
{
	const struct dsec_function_opts opts = { .cpu_ms = 300,
						 .wall_ms = (uint32_t)longer(20000) };
	struct dsec_id id = function_of(
		e->d, "escapes",
		"work() { while :; do :; done; };"
		"(setsid sh -c 'while :; do :; done' &); (work &); trap '' TERM INT; sleep 1000",
		&opts);
	auto_called struct called called = call_run(e->d, id, "");

	expect(called_is(&called, DSEC_VERDICT_TLE));
	expect(called.result.cpu_us >= 300000);
	expect(called.ms < longer(10000));
	expect(engine_members(e, NULL, 0) == 0 || until(5000, engine_running(e, "sh") == 0));
	expect(function_end(e->d, id).code == DSEC_OK);
}

/* ---- many inputs ---- */

static void each_of_many_inputs_is_answered_once_by_its_index(struct engine *e)
{
	enum { COUNT = 200 };
	struct dsec_id id = function_of(e->d, "many", "cat; exit $(($(wc -c < /dev/null)))", NULL);
	struct dsec_bytes inputs[COUNT];
	char texts[COUNT][8];

	for (int i = 0; i < COUNT; i++)
		inputs[i] =
			(struct dsec_bytes){ texts[i], (size_t)snprintf(texts[i], 8, "<%d>", i) };
	auto_calls struct calls calls = calls_run(e->d, id, inputs, fewer(COUNT, 20));

	expect(calls.lasts == 1 && calls.last.code == DSEC_OK);
	for (uint32_t i = 0; i < calls.count; i++)
		expect(calls.all[i].times == 1 && called_says(&calls.all[i], texts[i]));
	expect(function_end(e->d, id).code == DSEC_OK);
}

static void a_large_input_comes_whole_and_cannot_be_written_to(struct engine *e)
{
	enum { BYTES = 700 << 10 };
	struct dsec_id id =
		function_of(e->d, "large", "{ echo x >/proc/self/fd/0; } 2>/dev/null; wc -c", NULL);
	auto_free char *bytes = calloc(1, BYTES);
	const struct dsec_bytes input = { bytes, BYTES };
	auto_calls struct calls calls = calls_run(e->d, id, &input, 1);

	expect(calls.count == 1 && called_says(&calls.all[0], "716800\n"));
	expect(function_end(e->d, id).code == DSEC_OK);
}

/* ---- the registry ---- */

static bool is_refused(struct dsec *d, const struct dsec_function_opts *opts, const char *field)
{
	struct dsec_status status = function_try(d, opts, NULL);

	if (status.code == DSEC_INVALID && strstr(status.step, field))
		return true;
	note("%s: %u at %s: %s", field, status.code, status.step, status.detail);
	return false;
}

static void what_makes_no_sense_is_refused_by_name(struct engine *e)
{
	const struct dsec_bytes argv = { "/bin/cat", 8 };
	const struct dsec_function_opts good = { .size = sizeof good,
						 .verb = DSEC_FUNCTION_REGISTER,
						 .name = "good",
						 .image = "test",
						 .argv = &argv,
						 .argc = 1 };
	struct dsec_function_opts bad = good;

	bad.name = "no spaces";
	expect(is_refused(e->d, &bad, "name"));
	bad = good;
	bad.argc = 0;
	expect(is_refused(e->d, &bad, "argv"));
	bad = good;
	bad.cpu_ms = 3600 * 1000 + 1;
	expect(is_refused(e->d, &bad, "cpu"));
	bad = good;
	bad.output_bytes = 1 << 30;
	expect(is_refused(e->d, &bad, "output"));
	bad = good;
	bad.isolation = 2;
	expect(is_refused(e->d, &bad, "isolation"));
	bad = good;
	bad.flags = 1 << 20;
	expect(is_refused(e->d, &bad, "flags"));
	bad = good;
	bad.pids_max = 1;
	expect(is_refused(e->d, &bad, "pids"));
	bad = good;
	bad.image = "nosuch";
	expect(function_try(e->d, &bad, NULL).code == DSEC_ABSENT);
}

static unsigned functions_count(struct dsec *d, const char *name)
{
	const struct dsec_function_opts list = { .size = sizeof list, .verb = DSEC_FUNCTION_LIST };
	int64_t ticket = dsec_function(d, NULL, &list);
	unsigned count = 0;
	bool last = false;

	while (expect(ticket >= 0) && !last) {
		struct dsec_event *event = NULL;

		if (!expect(dsec_wait(d, ticket, -1, &event) == 0))
			break;
		const struct dsec_function_row *row = event->body;

		if (event->kind == DSEC_EV_ROW && expect(row))
			count += row->name.bytes == strlen(name) &&
				 !memcmp(row->name.data, name, row->name.bytes);
		last = event->flags & DSEC_LAST;
		dsec_event_free(event);
	}
	return count;
}

static void a_name_is_one_function_until_it_is_removed(struct engine *e)
{
	struct dsec_id id = function_of(e->d, "named", "cat", NULL), again, gone = { 1, 1 };
	const struct dsec_bytes argv = { "/bin/cat", 8 };
	const struct dsec_function_opts other = { .size = sizeof other,
						  .verb = DSEC_FUNCTION_REGISTER,
						  .name = "named",
						  .image = "test",
						  .argv = &argv,
						  .argc = 1 };

	again = function_of(e->d, "named", "cat", NULL);
	expect(again.hi == id.hi && again.lo == id.lo);
	expect(function_try(e->d, &other, NULL).code == DSEC_CONFLICT);
	expect(functions_count(e->d, "named") == 1);
	expect(function_end(e->d, id).code == DSEC_OK);
	expect(functions_count(e->d, "named") == 0);
	expect(function_end(e->d, id).code == DSEC_ABSENT);
	auto_called struct called called = call_run(e->d, id, "");
	auto_called struct called never = call_run(e->d, gone, "");

	expect(!called.result.size && called.status.code == DSEC_ABSENT);
	expect(!never.result.size && never.status.code == DSEC_ABSENT);
}

static struct dsec_status policy_ask(struct dsec *d, uint32_t verb, const char *name,
				     const char *document)
{
	const struct dsec_policy_opts opts = {
		.size = sizeof opts,
		.verb = verb,
		.name = name,
		.document = { document, document ? strlen(document) : 0 },
	};

	return ticket_end(d, dsec_policy(d, NULL, &opts));
}

static void calls_have_the_walls_of_their_functions_policy(struct engine *e)
{
	static const char script[] = "(echo x >/bin/y) 2>/dev/null && echo wrote || echo kept";
	struct dsec_function_opts opts = { .size = sizeof opts, .name = "walls" };
	struct dsec_id bare = function_of(e->d, "bare", script, NULL), other;

	expect(policy_ask(e->d, DSEC_POLICY_LOAD, NULL,
			  "name: fn-walls\nfiles: {readonly: [/bin]}\n")
		       .code == DSEC_OK);
	opts.policy = "fn-walls";
	for (uint32_t i = 0; i < 2; i++) {
		struct dsec_id id;

		opts.isolation = i ? DSEC_ISOLATION_DOMAIN : DSEC_ISOLATION_FRESH;
		id = function_of(e->d, "walls", script, &opts);
		for (int call = 0; call < 3; call++) {
			auto_called struct called called = call_run(e->d, id, "");
			auto_called struct called free_one = call_run(e->d, bare, "");

			expect(called_says(&called, "kept\n"));
			expect(called_says(&free_one, "wrote\n"));
		}
		expect(function_end(e->d, id).code == DSEC_OK);
	}
	opts.name = "other";
	opts.image = "test";
	opts.verb = DSEC_FUNCTION_REGISTER;
	opts.policy = "nobodys";
	{
		const struct dsec_status status = function_try(e->d, &opts, &other);

		expect(status.code == DSEC_ABSENT && !strcmp(status.step, "function.policy"));
	}
	expect(function_end(e->d, bare).code == DSEC_OK);
	expect(policy_ask(e->d, DSEC_POLICY_REMOVE, "fn-walls", NULL).code == DSEC_OK);
}

static void an_image_in_use_by_a_function_is_not_removed(struct engine *e)
{
	struct dsec_id id = function_of(e->d, "holds", "cat", NULL);
	const struct dsec_image_opts opts = { .size = sizeof opts,
					      .verb = DSEC_IMAGE_REMOVE,
					      .name = "test" };

	expect(ticket_end(e->d, dsec_image(e->d, NULL, &opts)).code == DSEC_CONFLICT);
	expect(function_end(e->d, id).code == DSEC_OK);
}

/* ---- ends ---- */

static void a_cancelled_request_ends_its_calls(struct engine *e)
{
	enum { COUNT = 100 };
	struct dsec_id id = function_of(e->d, "cancelled", "trap '' TERM; sleep 1000", NULL);
	struct dsec_bytes inputs[COUNT] = { 0 };
	double begun_ms = clock_ms();
	int64_t ticket = calls_start(e->d, id, inputs, COUNT);

	expect(until(20000, engine_running(e, "sleep") > 0));
	expect(dsec_cancel(e->d, ticket) == 0);
	auto_calls struct calls calls = calls_wait(e->d, ticket, COUNT);

	expect(calls.last.code == DSEC_CANCELLED);
	for (uint32_t i = 0; i < COUNT; i++)
		expect(calls.all[i].times == 1 && calls.all[i].status.code == DSEC_CANCELLED);
	expect(clock_ms() - begun_ms < longer(30000));
	expect(function_end(e->d, id).code == DSEC_OK);
	expect(until(5000, engine_running(e, "sleep") == 0));
}

/* As many of them wait as may: another function's calls are answered meanwhile. */
static void calls_that_last_keep_no_other_function_from_its_own(struct engine *e)
{
	static const struct dsec_bytes inputs[CALLS_MAX];
	struct dsec_id lasting = function_of(e->d, "lasting", "exec sleep 1000", NULL);
	struct dsec_id other = function_of(e->d, "other", "cat", NULL);
	struct dsec *d = engine_connect(e);

	(void)calls_start(d, lasting, inputs, CALLS_MAX);
	expect(until(20000, engine_running(e, "sleep") >= 12));
	for (int i = 0; i < 4; i++) {
		auto_called struct called called = call_run(e->d, other, "in");

		expect(called_says(&called, "in"));
		expect(called.ms < (double)held_up_ms());
	}
	dsec_close(d);
	expect(function_end(e->d, lasting).code == DSEC_OK);
	expect(function_end(e->d, other).code == DSEC_OK);
	expect(until(20000, engine_running(e, "sleep") == 0));
}

static void calls_of_a_client_that_goes_are_ended(struct engine *e)
{
	struct dsec_id id = function_of(e->d, "left", "sleep 1000", NULL);
	struct dsec *d = engine_connect(e);
	struct dsec_bytes inputs[4] = { 0 };

	(void)calls_start(d, id, inputs, 4);
	expect(until(20000, engine_running(e, "sleep") > 0));
	dsec_close(d);
	expect(until(20000, engine_running(e, "sleep") == 0));
	expect(function_end(e->d, id).code == DSEC_OK);
}

static const struct claim claims[] = {
	CLAIM(each_program_has_its_verdict_in_both_classes),
	CLAIM(calls_have_the_walls_of_their_functions_policy),
	CLAIM(what_takes_too_much_memory_is_mle),
	CLAIM(a_program_that_is_not_there_is_ie_and_says_so),
	CLAIM(sleeping_is_over_by_the_clock),
	CLAIM(children_do_not_escape_the_cpu_limit),
	CLAIM(each_of_many_inputs_is_answered_once_by_its_index),
	CLAIM(a_large_input_comes_whole_and_cannot_be_written_to),
	CLAIM(what_makes_no_sense_is_refused_by_name),
	CLAIM(a_name_is_one_function_until_it_is_removed),
	CLAIM(an_image_in_use_by_a_function_is_not_removed),
	CLAIM(a_cancelled_request_ends_its_calls),
	CLAIM(calls_that_last_keep_no_other_function_from_its_own),
	CLAIM(calls_of_a_client_that_goes_are_ended),
};

int main(int argc, char **argv)
{
	static const struct suite suites[] = { SUITE("calls", claims) };

	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
