/*
 * Names of the launcher's steps, for errors and traces. Called by the engine and by tests.
 */
#include "backends/container/launch.h"

static const char *const step_names[] = {
	[LAUNCH_STEP_NONE] = "none",
	[LAUNCH_STEP_REQUEST] = "request",
	[LAUNCH_STEP_USERNS] = "userns",
	[LAUNCH_STEP_CGROUP] = "cgroup",
	[LAUNCH_STEP_UPPER] = "upper",
	[LAUNCH_STEP_LOWER] = "lower",
	[LAUNCH_STEP_OVERLAY] = "overlay",
	[LAUNCH_STEP_DEVPTS] = "devpts",
	[LAUNCH_STEP_NETNS] = "netns",
	[LAUNCH_STEP_ROOT] = "root",
	[LAUNCH_STEP_CLONE] = "clone",
	[LAUNCH_STEP_PROC] = "proc",
	[LAUNCH_STEP_MASK] = "mask",
	[LAUNCH_STEP_HOSTNAME] = "hostname",
	[LAUNCH_STEP_NAMESPACES] = "namespaces",
	[LAUNCH_STEP_STDIO] = "stdio",
	[LAUNCH_STEP_SESSION] = "session",
	[LAUNCH_STEP_CREDENTIALS] = "credentials",
	[LAUNCH_STEP_USER] = "user",
	[LAUNCH_STEP_CWD] = "cwd",
	[LAUNCH_STEP_ARGV0] = "argv0",
	[LAUNCH_STEP_WAIT] = "wait",
	[LAUNCH_STEP_KILL] = "kill",
	[LAUNCH_STEP_PORT] = "port",
	[LAUNCH_STEP_EGRESS] = "egress",
	[LAUNCH_STEP_TTY] = "tty",
	[LAUNCH_STEP_LIMIT] = "limit",
	[LAUNCH_STEP_SIGNAL] = "signal",
	[LAUNCH_STEP_PROOF] = "proof",
	[LAUNCH_STEP_WALLS] = "walls",
	[LAUNCH_STEP_RESOLVER] = "resolver",
	[LAUNCH_STEP_FREEZE] = "freeze",
};

_Static_assert(sizeof step_names / sizeof *step_names == LAUNCH_STEP_COUNT, "a step has no name");

const char *launch_step_name(uint32_t step)
{
	return step < LAUNCH_STEP_COUNT ? step_names[step] : "unknown";
}
