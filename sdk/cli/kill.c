/* `dsec kill`: a signal to a program in a sandbox. Called by main.c. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

enum { SIGNALS = 65 };

/* "TERM", "SIGTERM", "15". */
static int signal_parse(const char *text, int *ret)
{
	const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
	uint64_t number;

	if (value_parse_number(text, &number) == 0) {
		if (number < 1 || number >= SIGNALS)
			return -EINVAL;
		*ret = (int)number;
		return 0;
	}
	for (int at = 1; at < SIGNALS; at++) {
		const char *abbreviation = sigabbrev_np(at);

		if (abbreviation && strcasecmp(abbreviation, name) == 0) {
			*ret = at;
			return 0;
		}
	}
	return -EINVAL;
}

static int send(struct session *session, uint64_t exec, int signal)
{
	struct dsec_call call = session_call(session);
	struct dsec_id id;

	if (select_one(session, session->options->arguments[0], &id) < 0)
		return EXIT_TROUBLE;
	if (session_events(session, dsec_signal(session->d, &call, id, exec, signal), "kill", NULL,
			   NULL) < 0)
		return EXIT_TROUBLE;
	return session_done(session);
}

int verb_kill(const struct options *options)
{
	struct session session = { .options = options };
	int signal = options->terminal ? SIGHUP : SIGTERM;
	uint64_t exec = 0;

	if (options->argument_count != 2 || value_parse_number(options->arguments[1], &exec) < 0)
		return session_end(&session,
				   session_refuse(&session, "kill wants a sandbox and the number "
							    "of an exec: dsec kill ID EXEC"));
	if (options->signal && signal_parse(options->signal, &signal) < 0)
		return session_end(&session, session_refuse(&session, "kill: '%s' is no signal",
							    options->signal));
	if (options->terminal && (options->all || signal != SIGHUP))
		return session_end(&session,
				   session_refuse(&session, "kill: --terminal is a hang-up: it "
							    "takes neither --all nor another "
							    "signal"));
	if (options->all)
		signal |= DSEC_SIGNAL_ALL;
	if (options->terminal)
		signal |= DSEC_SIGNAL_TERMINAL;
	if (session_open(&session, false) < 0)
		return session_end(&session, EXIT_TROUBLE);
	return session_end(&session, send(&session, exec, signal));
}
