/* The program `dsec` itself, against a peer: what it writes, and its exit statuses. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/client_peer.h"

/* What the peer answers to an exec. */
struct script {
	struct dsec_wire_result result;
	const char *out, *out_tail, *err;
	struct dsec_wire_status status; /* code not 0: no result */
	char seen[512];			/* argv, env, cwd, user, input of the last exec */
	uint32_t destroyed;
	struct dsec_wire_create create; /* the last one */
	struct dsec_wire_id destroyed_id;
	bool refuse;
};

static const struct dsec_wire_id ids[] = {
	{ 0x1234567890abcdef, 1 },
	{ 0x1234567890abcdef, 2 },
	{ 0x1234567890abcdef, 3ull << 52 | 1 },
};

static void data_post(struct peer *peer, const struct dsec_ring_request *request, uint16_t stream,
		      uint16_t flags, const char *text)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DATA, flags);

	if (!text)
		return;
	event.stream = stream;
	event.bytes = (uint32_t)strlen(text);
	peer_post(peer, 0, &event, text);
}

static void ref_note(struct script *script, const void *payload, struct dsec_wire_ref ref)
{
	char *to = script->seen + strlen(script->seen);

	(void)snprintf(to, sizeof(script->seen) - strlen(script->seen), "%.*s|", (int)ref.bytes,
		       (const char *)payload + ref.at);
}

static void items_note(struct script *script, const void *payload, struct dsec_wire_items items)
{
	uint32_t at = items.at, bytes;

	while (at < items.at + items.bytes) {
		memcpy(&bytes, (const char *)payload + at, sizeof(bytes));
		at += (uint32_t)sizeof(bytes);
		ref_note(script, payload, (struct dsec_wire_ref){ at, bytes });
		at += bytes;
	}
}

static void exec_answer(struct peer *peer, const struct dsec_ring_request *request,
			const void *payload)
{
	struct script *script = peer->options.state;
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST);
	struct dsec_wire_exec exec;
	struct {
		struct dsec_wire_result result;
		struct dsec_wire_status status;
	} body = { script->result, script->status };

	memcpy(&exec, payload, sizeof(exec));
	script->seen[0] = '\0';
	items_note(script, payload, exec.argv);
	items_note(script, payload, exec.env);
	ref_note(script, payload, exec.cwd);
	ref_note(script, payload, exec.user);
	ref_note(script, payload, exec.input);
	data_post(peer, request, 1, 0, script->out);
	data_post(peer, request, 1, DSEC_EVENT_TAIL, script->out_tail);
	data_post(peer, request, 2, 0, script->err);
	body.result.size = sizeof(body.result);
	event.code = (uint16_t)script->status.code;
	event.blame = (uint16_t)script->status.blame;
	event.error = script->status.error;
	if (script->status.code && script->result.reason != DSEC_NOT_STARTED) {
		event.flags |= DSEC_EVENT_STATUS;
		event.bytes = sizeof(body.status);
		peer_post(peer, 0, &event, &body.status);
		return;
	}
	event.bytes = sizeof(body.result);
	if (script->status.code) {
		event.flags |= DSEC_EVENT_STATUS;
		event.bytes = sizeof(body);
	}
	peer_post(peer, 0, &event, &body);
}

static void list_answer(struct peer *peer, const struct dsec_ring_request *request,
			const void *payload)
{
	static const char text[] = "debi\x1b[1man\4\0\0\0name\3\0\0\0web";
	struct dsec_wire_list list;

	memcpy(&list, payload, sizeof(list));
	for (size_t at = 0; at < 3; at++) {
		struct dsec_ring_event event = peer_event(request, DSEC_EV_ROW, 0);
		struct {
			struct dsec_wire_row row;
			char text[32];
		} body = { .row = { .size = sizeof(body.row),
				    .state = DSEC_STATE_RUNNING,
				    .id = ids[at],
				    .age_ms = 61000,
				    .idle_ms = 1000,
				    .ttl_ms = UINT64_MAX,
				    .execs_total = 5,
				    .image = { sizeof(body.row), 10 } } };

		/* Only the second has a name. */
		if (list.labels.count && at != 1)
			continue;
		if (at == 1)
			body.row.labels =
				(struct dsec_wire_items){ sizeof(body.row) + 10, 15, 2, 0 };
		memcpy(body.text, text, sizeof(text) - 1);
		event.subject = ids[at];
		event.bytes = sizeof(body);
		peer_post(peer, 0, &event, &body);
	}
	peer_done(peer, 0, request);
}

