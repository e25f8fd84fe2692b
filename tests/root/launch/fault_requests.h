/*
 * The requests whose every system call is made to fail, once each, by test_launch_faults.c: one row
 * for each way a request can go. Where to add a new operation of the launcher, or a flag that takes
 * another way through one: a row at the end of fault_requests.c. The test fails as long as there is
 * an operation without a row.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tests/root/launch/harness.h"

enum { FAULT_SLOT = 0, FAULT_TRACED = 0, FAULT_PLAIN = 1, FAULT_LEAF = 3 };

/* What one case has; made anew for each. */
struct fault_case {
	struct box box;	 /* PID 1, where `prepare` made one, or the request did */
	pid_t program;	 /* a program in it; 0: none */
	int fd;		 /* goes along with the request; 0: none */
	int listener_fd; /* in the network; 0: none */
};

struct fault_request {
	const char *name;
	uint32_t op, flags;
	/* What there must be before, by the worker that no call fails in; may be NULL. */
	void (*prepare)(struct harness *h, struct fault_case *c);
	/* The rest of the request; may be NULL. LAUNCH_EXEC is always that of fault_argv. */
	void (*fill)(struct harness *h, struct fault_case *c, struct launch_request *q);
	/* What must be true when it was answered well, asked once or twice; may be NULL. */
	void (*look)(struct harness *h, struct fault_case *c, const struct launch_reply *reply);
};

extern const struct fault_request fault_requests[];
extern const unsigned fault_request_count;

/* The program that LAUNCH_EXEC is asked for. */
extern const char *const fault_argv[];
extern const struct exec_options fault_exec;
/* An image beside the harness's own. */
enum { FAULT_IMAGE = 8 };
