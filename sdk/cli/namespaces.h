/* Namespaces, as the machine tells them: a set of their inodes, which all of them share. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct namespaces {
	uint64_t *inodes;
	size_t count, room; /* with repeats, until it is asked how many there are */
	int error;
};

/* Those of a process that are not our own; of one that is gone none. */
void namespaces_add_process(struct namespaces *set, pid_t pid);
/* One that a mount keeps, by its root in mountinfo: "net:[4026532177]"; other roots: none. */
void namespaces_add_mount(struct namespaces *set, const char *root);
/* How many there are that `without`, which may be NULL, has not. -ENOMEM. */
int64_t namespaces_count(struct namespaces *set, struct namespaces *without);
void namespaces_done(struct namespaces *set);
