/* `dsec ps --execs`: the programs of one sandbox. Called by ps.c. */
#include "sdk/cli/execs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/session.h"
#include "sdk/cli/table.h"
#include "sdk/cli/values.h"

enum { EXEC_NUMBER, EXEC_STATE, EXEC_AGE, EXEC_TOOK, EXEC_OUTPUT, EXEC_USER, EXEC_COMMAND };

static const struct column columns[] = {
	[EXEC_NUMBER] = { "EXEC", 6 },	   [EXEC_STATE] = { "STATE", 14 },
	[EXEC_AGE] = { "AGE", 7 },	   [EXEC_TOOK] = { "TOOK", 7 },
	[EXEC_OUTPUT] = { "OUTPUT", 9 },   [EXEC_USER] = { "USER", 8 },
	[EXEC_COMMAND] = { "COMMAND", 0 }, { NULL, 0 },
};

static json_t *texts_json(const struct dsec_bytes *texts, uint32_t count)
{
	json_t *array = json_array();

	for (uint32_t at = 0; at < count; at++) {
		json_t *text = json_text(texts[at]);

		/* Bytes that are no text stand there in an object of their own. */
		if (json_is_null(text))
			text = json_pack("{s:o}", "base64", json_base64(texts[at]));
		(void)json_array_append_new(array, text);
	}
	return array;
}

static void row_json(const void *state)
{
	const struct dsec_exec_row *row = state;
	bool ended = row->reason == DSEC_EXIT || row->reason == DSEC_NOT_STARTED;
	auto_json json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(object, "sandbox", json_id(row->sandbox));
	(void)json_object_set_new(object, "exec", json_amount(row->exec));
	(void)json_object_set_new(object, "reason", json_string(reason_name(row->reason)));
	(void)json_object_set_new(object, "code",
				  ended ? json_integer(row->exit_code) : json_null());
	(void)json_object_set_new(object, "signal",
				  row->signal ? json_integer(row->signal) : json_null());
	(void)json_object_set_new(object, "age_ms", json_amount(row->age_ms));
	(void)json_object_set_new(object, "wall_ms", json_real((double)row->wall_us / 1000));
	(void)json_object_set_new(object, "stdout_bytes", json_amount(row->stdout_bytes));
	(void)json_object_set_new(object, "stderr_bytes", json_amount(row->stderr_bytes));
	(void)json_object_set_new(object, "argv", texts_json(row->argv, row->argc));
	(void)json_object_set_new(object, "env", texts_json(row->env, row->env_count));
	(void)json_add_bytes(object, "cwd", row->cwd);
	(void)json_add_bytes(object, "user", row->user);
	(void)json_object_set_new(object, "truncated", json_boolean(row->truncated));
	(void)json_line(stdout, object); /* told at the end, by main() */
}

static void state_print(const struct dsec_exec_row *row, char ret_text[VALUE_TEXT_BYTES])
{
	if (row->reason == DSEC_EXIT)
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "exit %d", row->exit_code);
	else if (row->reason == DSEC_SIGNAL)
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "signal %d", row->signal);
	else
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%s", reason_name(row->reason));
}

static void row_show(const void *state, bool number_alone)
{
	const struct dsec_exec_row *row = state;
	static const struct column unpadded = { "", 0 };
	char text[VALUE_TEXT_BYTES];

	(void)snprintf(text, sizeof(text), "%" PRIu64, row->exec); /* fits, as all here */
	if (number_alone) {
		(void)puts(text); /* told at the end, by main() */
		return;
	}
	table_text(&columns[EXEC_NUMBER], text);
	state_print(row, text);
	table_text(&columns[EXEC_STATE], text);
	value_print_ms(row->age_ms, text);
	table_text(&columns[EXEC_AGE], text);
	value_print_ms(row->wall_us / 1000, text);
	table_text(&columns[EXEC_TOOK], text);
	value_print_bytes(row->stdout_bytes + row->stderr_bytes, text);
	table_text(&columns[EXEC_OUTPUT], text);
	table_cell(&columns[EXEC_USER],
		   row->user.bytes ? row->user : (struct dsec_bytes){ "root", 4 });
	for (uint32_t at = 0; at < row->argc; at++) {
		table_text(&unpadded, at ? " " : "");
		table_cell(&unpadded, row->argv[at]);
	}
	table_text(&unpadded, row->truncated ? " ..." : "");
	table_end();
}

static const struct session_rows telling = { row_json, row_show };

int execs_show(struct session *session, const char *sandbox)
{
	const struct options *options = session->options;
	struct dsec_list_opts opts = { .size = sizeof(opts), .what = DSEC_LIST_EXECS };
	struct dsec_call call = session_call(session);

	if (select_one(session, sandbox, &opts.sandbox) < 0)
		return EXIT_TROUBLE;
	if (!options->json && !options->quiet)
		table_head(options, columns);
	return session_tell_rows(session, dsec_list(session->d, &call, &opts), "ps", &telling) < 0 ?
		       EXIT_TROUBLE :
		       0;
}
