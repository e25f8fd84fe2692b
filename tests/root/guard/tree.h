/*
 * A cgroup tree as an engine makes it, for the guard's tests: an instance's root with two shards,
 * slots in them and a leaf in one, and beside it a tree of somebody else.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum tree_place {
	TREE_ROOT, /* the instance's */
	TREE_SHARD0,
	TREE_SHARD1,
	TREE_SLOT0,    /* of shard 0 */
	TREE_SLOT1,    /* of shard 0 */
	TREE_SLOT2,    /* of shard 1 */
	TREE_LEAF,     /* of slot 0 */
	TREE_STRANGER, /* as deep as a slot, below another root */
	TREE_UNTOLD,   /* as deep as a slot, below a shard that the guard was not told of */
	TREE_PLACES,
};

struct tree {
	char instance[32];
	int fds[TREE_PLACES];
	uint64_t ids[TREE_PLACES];
	uint32_t root_level;
	int home_fd; /* of the cgroup that tree_leave() goes back to; -1 */
};

struct guard_options;

/* Ends the test when it cannot be made. */
void tree_make(struct tree *tree);
/* Kill and reap what is left in it, remove it. */
void tree_remove(struct tree *tree);
/* For two shards, this process as engine. */
struct guard_options tree_options(const struct tree *tree);

/* Move this process to a place, and back to where it was: vfork() is then a fast tree_fork(). */
void tree_enter(struct tree *tree, enum tree_place place);
void tree_leave(struct tree *tree);

/* Like fork(), into that cgroup; flags are more of clone3's. */
pid_t tree_fork(const struct tree *tree, enum tree_place place, uint64_t flags);
/* Who tries something all the while, in that cgroup, until the tree is removed. */
struct trying {
	uint64_t times, got; /* got: try() was 0 */
};

const struct trying *tree_try(const struct tree *tree, enum tree_place place,
			      int (*try)(const void *), const void *with);
/* It has tried on since it was asked; false: not within half a minute. */
bool trying_goes_on(const struct trying *trying);

/* The wait status. */
int child_reap(pid_t pid);
/* Runs it in a child in that cgroup and returns what it returned: 0 to 254. */
int tree_run(const struct tree *tree, enum tree_place place, int (*run)(const void *),
	     const void *with);
