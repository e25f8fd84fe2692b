/* Operations of the file helper for tests, each in a process of its own. */
#include "tests/unit/files/run.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/guest/files/files.h"

static void shell(const char *script)
{
	cr_assert_eq(system(script), 0, "%s", script); /* NOLINT: of this test */
}

void scratch_make(struct scratch *scratch)
{
	char script[256];

	(void)strcpy(scratch->path, "/tmp/dsec-files-XXXXXX");
	cr_assert_not_null(mkdtemp(scratch->path));
	(void)snprintf(script, sizeof script,
		       "cd %s && mkdir root outside && printf precious >outside/file",
		       scratch->path);
	shell(script);
	(void)snprintf(script, sizeof script, "%s/root", scratch->path);
	scratch->root_fd = open(script, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(scratch->root_fd, 0);
}

void scratch_end(struct scratch *scratch)
{
	char script[256];

	(void)close(scratch->root_fd);
	(void)snprintf(
		script, sizeof script,
		"cd %s && [ \"$(ls -A outside)\" = file ] && [ $(stat -c %%h outside/file) = 1 ]"
		" && [ \"$(cat outside/file)\" = precious ]",
		scratch->path);
	shell(script);
	(void)snprintf(script, sizeof script, "chmod -R u+rwx %s; rm -rf %s", scratch->path,
		       scratch->path);
	shell(script);
}

void scratch_sh(const struct scratch *scratch, const char *script)
{
	char line[1024];

	(void)snprintf(line, sizeof line, "cd %s/root && %s", scratch->path, script);
	shell(line);
}

char *scratch_says(const struct scratch *scratch, const char *script)
{
	char line[1024], *text = calloc(1, 4096);
	FILE *pipe;

	(void)snprintf(line, sizeof line, "cd %s/root && %s", scratch->path, script);
	pipe = popen(line, "r"); /* NOLINT: of this test */
	cr_assert_not_null(pipe);
	(void)!fread(text, 1, 4095, pipe);
	(void)pclose(pipe);
	return text;
}

/* In three processes, so that nobody waits for anybody: the helper, who feeds it, and this one. */
static void input_feed(const struct asked *asked, int fd, int control_fd)
{
	const char *at = asked->input;
	struct guest_commit commit = { GUEST_COMMIT, sizeof commit, asked->input_bytes };

	for (size_t left = asked->input_bytes; left;) {
		ssize_t n = write(fd, at, left);

		if (n < 0)
			break;
		at += n;
		left -= (size_t)n;
	}
	(void)close(fd);
	if (!asked->uncommitted)
		(void)send(control_fd, &commit, sizeof commit, MSG_NOSIGNAL);
	else
		(void)shutdown(control_fd, SHUT_RDWR);
	_exit(0);
}

static void output_take(struct answered *answered, int fd)
{
	char bytes[1 << 16];
	ssize_t n;

	while ((n = read(fd, bytes, sizeof bytes)) > 0) {
		answered->output = realloc(answered->output, answered->output_bytes + (size_t)n);
		memcpy(answered->output + answered->output_bytes, bytes, (size_t)n);
		answered->output_bytes += (size_t)n;
	}
}

static void packets_take(struct answered *answered, int fd)
{
	char packet[sizeof(struct guest_row) + 2 * GUEST_NAME_BYTES_MAX];
	ssize_t n;

	while (!answered->answered && (n = recv(fd, packet, sizeof packet, 0)) > 0) {
		struct guest_row *row = &answered->rows[answered->row_count];

		if ((size_t)n == sizeof answered->done && packet[0] == GUEST_DONE) {
			memcpy(&answered->done, packet, sizeof answered->done);
			answered->answered = true;
			continue;
		}
		cr_assert_eq(packet[0], GUEST_ROW);
		cr_assert_lt(answered->row_count, ROWS_KEPT_MAX);
		memcpy(row, packet, sizeof *row);
		answered->names[answered->row_count++] =
			strndup(packet + sizeof *row, row->name_bytes);
	}
}

static void ask_send(const struct asked *asked, int fd)
{
	static char packet[GUEST_ASK_BYTES_MAX];
	struct guest_ask ask = {
		.packet = GUEST_ASK,
		.size = sizeof ask,
		.verb = asked->verb,
		.flags = asked->flags,
		.mode = asked->mode,
		.limit = asked->limit,
		.offset = asked->offset,
		.bytes_max = asked->bytes_max,
		.path_bytes = (uint32_t)strlen(asked->path),
		.to_bytes = asked->to ? (uint32_t)strlen(asked->to) : 0,
	};

	memcpy(packet, &ask, sizeof ask);
	memcpy(packet + sizeof ask, asked->path, ask.path_bytes);
	if (asked->to)
		memcpy(packet + sizeof ask + ask.path_bytes, asked->to, ask.to_bytes);
	cr_assert_geq(send(fd, packet, sizeof ask + ask.path_bytes + ask.to_bytes, 0), 0);
}

struct answered files_ask(const struct scratch *scratch, const struct asked *asked)
{
	struct answered answered = { 0 };
	int control[2], in[2], out[2];
	pid_t helper, feeder;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, control), 0);
	cr_assert_eq(pipe(in) | pipe(out), 0);
	ask_send(asked, control[0]);
	(void)fflush(NULL);
	helper = fork();
	if (helper == 0) {
		(void)close(in[1]);
		(void)close(out[0]);
		(void)close(control[0]);
		(void)umask(0);
		(void)signal(SIGPIPE, SIG_IGN);
		_exit(files_serve(scratch->root_fd, in[0], out[1], control[1]));
	}
	(void)close(in[0]);
	(void)close(out[1]);
	(void)close(control[1]);
	feeder = fork();
	if (feeder == 0) {
		(void)signal(SIGPIPE, SIG_IGN);
		input_feed(asked, in[1], control[0]);
	}
	(void)close(in[1]);
	output_take(&answered, out[0]);
	(void)close(out[0]);
	packets_take(&answered, control[0]);
	(void)waitpid(feeder, NULL, 0);
	(void)close(control[0]);
	(void)waitpid(helper, NULL, 0);
	return answered;
}

void answered_done(struct answered *answered)
{
	for (unsigned i = 0; i < answered->row_count; i++)
		free(answered->names[i]);
	free(answered->output);
}

const struct guest_row *answered_row(const struct answered *answered, const char *name)
{
	for (unsigned i = 0; i < answered->row_count; i++)
		if (!strcmp(answered->names[i], name))
			return &answered->rows[i];
	return NULL;
}
