/* How a program in a sandbox ended: for people, as JSON, and as an exit status. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sdk/cli/session.h"

/*
 * Runs the options' command in the sandbox and shows its output and its end as the options say.
 * Returns dsec's exit status.
 */
int outcome_run(struct session *session, struct dsec_id sandbox);
/*
 * The same for an exec that is there; so_far: what it wrote until now, and 0 where it could be
 * told.
 */
int outcome_attach(struct session *session, struct dsec_id sandbox, uint64_t exec, bool so_far);
