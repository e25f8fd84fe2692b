/* The program `dsec` itself, against a peer: what it writes, and its exit statuses. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/cli_peer.h"

Test(cli, exec_writes_what_the_program_wrote_and_ends_as_it_did)
{
	struct script script = { .out = "head",
				 .err = "oops\n",
				 .result = { .reason = DSEC_EXIT, .exit_code = 3 } };
	struct ran ran = cli_run(&script, "", "exec name:web -w /x -e A=1 -u 1000 -- prog --flag");

	cr_assert_eq(ran.status, 3, "%s", ran.err);
	cr_assert_str_eq(ran.out, "head");
	cr_assert_str_eq(ran.err, "oops\n");
	cr_assert_str_eq(script.seen, "prog|--flag|A=1|/x|1000||");
}

Test(cli, exit_statuses_are_a_shells)
{
	static const struct {
		struct dsec_wire_result result;
		struct dsec_wire_status status;
		int exit;
		const char *err;
	} cases[] = {
		{ { .reason = DSEC_EXIT, .exit_code = 0 }, { 0 }, 0, "" },
		{ { .reason = DSEC_EXIT, .exit_code = 255 }, { 0 }, 255, "" },
		{ { .reason = DSEC_SIGNAL, .signal = 11 }, { 0 }, 139, "" },
		{ { .reason = DSEC_OOM, .signal = 9 }, { 0 }, 137, "oom" },
		{ { .reason = DSEC_KILLED, .signal = 9 }, { 0 }, 137, "destroyed" },
		{ { .reason = DSEC_OUTPUT_LIMIT,
		    .signal = 9,
		    .exec = 4,
		    .processes_killed = UINT32_MAX },
		  { 0 },
		  137,
		  "output limit: killed, 0 bytes of output (exec 4)" },
		{ { .reason = DSEC_FORK_BOMB, .signal = 9, .exec = 4, .processes_killed = 64 },
		  { 0 },
		  137,
		  "fork bomb: 64 processes killed: at its limit of processes" },
		{ { .reason = DSEC_TIMEOUT,
		    .signal = 9,
		    .wall_us = 60040000,
		    .exec = 4,
		    .processes_killed = 3 },
		  { 0 },
		  124,
		  "timeout after 60.0 s: 3 processes killed, 0 bytes of output (exec 4)" },
		{ { .reason = DSEC_IDLE_TIMEOUT, .signal = 9, .exec = 4 },
		  { 0 },
		  124,
		  "idle timeout: no output for" },
		{ { .reason = DSEC_END_UNKNOWN }, { 0 }, 125, "nobody saw" },
		{ { .reason = DSEC_NOT_STARTED, .exit_code = 127 },
		  { .code = DSEC_FAILED, .blame = DSEC_BLAME_CALLER, .error = 2, .step = "argv0" },
		  127,
		  "argv0" },
		{ { .reason = DSEC_NOT_STARTED, .exit_code = 126 },
		  { .code = DSEC_FAILED, .blame = DSEC_BLAME_CALLER, .error = 13, .step = "argv0" },
		  126,
		  "Permission denied" },
		{ { 0 },
		  { .code = DSEC_ABSENT, .blame = DSEC_BLAME_CALLER, .detail = "no such sandbox" },
		  125,
		  "no such sandbox [caller]" },
		{ { 0 }, { .code = DSEC_DEADLINE }, 124, "deadline" },
	};

	for (size_t at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
		struct script script = { .result = cases[at].result, .status = cases[at].status };
		struct ran ran = cli_run(&script, "", "exec name:web -- prog");

		cr_assert_eq(ran.status, cases[at].exit, "%zu: %d: %s", at, ran.status, ran.err);
		cr_assert_not_null(strstr(ran.err, cases[at].err), "%zu: %s", at, ran.err);
		cr_assert_str_eq(ran.out, "");
	}
}

Test(cli, what_is_not_kept_is_told_on_stderr_alone)
{
	struct script script = {
		.out = "begin",
		.out_tail = "end",
		.result = { .reason = DSEC_EXIT, .outputs = { { 1, 1, 1000008, 5, 3 } } },
	};
	struct ran ran = cli_run(&script, "", "exec --no-stream name:web -- prog");

	cr_assert_str_eq(ran.out, "beginend");
	cr_assert_str_eq(
		ran.err,
		"dsec: stdout: 1,000,000 bytes are not kept here; --output-max keeps more\n");
	ran = cli_run(&script, "", "-q exec --no-stream name:web -- prog");
	cr_assert_str_eq(ran.err, "");
}

Test(cli, stdin_is_given_only_when_asked_for)
{
	struct script script = { .result = { .reason = DSEC_EXIT } };

	(void)cli_run(&script, "hello", "exec name:web -- cat");
	cr_assert_str_eq(script.seen, "cat||||");
	(void)cli_run(&script, "hello", "exec -i name:web -- cat");
	cr_assert_str_eq(script.seen, "cat|||hello|");
}

Test(cli, json_of_an_exec_is_one_object_with_all_of_it)
{
	struct script script = {
		.out = "hi\n",
		.err = "\xff",
		.result = { .reason = DSEC_EXIT,
			    .exit_code = 127,
			    .exec = 5,
			    .wall_us = 2100,
			    .cpu_us = UINT64_MAX,
			    .memory_peak_bytes = UINT64_MAX,
			    .outputs = { { 1, 0, 3, 3, 0 }, { 2, 0, 1, 1, 0 } } },
	};
	struct ran ran = cli_run(&script, "", "exec --json name:web -- sh");
	json_t *json = json_loads(ran.out, 0, NULL), *out, *err;

	cr_assert_not_null(json, "%s", ran.out);
	cr_assert_eq(ran.status, 127);
	cr_assert_str_eq(ran.err, "");
	cr_assert_eq(json_integer_value(json_object_get(json, "code")), 127);
	cr_assert_eq(json_integer_value(json_object_get(json, "exec")), 5);
	cr_assert_str_eq(json_string_value(json_object_get(json, "reason")), "exit");
	cr_assert_str_eq(json_string_value(json_object_get(json, "blame")), "none");
	cr_assert(json_is_null(json_object_get(json, "cpu_ms")));
	out = json_object_get(json, "stdout");
	err = json_object_get(json, "stderr");
	cr_assert_str_eq(json_string_value(json_object_get(out, "text")), "hi\n");
	cr_assert_eq(json_integer_value(json_object_get(out, "bytes_total")), 3);
	cr_assert(json_is_false(json_object_get(out, "truncated")));
	cr_assert(json_is_null(json_object_get(err, "text")));
	cr_assert_str_eq(json_string_value(json_object_get(err, "base64")), "/w==");
	json_decref(json);
}

Test(cli, the_status_file_holds_what_the_exit_status_cannot_say)
{
	struct script script = { .out = "x", .result = { .reason = DSEC_SIGNAL, .signal = 9 } };
	char path[] = "/tmp/dsec-status-XXXXXX", words[128];
	int fd = mkstemp(path);
	struct ran ran;
	json_t *json;

	(void)snprintf(words, sizeof(words), "exec --status-file %s name:web -- prog", path);
	ran = cli_run(&script, "", words);
	cr_assert_eq(ran.status, 137);
	cr_assert_str_eq(ran.out, "x");
	json = json_load_file(path, 0, NULL);
	cr_assert_not_null(json);
	cr_assert_str_eq(json_string_value(json_object_get(json, "reason")), "signal");
	cr_assert_eq(json_integer_value(json_object_get(json, "signal")), 9);
	json_decref(json);
	(void)close(fd);
	(void)unlink(path);
	ran = cli_run(&script, "", "exec --status-file /nonexistent/f name:web -- prog");
	cr_assert_eq(ran.status, 125);
}

Test(cli, ids_may_be_shortened_to_a_unique_beginning_or_end)
{
	struct script script = { .result = { .reason = DSEC_EXIT } };
	struct dsec_id whole = { cli_ids[2].hi, cli_ids[2].lo };
	char text[27], whole_text[27], words[128];
	struct ran ran;

	dsec_id_print(whole, text);
	(void)snprintf(words, sizeof(words), "rm %s", text);
	cr_assert_eq(cli_run(&script, "", words).status, 0);
	cr_assert_eq(script.destroyed_id.lo, cli_ids[2].lo);
	/* The second and third differ from the middle on. */
	text[16] = '\0';
	(void)snprintf(words, sizeof(words), "rm %s", text);
	cr_assert_eq(cli_run(&script, "", words).status, 0, "%s", words);
	cr_assert_eq(script.destroyed_id.lo, cli_ids[2].lo);
	cr_assert_eq(cli_run(&script, "", "rm 0002").status, 0);
	cr_assert_eq(script.destroyed_id.lo, cli_ids[1].lo);
	cr_assert_eq(cli_run(&script, "", "rm name:web").status, 0);
	cr_assert_eq(script.destroyed_id.lo, cli_ids[1].lo);
	cr_assert_eq(script.destroyed, 4);
	text[4] = '\0';
	(void)snprintf(words, sizeof(words), "rm %s", text);
	ran = cli_run(&script, "", words);
	cr_assert_eq(ran.status, 125);
	cr_assert_not_null(strstr(ran.err, "id conflict: "), "%s", ran.err);
	cr_assert_not_null(strstr(ran.err, ": 3 sandboxes [caller]"), "%s", ran.err);
	for (int at = 0; at < 3; at++) {
		dsec_id_print((struct dsec_id){ cli_ids[at].hi, cli_ids[at].lo }, whole_text);
		cr_assert_not_null(strstr(ran.err, whole_text), "each is named: %s", ran.err);
	}
	ran = cli_run(&script, "", "rm zzzz");
	cr_assert_eq(ran.status, 125);
	cr_assert_not_null(strstr(ran.err, "no such sandbox"));
	ran = cli_run(&script, "", "rm 002");
	cr_assert_eq(ran.status, 125);
	cr_assert_not_null(strstr(ran.err, "at least 4 characters"), "%s", ran.err);
	ran = cli_run(&script, "", "rm");
	cr_assert_eq(ran.status, 125);
	cr_assert_eq(script.destroyed, 4, "nothing was destroyed by a mistake");
}

