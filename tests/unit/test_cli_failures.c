/* The program `dsec` where something is wrong: its descriptors, the engine or what is asked. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/cli_peer.h"

enum { PIECE_BYTES = 4000, PIECES = 524 /* for each half of 4 MiB */ };

static const char *text_of(const json_t *json, const char *name)
{
	const char *text = json_string_value(json_object_get(json, name));

	return text ? text : "(none)";
}

/* The only line there is. */
static json_t *json_alone(const struct ran *ran)
{
	json_t *json = json_loads(ran->out, 0, NULL);

	cr_assert_not_null(json, "not one object: '%s' beside '%s'", ran->out, ran->err);
	return json;
}

Test(cli_failures, output_does_not_get_into_the_engines_socket_when_descriptors_are_closed)
{
	struct script script = { .out = "this is no request", .result = { .reason = DSEC_EXIT } };
	const int closed[3] = { -1, -1, -1 };

	cr_assert_eq(cli_run_fds(&script, "run -i debian -- prog", closed), 125,
		     "there was output, and nobody has it");
	cr_assert_str_eq(script.seen, "prog||||", "stdin is empty: %s", script.seen);
	cr_assert_eq(script.destroyed, 1, "the engine understood what came after the output");
}

static void pipe_open(int ret_fds[2], int flags_of)
{
	cr_assert_eq(pipe2(ret_fds, O_CLOEXEC), 0);
	cr_assert_eq(fcntl(ret_fds[flags_of], F_SETFL, O_NONBLOCK), 0);
}

Test(cli_failures, a_non_blocking_stdout_gets_every_byte)
{
	char piece[PIECE_BYTES + 1], read_bytes[65536];
	struct script script = {
		.out = piece,
		.out_tail = piece,
		.out_times = PIECES,
		.result = { .reason = DSEC_EXIT, .outputs = { { .stream = 1 } } },
	};
	struct peer *peer;
	int out[2], fds[3];
	uint64_t half_bytes = (uint64_t)PIECE_BYTES * PIECES, total = 0, wrong = 0;
	ssize_t n;
	pid_t pid;

	for (size_t at = 0; at < PIECE_BYTES; at++)
		piece[at] = (char)('a' + at % 10);
	piece[PIECE_BYTES] = '\0';
	script.result.outputs[0].head_bytes = script.result.outputs[0].tail_bytes = half_bytes;
	script.result.outputs[0].total_bytes = 2 * half_bytes;
	pipe_open(out, 1);
	fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	fds[1] = out[1];
	fds[2] = STDERR_FILENO;
	peer = peer_start(DSEC_TRANSPORT_RING,
			  &(struct peer_options){ .serve = cli_serve, .state = &script });
	pid = cli_start(peer->address, "exec --output-max 4M name:web -- prog", fds);
	(void)close(out[1]);
	while ((n = read(out[0], read_bytes, sizeof(read_bytes))) > 0) {
		for (ssize_t at = 0; at < n; at++, total++)
			wrong += read_bytes[at] != (char)('a' + total % PIECE_BYTES % 10);
	}
	cr_assert_eq(cli_await(pid), 0);
	peer_stop(peer);
	cr_assert_eq(total, 2 * half_bytes, "%lu", (unsigned long)total);
	cr_assert_eq(wrong, 0);
}

Test(cli_failures, a_non_blocking_stdin_is_read_to_its_end)
{
	struct script script = { .result = { .reason = DSEC_EXIT } };
	struct peer *peer;
	int in[2], fds[3];
	pid_t pid;

	pipe_open(in, 0);
	fds[0] = in[0];
	fds[1] = fds[2] = open("/dev/null", O_RDWR | O_CLOEXEC);
	peer = peer_start(DSEC_TRANSPORT_RING,
			  &(struct peer_options){ .serve = cli_serve, .state = &script });
	pid = cli_start(peer->address, "exec -i name:web -- cat", fds);
	/* It may ask before each piece is there; that it did once is what the unread pipe says. */
	for (const char *at = "hello"; *at; at++) {
		struct pollfd room = { .fd = in[1], .events = POLLOUT };
		int unread = 1;

		cr_assert_eq(write(in[1], at, 1), 1);
		while (unread) {
			cr_assert_eq(waitpid(pid, NULL, WNOHANG), 0, "it did not wait for more");
			cr_assert_eq(ioctl(in[0], FIONREAD, &unread), 0);
			cr_assert_geq(poll(&room, 1, 0), 0);
		}
	}
	(void)close(in[1]);
	cr_assert_eq(cli_await(pid), 0);
	peer_stop(peer);
	cr_assert_str_eq(script.seen, "cat|||hello|");
}