static void create_answer(struct peer *peer, const struct dsec_ring_request *request,
			  const void *payload)
{
	struct script *script = peer->options.state;
	struct dsec_ring_event event = peer_event(request, DSEC_EV_CREATED, 0);
	struct dsec_wire_created created = { .size = sizeof(created), .network = 1, .ttl_s = 9 };
	struct dsec_wire_status status = {
		.code = DSEC_REFUSED,
		.retry_after_ms = 800,
		.step = "admission",
		.detail = "limit sandboxes_max=2",
	};

	memcpy(&script->create, payload, sizeof(script->create));
	for (uint32_t at = 0; at < script->create.count; at++) {
		event.index = (uint16_t)at;
		event.subject = ids[at];
		event.bytes = sizeof(created);
		if (at == 2 || script->refuse) {
			event.code = DSEC_REFUSED;
			event.blame = DSEC_BLAME_PLATFORM;
			event.flags = DSEC_EVENT_STATUS;
			event.bytes = sizeof(status);
		}
		peer_post(peer, 0, &event, event.code ? (void *)&status : (void *)&created);
	}
	peer_done(peer, 0, request);
}

static void serve(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		  const void *payload)
{
	struct script *script = peer->options.state;

	(void)channel;
	switch (request->op) {
	case DSEC_OP_EXEC:
		exec_answer(peer, request, payload);
		break;
	case DSEC_OP_LIST:
		list_answer(peer, request, payload);
		break;
	case DSEC_OP_CREATE:
		create_answer(peer, request, payload);
		break;
	case DSEC_OP_DESTROY:
		script->destroyed++;
		script->destroyed_id = request->subject;
		peer_done(peer, 0, request);
		break;
	default:
		peer_done(peer, 0, request);
	}
}

/* ---- running dsec ---- */

struct ran {
	int status;
	char out[8192], err[8192];
};

