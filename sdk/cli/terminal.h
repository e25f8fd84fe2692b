/* A program on a terminal of its own, and the user's before it. */
#pragma once

#include "sdk/cli/session.h"

struct terminal_wish {
	struct dsec_id sandbox;
	const struct dsec_exec_opts *opts; /* flags, rows and columns are added */
	bool input;			   /* what is typed goes there */
	void (*last)(void *state, const struct dsec_event *event);
	void *state;
};

/*
 * Runs it to its end, of which `last` is told. While it runs and types, the user's terminal is raw;
 * it is as before whenever this returns, and while this process is stopped. A signal that would
 * have ended dsec hangs the program's terminal up: 128 and its number then, else 0, or -errno
 * after a line on stderr.
 */
int terminal_run(struct session *session, const struct terminal_wish *wish);
