/* `dsec exec`: a program in a sandbox that is there. Called by main.c. */
#include <stdio.h>

#include "sdk/cli/outcome.h"
#include "sdk/cli/verbs.h"

int verb_exec(const struct options *options)
{
	int status = EXIT_TROUBLE;
	struct session session;
	struct dsec_id id;

	if (!options->argument_count || !options->command_count) {
		(void)fputs("dsec: exec wants a sandbox and a program: dsec exec ID -- PROGRAM\n",
			    stderr);
		return EXIT_TROUBLE;
	}
	if (session_open(&session, options, false) < 0)
		return EXIT_TROUBLE;
	if (session_resolve(&session, options->arguments[0], &id) == 0)
		status = outcome_run(&session, id);
	session_close(&session);
	return status;
}
