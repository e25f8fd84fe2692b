/* `dsec exec`: a program in a sandbox that is there. Called by main.c. */
#include "sdk/cli/outcome.h"
#include "sdk/cli/select.h"
#include "sdk/cli/verbs.h"

int verb_exec(const struct options *options)
{
	struct session session = { .options = options, .runs = true };
	int status = EXIT_TROUBLE;
	struct dsec_id id;

	if (!options->argument_count || !options->command_count)
		status = session_refuse(&session, "exec wants a sandbox and a program: "
						  "dsec exec ID -- PROGRAM");
	else if (session_open(&session, false) == 0 &&
		 select_one(&session, options->arguments[0], &id) == 0)
		status = outcome_run(&session, id);
	return session_end(&session, status);
}
