/* `dsec attach`: the output of an exec that is there, to its end. Called by main.c. */
#include "sdk/cli/outcome.h"
#include "sdk/cli/select.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

int verb_attach(const struct options *options)
{
	struct session session = { .options = options };
	int status = EXIT_TROUBLE;
	struct dsec_id id;
	uint64_t exec;

	if (options->argument_count != 2)
		status = session_refuse(&session, "attach wants a sandbox and the number of an "
						  "exec: dsec attach ID EXEC");
	else if (value_parse_number(options->arguments[1], &exec) < 0 || !exec)
		status = session_refuse(&session, "attach: '%.40s' is no number of an exec",
					options->arguments[1]);
	else if (session_open(&session, false) == 0 &&
		 select_one(&session, options->arguments[0], &id) == 0)
		status = outcome_attach(&session, id, exec, false);
	return session_end(&session, status);
}
