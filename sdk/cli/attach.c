/* `dsec attach` and `dsec logs`: the output of an exec that is there. Called by main.c. */
#include "sdk/cli/outcome.h"
#include "sdk/cli/select.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

static int attach(const struct options *options, const char *verb, bool so_far)
{
	struct session session = { .options = options };
	int status = EXIT_TROUBLE;
	struct dsec_id id;
	uint64_t exec;

	if (options->argument_count != 2)
		status = session_refuse(&session,
					"%s wants a sandbox and the number of an exec: "
					"dsec %s ID EXEC",
					verb, verb);
	else if (value_parse_number(options->arguments[1], &exec) < 0 || !exec)
		status = session_refuse(&session, "%s: '%.40s' is no number of an exec", verb,
					options->arguments[1]);
	else if (session_open(&session, false) == 0 &&
		 select_one(&session, options->arguments[0], &id) == 0)
		status = outcome_attach(&session, id, exec, so_far);
	return session_end(&session, status);
}

int verb_attach(const struct options *options)
{
	return attach(options, "attach", false);
}

int verb_logs(const struct options *options)
{
	return attach(options, "logs", true);
}