Test(cli, ps_shows_rows_and_json_shows_lines)
{
	struct script script = { 0 };
	struct ran ran = cli_run(&script, "", "ps");
	char text[27];
	json_t *json;

	dsec_id_print((struct dsec_id){ cli_ids[0].hi, cli_ids[0].lo }, text);
	cr_assert_eq(ran.status, 0);
	cr_assert_not_null(strstr(ran.out, text));
	cr_assert_not_null(strstr(ran.out, "name=web"));
	cr_assert_not_null(strstr(ran.out, "debi\\x1b[1man"), "escaped: %s", ran.out);
	cr_assert_not_null(strstr(ran.out, "running"));
	ran = cli_run(&script, "", "ps --label name=web --json");
	json = json_loads(ran.out, 0, NULL);
	cr_assert_not_null(json, "one object: %s", ran.out);
	cr_assert_str_eq(json_string_value(json_object_get(json, "image")), "debi\x1b[1man");
	cr_assert_str_eq(
		json_string_value(json_object_get(json_object_get(json, "labels"), "name")), "web");
	cr_assert(json_is_null(json_object_get(json, "ttl_ms")));
	json_decref(json);
	ran = cli_run(&script, "", "ps -q");
	cr_assert_eq(strlen(ran.out), 3 * 27, "ids alone: %s", ran.out);
}

