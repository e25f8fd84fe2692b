/* How a program in a sandbox ended: for people, as JSON, and as an exit status. */
#pragma once

#include "sdk/cli/session.h"

/*
 * Runs the options' command in the sandbox and shows its output and its end as the options say.
 * Returns dsec's exit status.
 */
int outcome_run(struct session *session, struct dsec_id sandbox);
