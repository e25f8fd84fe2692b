/*
 * What attacks are made on without an engine: an overlay as a sandbox's root, a slot's cgroup, and
 * a policy in the guard's maps, so that LSM programs are all that refuses.
 */
#pragma once

#include <stdbool.h>

#include "bpf/guard.h"
#include "bpf/guard_policy.h"
#include "engine/policy/compile.h"
#include "tests/hostile/policy/told.h"
#include "tests/root/guard/tree.h"

struct place {
	struct tree tree;
	struct guard *guard;
	struct stage stage;
	struct policy *attacked, *closed;
	char folder[32]; /* the overlay is below, in "root" */
};

/* Of the process's own mount namespace from here on. Failures end the test. */
void place_make(struct place *place);
void place_remove(struct place *place);
/* Mounts a new overlay with the files of attack.h below the folder and enters it. */
void place_root(const struct place *place);
void place_leave(const struct place *place);
/* The slot TREE_SLOT0 has this policy from now on, on the root that is the current folder. */
void place_hold(struct place *place, const struct policy *policy);