Test(cli_failures, a_reader_that_went_away_is_no_trouble)
{
	struct script script = { .out = "nobody reads",
				 .err = "nor this",
				 .result = { .reason = DSEC_EXIT, .exit_code = 3 } };
	char said[256] = "";
	int out[2], err[2], fds[3] = { STDIN_FILENO, -1, -1 };

	cr_assert_eq(pipe2(out, O_CLOEXEC), 0);
	cr_assert_eq(pipe2(err, O_CLOEXEC), 0);
	(void)close(out[0]);
	fds[1] = out[1];
	fds[2] = err[1];
	cr_assert_eq(cli_run_fds(&script, "exec name:web -- prog", fds), 3);
	(void)close(err[1]);
	cr_assert_geq(read(err[0], said, sizeof(said) - 1), 0);
	cr_assert_str_eq(said, "nor this");
	(void)close(err[0]);
}

Test(cli_failures, output_that_cannot_be_written_is_told_once)
{
	struct script script = { .out = "x", .result = { .reason = DSEC_EXIT } };
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC), err[2], fds[3];
	char said[1024] = "";

	cr_assert_eq(pipe2(err, O_CLOEXEC), 0);
	fds[0] = STDIN_FILENO;
	fds[1] = full;
	fds[2] = err[1];
	cr_assert_eq(cli_run_fds(&script, "exec name:web -- prog", fds), 125);
	cr_assert_geq(read(err[0], said, sizeof(said) - 1), 0);
	cr_assert_str_eq(said, "dsec: stdout: No space left on device\n");
	(void)close(full);
}

Test(cli_failures, ids_that_stdout_does_not_take_are_on_stderr)
{
	struct script script = { 0 };
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC), err[2], fds[3];
	char said[4096] = "", id[27];

	cr_assert_eq(pipe2(err, O_CLOEXEC), 0);
	fds[0] = STDIN_FILENO;
	fds[1] = full;
	fds[2] = err[1];
	cr_assert_eq(cli_run_fds(&script, "create -q debian --count 2", fds), 125);
	cr_assert_geq(read(err[0], said, sizeof(said) - 1), 0);
	for (size_t at = 0; at < 2; at++) {
		dsec_id_print((struct dsec_id){ cli_ids[at].hi, cli_ids[at].lo }, id);
		cr_assert_not_null(strstr(said, id), "%s", said);
	}
	(void)close(full);
}

Test(cli_failures, every_verb_tells_a_missing_engine_as_one_json_object)
{
	static const char *const lines[] = {
		"exec --json --status-file %s name:web -- prog",
		"run --json --status-file %s debian -- prog",
		"ps --json",
		"rm --json 0000",
		"stats --json 0000",
		"create --json debian",
	};
	char path[] = "/tmp/dsec-failure-XXXXXX", words[256];
	int fd = mkstemp(path);

	for (size_t at = 0; at < sizeof(lines) / sizeof(lines[0]); at++) {
		struct ran ran;
		json_t *json;

		(void)snprintf(words, sizeof(words), lines[at], path);
		ran = cli_run_at("unix:/nonexistent/socket", "", words);
		json = json_alone(&ran);
		cr_assert_eq(ran.status, 125, "%s", words);
		cr_assert_neq(ran.err[0], '\0', "%s", words);
		cr_assert_str_eq(text_of(json, "status"), "lost", "%s", words);
		cr_assert_str_eq(text_of(json, "blame"), "platform", "%s", words);
		cr_assert_str_eq(text_of(json, "step"), "connect", "%s", words);
		cr_assert_str_eq(text_of(json, "errno"), "ENOENT", "%s", words);
		json_decref(json);
		if (at > 1)
			continue;
		json = json_load_file(path, 0, NULL);
		cr_assert_not_null(json, "%s", words);
		cr_assert_str_eq(text_of(json, "status"), "lost", "%s", words);
		json_decref(json);
	}
	(void)close(fd);
	(void)unlink(path);
}

