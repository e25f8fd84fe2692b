/*
 * Hogs: leaves whose programs compute long. They yield to who does not: each of their threads has a
 * time slice longer than anybody else's, so that whoever wakes up runs before them, and all their
 * sessions together have the share of the CPUs that one has. Used from the governor's thread alone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct hogs;
struct io;
struct timers;

/* At once: who is one more goes on as it is. A look at each costs the governor some 0.1 ms. */
enum { HOGS_MAX = 256 };

struct hogs_options {
	struct io *io;
	struct timers *timers; /* with room for HOGS_MAX */
	int cgroup_fd;	       /* borrowed: any directory of cgroup v2 */
};

/*
 * On the governor's thread, while it has an ordinary policy. -EOPNOTSUPP: the kernel knows no
 * slices of tasks, so nobody can be made to yield.
 */
int hogs_open(const struct hogs_options *options, struct hogs **ret);
/* All are what they were before. NULL is fine. */
void hogs_close(struct hogs *h);
/* The kernel makes a group of each session, so that those of a hog can be made to share. */
bool hogs_have_sessions(const struct hogs *h);
/* The leaf computes long: from now on it is a hog, until it rests. */
void hogs_told(struct hogs *h, uint64_t leaf_id);
