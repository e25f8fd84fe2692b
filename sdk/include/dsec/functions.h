/*
 * Functions: programs that are registered once and called often, with an input and for an output.
 * A part of dsec.h, whose contracts hold here too.
 */
#pragma once

#include <dsec/dsec.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* 0: the default, which is the engine's; see docs/functions.md. */
struct dsec_function_opts {
	uint32_t size, verb; /* enum dsec_function_verb; REMOVE: id; LIST: nothing else */
	struct dsec_id id;
	const char *name, *image; /* letters, digits and . _ - : / ; both are needed */
	const char *cwd, *user;	  /* NULL: the image's */
	const struct dsec_bytes *argv;
	const struct dsec_bytes *env; /* "NAME=value", over the image's */
	uint32_t argc, env_count;
	uint32_t flags, isolation; /* bits of enum dsec_function_flag; enum dsec_isolation */
	/* Of one call: memory, its writable files, stdout and stderr together. */
	uint64_t memory_bytes, disk_bytes, output_bytes;
	/* Of one call: CPU time of all that it starts, time by the clock, processes at once. */
	uint32_t cpu_ms, wall_ms, pids_max;
	uint32_t reserved; /* 0 */
	/* What its calls may do, as in dsec_create_opts; the version there is now. NULL: none. */
	const char *policy;
};

/* Body of a function's DSEC_EV_ROW: what is in force. */
struct dsec_function_row {
	uint32_t size, isolation;
	struct dsec_id id;
	uint64_t memory_bytes, disk_bytes, output_bytes; /* memory_bytes 0: none */
	uint32_t cpu_ms, wall_ms, pids_max;		 /* cpu_ms 0: none but wall_ms */
	uint32_t unenforced; /* bits of enum dsec_limit that this host cannot enforce */
	uint64_t age_ms;
	struct dsec_bytes name, image;
	const struct dsec_bytes *argv;
	uint32_t argc, reserved;
	struct dsec_bytes policy; /* empty: none */
};

/*
 * register: the subject of the DSEC_EV_DONE is the function's id. It lives until it is removed or
 * the engine ends. The same again is the same function; DSEC_CONFLICT: another has the name.
 * list: a DSEC_EV_ROW each, then DSEC_EV_DONE. remove: calls that were taken still end as they do.
 */
int64_t dsec_function(struct dsec *d, const struct dsec_call *call,
		      const struct dsec_function_opts *opts);

/*
 * Body of a call's DSEC_EV_DONE. cpu_us is of everything that ran in the call, memory_peak_bytes
 * the most that the program, or one of the children it waited for, had resident. UINT64_MAX: not
 * measured on this host.
 */
struct dsec_called {
	uint32_t size, verdict; /* enum dsec_verdict */
	uint32_t reason;	/* enum dsec_reason */
	int32_t exit_code, signal;
	uint32_t reserved;
	uint64_t cpu_us, wall_us, memory_peak_bytes;
	uint64_t stdout_bytes, stderr_bytes; /* that came as DSEC_EV_DATA, at most output_bytes */
};

/*
 * Calls a function once per input, at most 1,024 of them and 1 MiB in all: the input is stdin, from
 * its start to its end. Events of each call, by `index` and in any order: DSEC_EV_DATA of stream 1
 * and of stream 2, then DSEC_EV_DONE with a struct dsec_called; or without, and a status that says
 * why it was not made: DSEC_REFUSED with retry_after_ms, where too many wait. With one input that
 * is the last event; with more the last comes after all of them and has no body.
 *
 * A call whose connection goes is ended. Asked again under its request id, each input that had its
 * verdict has it again, with DSEC_REPLAYED, and the others are called. Of what they wrote 128 KiB a
 * request are kept for that; a DSEC_EV_GAP, with offset and bytes, stands for the rest.
 */
int64_t dsec_invoke(struct dsec *d, const struct dsec_call *call, struct dsec_id function,
		    const struct dsec_bytes *inputs, uint32_t count);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
