/* The verbs of dsec: one table drives finding, help and completion. */
#pragma once

#include "sdk/cli/verbs.h"

struct command {
	const char *name;
	enum verb verb;
	int (*run)(const struct options *options);
	/*
	 * What stands after it, for completion: ID, IMAGE, EXEC, FILE, or "ID:" (a place in a
	 * sandbox, or a file) for each argument; "..." repeats the last. With '|' the first one is
	 * a word, and what comes after it stands there: "ls|rm IMAGE...". NULL: nothing.
	 */
	const char *takes;
	const char *arguments, *help;
};

/* NULL: there is no such verb. */
const struct command *command_find(const char *name);
/* Promised, and not there yet. */
bool command_is_later(const char *name);
/* The one after it, NULL after the last; after NULL: the first. */
const struct command *command_next(const struct command *command);
