/*
 * Lets system calls of a running launcher worker fail, from outside, by ptrace: the program is the
 * one that is shipped, and every call it or its children make on the way to a reply has its turn,
 * whoever wrote it and in whatever library. A process of its own traces, so that waiting for
 * children stays the test's.
 *
 * Counted are the calls from the arrival of a request to its reply, those of children up to their
 * program. Not counted are those that the kernel cannot let fail, or whose answer nobody uses:
 * close is carried out and then said to have failed; see saboteur.c for the rest.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* In memory that the tracing process shares. */
struct sabotage {
	volatile uint32_t fail_at; /* the call that fails, from 1 on; 0: none */
	volatile uint32_t counted; /* calls of the last request */
	volatile uint32_t failed;  /* whether that call came */
	volatile int64_t number;   /* of the call that failed */
	volatile int32_t error;
	volatile uint32_t by_child;
};

struct saboteur {
	struct sabotage *shared;
	pid_t tracer;
};

/* Traces the process from now on, and whatever it starts; false is a noted failure. */
bool saboteur_start(struct saboteur *s, pid_t worker);
/* The next request's nth call is to fail; 0: only count. */
void saboteur_arm(struct saboteur *s, uint32_t nth);
/* Lets go of everybody; fine where nothing was started, and where the worker is gone. */
void saboteur_end(struct saboteur *s);
