/* `dsec logs`: what an exec wrote, and what it goes on to write. Called by main.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "sdk/cli/outcome.h"
#include "sdk/cli/select.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

/* An exec, and how much it wrote so far. */
struct written {
	uint64_t exec, bytes[2];
};

static void row_keep(void *state, const struct dsec_event *event)
{
	const struct dsec_exec_row *row = event->body;
	struct written *written = state;

	if (event->kind == DSEC_EV_ROW && row && row->exec)
		*written = (struct written){ row->exec, { row->stdout_bytes, row->stderr_bytes } };
}

/* That of its number, or with 0 the latest of those that run or are kept. */
static int written_find(struct session *session, struct dsec_id id, struct written *ret)
{
	uint64_t wanted = ret->exec;
	struct dsec_call call = session_call(session);
	struct dsec_list_opts opts = { .size = sizeof(opts),
				       .what = DSEC_LIST_EXECS,
				       .sandbox = id,
				       .after = { 0, wanted ? wanted - 1 : 0 },
				       .limit = wanted ? 1 : 0 };
	int r;

	ret->exec = 0;
	r = session_events(session, dsec_list(session->d, &call, &opts), "logs", row_keep, ret);
	if (r < 0)
		return r;
	if (ret->exec && (!wanted || ret->exec == wanted))
		return 0;
	ret->exec = wanted;
	if (wanted)
		return 0; /* the engine has the words for it */
	(void)session_fail_error(session, -ENOENT, "logs",
				 "no program runs there, and none is kept");
	return -ENOENT;
}

static uint64_t tail_of(uint64_t bytes, uint64_t tail)
{
	return bytes > tail ? bytes - tail : 0;
}

static int logs(struct session *session, struct dsec_id id, uint64_t exec)
{
	const struct options *given = session->options;
	struct options options = *given;
	struct written written = { .exec = exec };
	int status;

	if ((!exec || given->tail_bytes) && written_find(session, id, &written) < 0)
		return EXIT_TROUBLE;
	if (given->tail_bytes) {
		options.from = tail_of(written.bytes[0], given->tail_bytes);
		options.from_stderr = tail_of(written.bytes[1], given->tail_bytes);
	}
	session->options = &options;
	status = outcome_attach(session, id, written.exec, !given->follow);
	session->options = given;
	return status;
}

int verb_logs(const struct options *options)
{
	struct session session = { .options = options };
	int status = EXIT_TROUBLE;
	uint64_t exec = 0;
	struct dsec_id id;

	if (options->argument_count < 1 || options->argument_count > 2)
		status = session_refuse(&session, "logs wants a sandbox, and perhaps the number of "
						  "an exec: dsec logs ID [EXEC]");
	else if (options->argument_count == 2 &&
		 (value_parse_number(options->arguments[1], &exec) < 0 || !exec))
		status = session_refuse(&session, "logs: '%.40s' is no number of an exec",
					options->arguments[1]);
	else if (options->tail_bytes && (options->from || options->from_stderr))
		status = session_refuse(&session, "logs: --tail and --from exclude each other");
	else if (session_open(&session, false) == 0 &&
		 select_one(&session, options->arguments[0], &id) == 0)
		status = logs(&session, id, exec);
	return session_end(&session, status);
}