Test(cli, create_writes_ids_and_says_why_some_are_missing)
{
	struct script script = { 0 };
	struct ran ran = cli_run(&script, "", "create debian --ttl 2h --name x -m 64M");
	json_t *json;

	cr_assert_eq(ran.status, 0, "%s", ran.err);
	cr_assert_eq(strlen(ran.out), 27);
	cr_assert_eq(script.create.ttl_s, 7200);
	cr_assert_eq(script.create.memory_bytes, 64 << 20);
	cr_assert_eq(script.create.labels.count, 2);
	ran = cli_run(&script, "", "create --image debian --count 3");
	cr_assert_eq(ran.status, 125);
	cr_assert_eq(strlen(ran.out), 2 * 27, "what was made is told");
	cr_assert_not_null(strstr(ran.err, "create refused: limit sandboxes_max=2 at admission "
					   "[platform]; try again in 800 ms"),
			   "%s", ran.err);
	ran = cli_run(&script, "", "create --image debian --count 3 --json");
	json = json_loads(strrchr(ran.out, '\n') ? strstr(ran.out, "{\"status\"") : "", 0, NULL);
	cr_assert_not_null(json, "%s", ran.out);
	cr_assert_eq(json_integer_value(json_object_get(json, "created")), 2);
	cr_assert_eq(json_integer_value(json_object_get(json, "refused")), 1);
	json_decref(json);
}

