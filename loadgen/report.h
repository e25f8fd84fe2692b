/* What a run came to: one line of JSON for programs, a few lines for people. */
#pragma once

#include "loadgen/machine.h"
#include "loadgen/options.h"
#include "loadgen/residue.h"

struct report {
	const struct options *options;
	const struct load_result *result;
	struct machine machine;
	struct machine_time time_begin, time_end; /* of the measured time */
	struct machine_memory memory_before, memory_held;
	struct residue_report residue;
	uint64_t live, alive_seen; /* at the end; by the residue checker while sandboxes lived */
	uint64_t settle_ms;	   /* until nothing was left */
	uint64_t callbacks_over_1ms,
		callback_max_us; /* of the engine's loops, by its own account */
	int error;		 /* of the run: 0 or -errno */
};

/* Everything that must hold for exit status 0. */
bool report_is_good(const struct report *report);

/* Appends to the file; -errno. */
int report_write_json(const struct report *report, const char *path);
void report_print(const struct report *report);