Test(cli_failures, what_the_engine_refuses_is_one_json_object_with_its_status)
{
	struct script script = { .refuse = true };
	struct ran ran = cli_run(&script, "", "run --json debian -- prog");
	json_t *json = json_alone(&ran);

	cr_assert_str_eq(text_of(json, "status"), "refused");
	cr_assert_str_eq(text_of(json, "detail"), "limit sandboxes_max=2");
	cr_assert_eq(json_integer_value(json_object_get(json, "retry_after_ms")), 800);
	json_decref(json);
	ran = cli_run(&script, "", "create --json debian");
	json = json_alone(&ran);
	cr_assert_str_eq(text_of(json, "status"), "refused");
	cr_assert_eq(json_integer_value(json_object_get(json, "asked")), 1);
	json_decref(json);
	script = (struct script){ .status = { .code = DSEC_ABSENT, .blame = DSEC_BLAME_CALLER } };
	ran = cli_run(&script, "", "exec --json name:web -- prog");
	json = json_alone(&ran);
	cr_assert_str_eq(text_of(json, "status"), "absent");
	cr_assert_str_eq(text_of(json, "blame"), "caller");
	json_decref(json);
}

Test(cli_failures, what_makes_room_is_told_by_what_is_full)
{
	static const struct {
		struct dsec_wire_status status;
		const char *said;
	} cases[] = {
		{ { .code = DSEC_REFUSED, .error = ENOSPC, .step = "import.tree" },
		  "dsec image gc" },
		{ { .code = DSEC_REFUSED, .error = ENOSPC, .step = "create.slot" }, "dsec rm" },
		{ { .code = DSEC_REFUSED, .error = EBUSY, .step = "image.jobs" },
		  "ask again later" },
	};

	for (size_t at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
		struct script script = { .status = cases[at].status };
		struct ran ran = cli_run(&script, "", "exec name:web -- prog");

		cr_assert_not_null(strstr(ran.err, cases[at].said), "%s", ran.err);
	}
}

Test(cli_failures, a_command_line_that_makes_no_sense_is_a_json_object_too)
{
	static const char *const lines[] = {
		"ps --nonsense --json", "--json frobnicate",
		"ps extra --json",	"rm --json",
		"rm --json zzzz",	"run --json",
		"create --json a b",	"exec --json ab -- x",
	};

	for (size_t at = 0; at < sizeof(lines) / sizeof(lines[0]); at++) {
		struct script script = { 0 };
		struct ran ran = cli_run(&script, "", lines[at]);
		json_t *json = json_alone(&ran);

		cr_assert_eq(ran.status, 125, "%s", lines[at]);
		cr_assert_str_eq(text_of(json, "blame"), "caller", "%s", lines[at]);
		json_decref(json);
	}
}

Test(cli_failures, a_status_file_that_cannot_be_opened_keeps_the_program_from_running)
{
	struct script script = { .result = { .reason = DSEC_EXIT, .exit_code = 3 } };
	struct ran ran = cli_run(&script, "", "exec --status-file /nonexistent/f name:web -- prog");

	cr_assert_eq(ran.status, 125);
	cr_assert_str_eq(script.seen, "", "it did not run");
	ran = cli_run(&script, "", "run --status-file /nonexistent/f debian -- prog");
	cr_assert_eq(ran.status, 125);
	cr_assert_eq(script.create.size, 0, "nothing was created");
	ran = cli_run(&script, "", "exec --status-file /dev/full name:web -- prog");
	cr_assert_eq(ran.status, 3, "the program's status outweighs a missing file");
	cr_assert_not_null(strstr(ran.err, "/dev/full: the result could not be written"));
}

