/*
 * Code of a test that runs inside a sandbox as the worst that could be there: the sandbox's root
 * with every capability in its user namespace and without the filter. What fails for it fails
 * because of the namespaces alone; what it can do shows what the other rules are for.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "tests/root/launch/harness.h"

/* Runs in a process of the sandbox; the result becomes its exit status. */
typedef int insider_run(void *argument);

/* The one that waits for it outside; it ends when the insider does, with the same status. */
pid_t insider_start(const struct box *box, insider_run *run, void *argument);
/* In another user namespace than the sandbox's. */
pid_t insider_start_as(const struct box *box, int userns_fd, insider_run *run, void *argument);
/* Starts, waits, and says whether the result was 0. */
bool insider_fine(const struct box *box, insider_run *run, void *argument);
