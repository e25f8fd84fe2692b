/*
 * Load that is no sandbox's life: calls of functions, no-ops, and one create of many. Each scenario
 * has its own account: asked = done + refused + failed.
 */
#pragma once

#include "loadgen/options.h"

/* Runs the options' scenario, prints its line and appends its JSON; the exit status of main(). */
int calls_run(const struct options *options);
