/*
 * The wire of functions and their calls: the part of ring.h that is about them, which includes it.
 */
#pragma once

#include <dsec/ring.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DSEC_FUNCTION_FLAGS_KNOWN = 3, DSEC_INVOKE_INPUTS_MAX = 1024 };

/*
 * register: the LAST has the function's id as its subject; the same again, under the same name, is
 * the same function; another under that name is CONFLICT. list: a ROW each, in order of ids.
 */
struct dsec_wire_function {
	uint32_t size, verb;	   /* enum dsec_function_verb; all below: register only */
	uint32_t flags, isolation; /* enum dsec_function_flag, enum dsec_isolation */
	struct dsec_wire_ref name, image, user, cwd;
	struct dsec_wire_items argv, env;
	uint64_t memory_bytes, disk_bytes, output_bytes; /* 0: the default */
	uint32_t cpu_ms, wall_ms, pids_max, reserved0;
	struct dsec_wire_ref policy; /* empty: none, as `default` */
	uint64_t reserved[3];
};

/* Body of a function's ROW: what is in force. */
struct dsec_wire_function_row {
	uint32_t size, isolation;
	struct dsec_wire_id id;
	uint64_t memory_bytes, disk_bytes, output_bytes;
	uint32_t cpu_ms, wall_ms, pids_max;
	uint32_t unenforced; /* bits of enum dsec_limit */
	uint64_t age_ms;
	struct dsec_wire_ref name, image;
	struct dsec_wire_items argv;
	struct dsec_wire_ref policy;
	uint64_t reserved[3];
};

/*
 * One call per input. Of each, by its index and in any order: DATA of stream 1 and of stream 2,
 * then DONE with a dsec_wire_called, or with the status that says why it was not made. One input:
 * that DONE is the LAST. More: the LAST comes after all of them, without a body. Told again under a
 * request id there may be a GAP, as of an exec's streams, for what is not kept.
 */
struct dsec_wire_invoke {
	uint32_t size, flags; /* flags: 0 */
	struct dsec_wire_items inputs;
	uint64_t reserved[4];
};

/* cpu_us is of everything that ran; UINT64_MAX: not measured. */
struct dsec_wire_called {
	uint32_t size, verdict; /* enum dsec_verdict */
	uint32_t reason;	/* enum dsec_reason */
	int32_t exit_code, signal;
	uint32_t reserved0;
	uint64_t cpu_us, wall_us, memory_peak_bytes;
	uint64_t stdout_bytes, stderr_bytes; /* sent */
	uint64_t reserved[3];
};

DSEC__ASSERT(sizeof(struct dsec_wire_function) == 152);
DSEC__ASSERT(sizeof(struct dsec_wire_function_row) == 136);
DSEC__ASSERT(sizeof(struct dsec_wire_invoke) == 56);
DSEC__ASSERT(sizeof(struct dsec_wire_called) == 88);

#ifdef __cplusplus
}
#endif