Test(cli_failures, nothing_is_kept_where_the_engine_goes)
{
	struct ran ran;

	if (access("/run/dsec.sock", F_OK) == 0)
		cr_skip_test("an engine's socket is here");
	ran = cli_run_at(NULL, "", "run --keep debian -- prog");
	cr_assert_eq(ran.status, 125);
	cr_assert_not_null(strstr(ran.err, "--keep wants an engine that stays"), "%s", ran.err);
}

Test(cli_failures, labels_that_are_no_text_are_escaped_and_base64_in_json)
{
	struct script script = { .label_is_binary = true };
	struct ran ran = cli_run(&script, "", "ps --label name=web");
	json_t *json, *label;

	cr_assert_not_null(strstr(ran.out, "name=\\xff\\x0a\\xfe"), "%s", ran.out);
	ran = cli_run(&script, "", "ps --label name=web --json");
	json = json_alone(&ran);
	cr_assert(json_is_null(json_object_get(json_object_get(json, "labels"), "name")));
	label = json_array_get(json_object_get(json, "labels_base64"), 0);
	cr_assert_str_eq(text_of(label, "key"), "bmFtZQ==");
	cr_assert_str_eq(text_of(label, "value"), "/wr+");
	json_decref(json);
}

/* Root sees the machine; that no engine answers is no reason not to look at it. */
Test(cli_failures, check_without_an_engine_reports_the_instance_it_was_asked_for)
{
	struct ran ran;
	json_t *json;

	if (geteuid() != 0)
		cr_skip_test("needs root");
	ran = cli_run_at("unix:/run/dsec/clitest-none.sock", "", "check --json");
	if (strstr(ran.err, "no cgroup2"))
		cr_skip_test("no cgroup2 is mounted here");
	json = json_alone(&ran);
	cr_assert_eq(ran.status, 0, "%s%s", ran.out, ran.err);
	cr_assert_str_eq(text_of(json, "instance"), "clitest-none");
	cr_assert(json_is_null(json_object_get(json, "engine")));
	cr_assert(json_is_true(json_object_get(json, "clean")));
	json_decref(json);
	ran = cli_run_at("unix:/nonexistent/socket", "", "check --instance clitest-none");
	cr_assert_eq(ran.status, 0, "%s%s", ran.out, ran.err);
	cr_assert_not_null(strstr(ran.out, "at instance clitest-none"));
}

static void welcome_refuse(struct peer *peer, struct dsec_ring_welcome *welcome)
{
	const struct script *script = peer->options.state;

	if (peer->connection >= script->refusals)
		return;
	welcome->code = DSEC_REFUSED;
	(void)snprintf(welcome->text, sizeof(welcome->text), "as many clients as there may be");
}

/* Of a burst of commands: the engine has no room for one of them, until another one goes. */
Test(cli_failures, a_command_waits_for_its_turn_among_clients_and_not_for_ever)
{
	struct script script = { .refusals = 3, .result = { .reason = DSEC_EXIT } };
	struct peer_options options = {
		.serve = cli_serve, .welcome = welcome_refuse, .connections = 4, .state = &script
	};
	struct peer *peer = peer_start(DSEC_TRANSPORT_RING, &options);
	struct ran ran = cli_run_at(peer->address, "", "exec name:web -- prog");

	cr_assert_eq(ran.status, 0, "%s", ran.err);
	peer_stop(peer);
	script.refusals = options.connections = 100;
	peer = peer_start(DSEC_TRANSPORT_RING, &options);
	ran = cli_run_at(peer->address, "", "ps --timeout 100ms");
	cr_assert_eq(ran.status, 125);
	cr_assert_not_null(strstr(ran.err, "as many clients as there may be"), "%s", ran.err);
	peer_stop(peer);
}
