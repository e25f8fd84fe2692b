/*
 * An exec from the inside: shared by exec.c, which runs it, and exec_result.c, which says how it
 * ended.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "engine/base/flow.h"
#include "engine/base/timer.h"
#include "engine/capture.h"
#include "engine/sandbox.h"

struct exec;
struct part;
struct request;
struct record;

struct stream {
	struct io_op op;
	struct exec *exec;
	struct capture capture;
	int fd;
	bool reading;
	char *buffer; /* READ_BYTES */
};

struct exec {
	struct flow flow;
	struct sandbox *sandbox;
	struct exec *next, **link;
	struct part *part; /* NULL: its request was cancelled, it goes on unheard */
	struct run *run;
	struct run_spec spec;
	struct run_limit *limits; /* the spec's */
	uint64_t number, begun_ns, ended_ns;
	struct stream streams[2];
	int child_fds[3];
	struct io_op input;
	int input_fd;
	char *input_copy;
	const char *input_bytes;
	uint32_t input_left, timeout_ms;
	bool merge, inputting, started, run_over, killed;
	uint32_t reason; /* why it was killed, if it was */
	int status;
	struct timer limit;
	char user[USER_BYTES_MAX];
	uint8_t request_id[16];
	const char *failed_step;
};

/* The request's rlimits into exec->spec. */
struct status exec_limits(struct exec *exec, const struct request *request);
/* A limit that this host does not give, by its name: run->failed_limit. */
struct status exec_limit_refusal(const struct exec *exec);
/* To its request, if that still listens, and to the record. error: of its flow. */
void exec_report(struct exec *exec, int error);
/* The same request again: its result as recorded, without the output, or why there is none. */
void exec_replay(struct part *part, int error, const struct record *record);
