/*
 * Children of a worker. A child shares the worker's memory until its program runs, on a stack of
 * its own, and makes system calls only. The worker's wait for that moment is bounded: what a
 * sandbox can do to the child (stop it, freeze it, feed it a file that never answers) costs one
 * request. A child that cannot even be killed keeps its stack for ever.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backends/container/attempt.h"

struct worker;

enum {
	STACKS_MAX = 64,
	STACK_BYTES = 32 * 1024,
	STACK_TEXT_BYTES = 64 * 1024,
	STACK_HOME_BYTES = 4096 + 8,
};

/* Handed to the child by value; descriptors are the worker's, valid in its copy of the table. */
struct child {
	struct worker *worker;
	struct attempt attempt;
	int fds[4];
	char *text; /* STACK_TEXT_BYTES of the child's own */
	char *home; /* STACK_HOME_BYTES, too: a variable of its environment */
};

struct spawn {
	uint64_t flags;
	int cgroup_fd;			  /* with CLONE_INTO_CGROUP */
	long (*run)(struct child *child); /* returns only to fail; 0 ends the child in peace */
	bool must_start;		  /* to be killed before its program, ARGV0, is to fail */
	struct child child;
	uint32_t limit_ms;
	/* results */
	pid_t pid;
	int pidfd; /* kept where keep_pidfd asks for it, else -1 */
	bool keep_pidfd;
};

/* Maps the stacks. */
int stacks_open(struct worker *w);

/*
 * 0: the child's program runs, or run() returned 0, or somebody killed the child; with must_start
 * and before its program that is -ECHILD.
 * -errno with the step in w->attempt: the child failed and has ended or is ending; spawn.pid says
 * whether there is one to be reaped.
 */
long child_spawn(struct worker *w, struct spawn *spawn);
/* In the child: it may run where its worker could when that began (LAUNCH_WIDE). */
long child_widen(struct child *child);