Test(cli, run_removes_its_sandbox_only_when_asked_to)
{
	struct script script = { .out = "42\n", .result = { .reason = DSEC_EXIT } };
	struct ran ran = cli_run(&script, "", "run --keep debian -- python3 -c 6*7");
	char id[27];

	cr_assert_eq(ran.status, 0, "%s", ran.err);
	cr_assert_str_eq(ran.out, "42\n");
	cr_assert_eq(script.destroyed, 0);
	cr_assert_eq(script.create.on_disconnect, DSEC_DISCONNECT_KEEP);
	dsec_id_print((struct dsec_id){ cli_ids[0].hi, cli_ids[0].lo }, id);
	cr_assert_not_null(strstr(ran.err, id), "stderr is no terminal: %s", ran.err);
	ran = cli_run(&script, "", "-q run --keep debian -- python3 -c 6*7");
	cr_assert_str_eq(ran.err, "");
	ran = cli_run(&script, "", "run debian -- python3 -c 6*7");
	cr_assert_eq(ran.status, 0);
	cr_assert_eq(script.destroyed, 1);
	cr_assert_eq(script.create.on_disconnect, DSEC_DISCONNECT_DESTROY);
	script.refuse = true;
	ran = cli_run(&script, "", "run --rm debian -- python3 -c 6*7");
	cr_assert_eq(ran.status, 125);
	cr_assert_str_eq(ran.out, "");
	cr_assert_not_null(strstr(ran.err, "[platform]"));
}

Test(cli, usage_errors_are_125_and_go_to_stderr)
{
	static const char *const lines[] = { "",
					     "frobnicate",
					     "run",
					     "exec",
					     "create",
					     "create a b",
					     "--rm run",
					     "image",
					     "image frobnicate",
					     "image import",
					     "image import dir:/x",
					     "image import x --name y",
					     "image ls extra",
					     "image inspect",
					     "image rm",
					     "image ls --name x",
					     "image compose x",
					     "image gc x",
					     "image gc --zstd",
					     "image verify --dry-run",
					     "image push x",
					     "image pull",
					     "image pack nobody --name x",
					     "image hotset a b",
					     "run --rm --keep debian -- true",
					     "-H private: run --keep debian -- true",
					     "-H private: create debian",
					     "-H private: check",
					     "ps extra",
					     "version extra",
					     "check extra",
					     "ps --nonsense" };

	for (size_t at = 0; at < sizeof(lines) / sizeof(lines[0]); at++) {
		struct script script = { 0 };
		struct ran ran = cli_run(&script, "", lines[at]);

		cr_assert_eq(ran.status, 125, "%s", lines[at]);
		cr_assert_str_eq(ran.out, "", "%s", lines[at]);
		cr_assert_neq(strlen(ran.err), 0, "%s", lines[at]);
	}
}

Test(cli, help_is_for_everyone)
{
	struct script script = { 0 };
	struct ran ran = cli_run(&script, "", "--help");

	cr_assert_eq(ran.status, 0);
	cr_assert_not_null(strstr(ran.out, "usage: dsec"));
	ran = cli_run(&script, "", "create --help");
	cr_assert_eq(ran.status, 0);
	cr_assert_not_null(strstr(ran.out, "--count N"));
	ran = cli_run(&script, "", "rm --help");
	cr_assert_not_null(strstr(ran.out, "[--label KEY=VALUE] [ID...]"));
	ran = cli_run(&script, "", "create --help");
	cr_assert_null(strstr(ran.out, "--status-file"));
}
