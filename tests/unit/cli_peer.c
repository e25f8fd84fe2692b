/* An engine's part for the tests of the CLI, and the program under test. Called by them alone. */
#include "tests/unit/cli_peer.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

const struct dsec_wire_id cli_ids[3] = {
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
	uint32_t times = script->out_times ? script->out_times : 1;
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
	ref_note(script, script->input_bytes ? script->input : payload,
		 script->input_bytes ? (struct dsec_wire_ref){ 0, (uint32_t)script->input_bytes } :
				       exec.input);
	for (uint32_t time = 0; time < times; time++)
		data_post(peer, request, 1, 0, script->out);
	for (uint32_t time = 0; time < times; time++)
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

/* Its input comes first; the answer is that of any other. */
static void exec_hold(struct script *script, const struct dsec_ring_request *request,
		      const void *payload)
{
	cr_assert_leq(request->payload_bytes, sizeof(script->exec_payload));
	script->exec = *request;
	memcpy(script->exec_payload, payload, request->payload_bytes);
}

static void input_answer(struct peer *peer, const struct dsec_ring_request *request,
			 const void *payload)
{
	struct script *script = peer->options.state;

	cr_assert_eq(request->number[0], script->exec.ticket);
	cr_assert_eq(request->offset, script->input_bytes);
	cr_assert_leq(request->offset + request->payload_bytes, sizeof(script->input));
	if (request->payload_bytes)
		memcpy(script->input + request->offset, payload, request->payload_bytes);
	script->input_bytes += request->payload_bytes;
	peer_done(peer, 0, request);
	if (!request->payload_bytes)
		exec_answer(peer, &script->exec, script->exec_payload);
}

static bool exec_takes_input(const void *payload)
{
	struct dsec_wire_exec exec;

	memcpy(&exec, payload, sizeof(exec));
	return exec.flags & DSEC_EXEC_INPUT_STREAM;
}

static void list_answer(struct peer *peer, const struct dsec_ring_request *request,
			const void *payload)
{
	static const char plain[] = "debi\x1b[1man\4\0\0\0name\3\0\0\0web";
	static const char binary[] = "debi\x1b[1man\4\0\0\0name\3\0\0\0\xff\n\xfe";
	struct script *script = peer->options.state;
	const char *text = script->label_is_binary ? binary : plain;
	struct dsec_wire_list list;

	memcpy(&list, payload, sizeof(list));
	for (size_t at = 0; at < 3; at++) {
		struct dsec_ring_event event = peer_event(request, DSEC_EV_ROW, 0);
		struct {
			struct dsec_wire_row row;
			char text[32];
		} body = { .row = { .size = sizeof(body.row),
				    .state = DSEC_STATE_RUNNING,
				    .id = cli_ids[at],
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
		memcpy(body.text, text, sizeof(plain) - 1);
		event.subject = cli_ids[at];
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
		event.subject = cli_ids[at];
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

void cli_serve(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
	       const void *payload)
{
	struct script *script = peer->options.state;

	(void)channel;
	switch (request->op) {
	case DSEC_OP_EXEC:
		if (exec_takes_input(payload))
			exec_hold(script, request, payload);
		else
			exec_answer(peer, request, payload);
		break;
	case DSEC_OP_INPUT:
		input_answer(peer, request, payload);
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

static void file_read(int fd, char *text, size_t text_bytes)
{
	ssize_t n = pread(fd, text, text_bytes - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	(void)close(fd);
}

static void run_child(const char *address, char *const argv[], const int fds[3])
{
	const char *program = getenv("DSEC_CLI");
	int kept[3];

	/* First out of the way: one may be the number of another. */
	for (int fd = 0; fd < 3; fd++)
		kept[fd] = fds[fd] < 0 ? -1 : fcntl(fds[fd], F_DUPFD_CLOEXEC, 10);
	for (int fd = 0; fd < 3; fd++) {
		if (kept[fd] < 0)
			(void)close(fd);
		else
			(void)dup2(kept[fd], fd);
	}
	if (address)
		(void)setenv("DSEC_ADDRESS", address, 1);
	else
		(void)unsetenv("DSEC_ADDRESS");
	if (program)
		(void)execv(program, argv);
	_exit(99);
}

pid_t cli_start(const char *address, const char *words, const int fds[3])
{
	char name[] = "dsec", *argv[32] = { name }, *copy = strdup(words);
	int argc = 1;
	pid_t pid;

	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	pid = fork();
	if (pid == 0)
		run_child(address, argv, fds);
	free(copy);
	return pid;
}

int cli_await(pid_t pid)
{
	int status;

	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	cr_assert_neq(WEXITSTATUS(status), 99, "DSEC_CLI names no program");
	return WEXITSTATUS(status);
}

struct ran cli_run_at(const char *address, const char *input, const char *words)
{
	int fds[3] = { memfd_create("in", MFD_CLOEXEC), memfd_create("out", MFD_CLOEXEC),
		       memfd_create("err", MFD_CLOEXEC) };
	struct ran ran = { 0 };

	cr_assert_eq(pwrite(fds[0], input, strlen(input), 0), (ssize_t)strlen(input));
	ran.status = cli_await(cli_start(address, words, fds));
	(void)close(fds[0]);
	file_read(fds[1], ran.out, sizeof(ran.out));
	file_read(fds[2], ran.err, sizeof(ran.err));
	return ran;
}

struct ran cli_run(struct script *script, const char *input, const char *words)
{
	struct peer_options options = { .serve = cli_serve, .state = script };
	struct peer *peer = peer_start(DSEC_TRANSPORT_RING, &options);
	struct ran ran = cli_run_at(peer->address, input, words);

	peer_stop(peer);
	return ran;
}

int cli_run_fds(struct script *script, const char *words, const int fds[3])
{
	struct peer_options options = { .serve = cli_serve, .state = script };
	struct peer *peer = peer_start(DSEC_TRANSPORT_STREAM, &options);
	int status = cli_await(cli_start(peer->address, words, fds));

	peer_stop(peer);
	return status;
}
