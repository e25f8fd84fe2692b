/*
 * Owns the scenarios: what each asks, in which order, and what its figures include. Read by the
 * load loop and the report. Must hold: the tables say everything; there is no code for a scenario.
 */
#include "loadgen/load.h"

#include <string.h>

#define INCLUDES_SANDBOX                                                                           \
	"user, mount, pid, ipc, uts, net and cgroup namespaces",                                   \
		"overlay root on the EROFS image", "/proc with masks, device nodes",               \
		"capabilities, no_new_privs, seccomp", "PID 1 in an address space of its own"

static const struct load_scenario scenarios[] = {
	{
		.name = "ready",
		.latency_of = "create, from asking to CREATED",
		.includes = { INCLUDES_SANDBOX, "destroy: killed, reaped, confirmed" },
		.phases = { { .pace = LOAD_TIMED,
			      .is_asking = true,
			      .is_ending = true,
			      .is_measured = true,
			      .timed_op = LOAD_CREATE,
			      .ops = { LOAD_CREATE, LOAD_PROBE, LOAD_DESTROY } } },
		.phase_count = 1,
	},
	{
		.name = "exec",
		.latency_of = "create and run, from asking to the exit status",
		.includes = { INCLUDES_SANDBOX,
			      "exec of a freestanding program, exit status checked",
			      "stdout and stderr captured", "destroy: killed, reaped, confirmed" },
		.phases = { { .pace = LOAD_TIMED,
			      .is_asking = true,
			      .is_ending = true,
			      .is_measured = true,
			      .timed_op = LOAD_EXEC,
			      .ops = { LOAD_CREATE, LOAD_EXEC, LOAD_PROBE, LOAD_DESTROY } } },
		.phase_count = 1,
	},
	{
		.name = "live-exec",
		.latency_of = "exec, from asking to the exit status",
		.includes = { "entering a live sandbox from outside",
			      "credentials, capabilities, no_new_privs, seccomp",
			      "stdout and stderr captured",
			      "a freestanding program, exit status checked" },
		.phases = { { .pace = LOAD_FILL, .ops = { LOAD_CREATE, LOAD_PROBE } },
			    { .pace = LOAD_TIMED,
			      .is_asking = true,
			      .is_ending = true,
			      .is_measured = true,
			      .timed_op = LOAD_EXEC,
			      .ops = { LOAD_EXEC } },
			    { .pace = LOAD_EMPTY, .ops = { LOAD_PROBE, LOAD_DESTROY } } },
		.phase_count = 3,
	},
	{
		.name = "hold",
		.latency_of = "create, from asking to CREATED",
		.includes = { INCLUDES_SANDBOX, "all sandboxes alive at once, idle",
			      "destroy: killed, reaped, confirmed" },
		.phases = { { .pace = LOAD_FILL,
			      .is_asking = true,
			      .is_measured = true,
			      .timed_op = LOAD_CREATE,
			      .ops = { LOAD_CREATE, LOAD_PROBE } },
			    { .pace = LOAD_EMPTY,
			      .is_ending = true,
			      .ops = { LOAD_PROBE, LOAD_DESTROY } } },
		.phase_count = 2,
		.is_holding = true,
	},
	{
		.name = "call-fresh",
		.kind = LOAD_CALL_FRESH,
		.latency_of = "invoke sent to its answer",
		.includes = { "a sandbox made for every call: namespaces, root, cgroup",
			      "a freestanding program that echoes 16 bytes, checked", "destroy" },
	},
	{
		.name = "call-domain",
		.kind = LOAD_CALL_DOMAIN,
		.latency_of = "invoke sent to its answer",
		.includes = { "a process of its own for every call, in a sandbox of the domain",
			      "a freestanding program that echoes 16 bytes, checked",
			      "the proof that nothing of a call is left" },
	},
	{
		.name = "mixed",
		.kind = LOAD_MIXED,
		.latency_of = "one unit of either kind",
		.includes = { "a third each: fresh calls, calls of a domain, create and destroy" },
	},
	{
		.name = "no-op",
		.kind = LOAD_NOOP,
		.latency_of = "ping sent to its answer",
		.includes = { "a request and its answer over the rings, no work" },
	},
	{
		.name = "burst",
		.kind = LOAD_BURST,
		.latency_of = "the one request sent to each sandbox ready",
		.includes = { "one create of many",
			      "each listed afterwards; destroy is not timed" },
	},
};

const struct load_scenario *load_scenario_find(const char *name)
{
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++) {
		if (!strcmp(scenarios[i].name, name))
			return &scenarios[i];
	}
	return NULL;
}