static void file_read(int fd, char *text, size_t text_bytes)
{
	ssize_t n = pread(fd, text, text_bytes - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	(void)close(fd);
}

static void run_child(const char *address, char *const argv[], const int fds[3])
{
	const char *program = getenv("DSEC_CLI");

	for (int fd = 0; fd < 3; fd++)
		(void)dup2(fds[fd], fd);
	(void)setenv("DSEC_ADDRESS", address, 1);
	if (program)
		(void)execv(program, argv);
	_exit(99);
}

/* dsec with these words (apart by one blank each), against an engine with this script. */
static struct ran dsec_run_words(struct script *script, const char *input, const char *words)
{
	struct peer_options options = { .serve = serve, .state = script };
	struct peer *peer = peer_start(DSEC_TRANSPORT_RING, &options);
	int fds[3] = { memfd_create("in", MFD_CLOEXEC), memfd_create("out", MFD_CLOEXEC),
		       memfd_create("err", MFD_CLOEXEC) };
	char name[] = "dsec", *argv[32] = { name }, *copy = strdup(words);
	struct ran ran = { 0 };
	int argc = 1, status;
	pid_t pid;

	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	cr_assert_eq(pwrite(fds[0], input, strlen(input), 0), (ssize_t)strlen(input));
	pid = fork();
	if (pid == 0)
		run_child(peer->address, argv, fds);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	peer_stop(peer);
	cr_assert(WIFEXITED(status), "%s", words);
	ran.status = WEXITSTATUS(status);
	cr_assert_neq(ran.status, 99, "DSEC_CLI names no program");
	(void)close(fds[0]);
	file_read(fds[1], ran.out, sizeof(ran.out));
	file_read(fds[2], ran.err, sizeof(ran.err));
	free(copy);
	return ran;
}

Test(cli, exec_writes_what_the_program_wrote_and_ends_as_it_did)
{
	struct script script = { .out = "head",
				 .err = "oops\n",
				 .result = { .reason = DSEC_EXIT, .exit_code = 3 } };
	struct ran ran =
		dsec_run_words(&script, "", "exec name:web -w /x -e A=1 -u 1000 -- prog --flag");

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
		{ { .reason = DSEC_TIMEOUT, .signal = 9, .wall_us = 60040000, .exec = 4 },
		  { 0 },
		  124,
		  "timeout after 60.0 s: killed, 0 bytes of output kept (exec 4)" },
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
		struct ran ran = dsec_run_words(&script, "", "exec name:web -- prog");

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
	struct ran ran = dsec_run_words(&script, "", "exec name:web -- prog");

	cr_assert_str_eq(ran.out, "beginend");
	cr_assert_str_eq(
		ran.err,
		"dsec: stdout: 1,000,000 bytes are not kept here; --output-max keeps more\n");
	ran = dsec_run_words(&script, "", "-q exec name:web -- prog");
	cr_assert_str_eq(ran.err, "");
}

Test(cli, stdin_is_given_only_when_asked_for)
{
	struct script script = { .result = { .reason = DSEC_EXIT } };

	(void)dsec_run_words(&script, "hello", "exec name:web -- cat");
	cr_assert_str_eq(script.seen, "cat||||");
	(void)dsec_run_words(&script, "hello", "exec -i name:web -- cat");
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
	struct ran ran = dsec_run_words(&script, "", "exec --json name:web -- sh");
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
	ran = dsec_run_words(&script, "", words);
	cr_assert_eq(ran.status, 137);
	cr_assert_str_eq(ran.out, "x");
	json = json_load_file(path, 0, NULL);
	cr_assert_not_null(json);
	cr_assert_str_eq(json_string_value(json_object_get(json, "reason")), "signal");
	cr_assert_eq(json_integer_value(json_object_get(json, "signal")), 9);
	json_decref(json);
	(void)close(fd);
	(void)unlink(path);
	ran = dsec_run_words(&script, "", "exec --status-file /nonexistent/f name:web -- prog");
	cr_assert_eq(ran.status, 125);
}

Test(cli, ids_may_be_shortened_to_a_unique_beginning_or_end)
{
	struct script script = { .result = { .reason = DSEC_EXIT } };
	struct dsec_id whole = { ids[2].hi, ids[2].lo };
	char text[27], words[128];
	struct ran ran;

	dsec_id_print(whole, text);
	(void)snprintf(words, sizeof(words), "rm %s", text);
	cr_assert_eq(dsec_run_words(&script, "", words).status, 0);
	cr_assert_eq(script.destroyed_id.lo, ids[2].lo);
	/* The second and third differ from the middle on. */
	text[16] = '\0';
	(void)snprintf(words, sizeof(words), "rm %s", text);
	cr_assert_eq(dsec_run_words(&script, "", words).status, 0, "%s", words);
	cr_assert_eq(script.destroyed_id.lo, ids[2].lo);
	cr_assert_eq(dsec_run_words(&script, "", "rm 02").status, 0);
	cr_assert_eq(script.destroyed_id.lo, ids[1].lo);
	cr_assert_eq(dsec_run_words(&script, "", "rm name:web").status, 0);
	cr_assert_eq(script.destroyed_id.lo, ids[1].lo);
	cr_assert_eq(script.destroyed, 4);
	text[4] = '\0';
	(void)snprintf(words, sizeof(words), "rm %s", text);
	ran = dsec_run_words(&script, "", words);
	cr_assert_eq(ran.status, 125);
	cr_assert_not_null(strstr(ran.err, "more than one sandbox"));
	ran = dsec_run_words(&script, "", "rm zzzz");
	cr_assert_eq(ran.status, 125);
	cr_assert_not_null(strstr(ran.err, "no such sandbox"));
	ran = dsec_run_words(&script, "", "rm");
	cr_assert_eq(ran.status, 125);
	cr_assert_eq(script.destroyed, 4, "nothing was destroyed by a mistake");
}

Test(cli, ps_shows_rows_and_json_shows_lines)
{
	struct script script = { 0 };
	struct ran ran = dsec_run_words(&script, "", "ps");
	char text[27];
	json_t *json;

	dsec_id_print((struct dsec_id){ ids[0].hi, ids[0].lo }, text);
	cr_assert_eq(ran.status, 0);
	cr_assert_not_null(strstr(ran.out, text));
	cr_assert_not_null(strstr(ran.out, "name=web"));
	cr_assert_not_null(strstr(ran.out, "running"));
	ran = dsec_run_words(&script, "", "ps --label name=web --json");
	json = json_loads(ran.out, 0, NULL);
	cr_assert_not_null(json, "one object: %s", ran.out);
	cr_assert_str_eq(json_string_value(json_object_get(json, "image")), "debi\x1b[1man");
	cr_assert_str_eq(
		json_string_value(json_object_get(json_object_get(json, "labels"), "name")), "web");
	cr_assert(json_is_null(json_object_get(json, "ttl_ms")));
	json_decref(json);
	ran = dsec_run_words(&script, "", "ps -q");
	cr_assert_eq(strlen(ran.out), 3 * 27, "ids alone: %s", ran.out);
}

Test(cli, create_writes_ids_and_says_why_some_are_missing)
{
	struct script script = { 0 };
	struct ran ran = dsec_run_words(&script, "", "create debian --ttl 2h --name x -m 64M");
	json_t *json;

	cr_assert_eq(ran.status, 0, "%s", ran.err);
	cr_assert_eq(strlen(ran.out), 27);
	cr_assert_eq(script.create.ttl_s, 7200);
	cr_assert_eq(script.create.memory_bytes, 64 << 20);
	cr_assert_eq(script.create.labels.count, 2);
	ran = dsec_run_words(&script, "", "create --image debian --count 3");
	cr_assert_eq(ran.status, 125);
	cr_assert_eq(strlen(ran.out), 2 * 27, "what was made is told");
	cr_assert_not_null(strstr(ran.err, "create refused: limit sandboxes_max=2 at admission "
					   "[platform]; try again in 800 ms"),
			   "%s", ran.err);
	ran = dsec_run_words(&script, "", "create --image debian --count 3 --json");
	json = json_loads(strrchr(ran.out, '\n') ? strstr(ran.out, "{\"asked\"") : "", 0, NULL);
	cr_assert_not_null(json, "%s", ran.out);
	cr_assert_eq(json_integer_value(json_object_get(json, "created")), 2);
	cr_assert_eq(json_integer_value(json_object_get(json, "refused")), 1);
	json_decref(json);
}

Test(cli, run_removes_its_sandbox_only_when_asked_to)
{
	struct script script = { .out = "42\n", .result = { .reason = DSEC_EXIT } };
	struct ran ran = dsec_run_words(&script, "", "run --keep debian -- python3 -c 6*7");

	cr_assert_eq(ran.status, 0, "%s", ran.err);
	cr_assert_str_eq(ran.out, "42\n");
	cr_assert_eq(script.destroyed, 0);
	cr_assert_eq(script.create.on_disconnect, DSEC_DISCONNECT_KEEP);
	ran = dsec_run_words(&script, "", "run debian -- python3 -c 6*7");
	cr_assert_eq(ran.status, 0);
	cr_assert_eq(script.destroyed, 1);
	cr_assert_eq(script.create.on_disconnect, DSEC_DISCONNECT_DESTROY);
	script.refuse = true;
	ran = dsec_run_words(&script, "", "run --rm debian -- python3 -c 6*7");
	cr_assert_eq(ran.status, 125);
	cr_assert_str_eq(ran.out, "");
	cr_assert_not_null(strstr(ran.err, "[platform]"));
}

Test(cli, usage_errors_are_125_and_go_to_stderr)
{
	static const char *const lines[] = { "",
					     "frobnicate",
					     "run",
					     "run debian",
					     "exec",
					     "create",
					     "create a b",
					     "--rm run",
					     "run --rm --keep debian -- true",
					     "ps --nonsense" };

	for (size_t at = 0; at < sizeof(lines) / sizeof(lines[0]); at++) {
		struct script script = { 0 };
		struct ran ran = dsec_run_words(&script, "", lines[at]);

		cr_assert_eq(ran.status, 125, "%s", lines[at]);
		cr_assert_str_eq(ran.out, "", "%s", lines[at]);
		cr_assert_neq(strlen(ran.err), 0, "%s", lines[at]);
	}
}

Test(cli, help_is_for_everyone)
{
	struct script script = { 0 };
	struct ran ran = dsec_run_words(&script, "", "--help");

	cr_assert_eq(ran.status, 0);
	cr_assert_not_null(strstr(ran.out, "usage: dsec"));
	ran = dsec_run_words(&script, "", "create --help");
	cr_assert_eq(ran.status, 0);
	cr_assert_not_null(strstr(ran.out, "--count N"));
	cr_assert_null(strstr(ran.out, "--status-file"));
}
