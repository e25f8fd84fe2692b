/* The environment that a command line asks for. */
#pragma once

#include "sdk/cli/params.h"

/*
 * Reads what --env-file names into options->env, before what --env says, and leaves the last of
 * each name. 0, or -errno with options->problem.
 */
int environment_read(struct options *options);
