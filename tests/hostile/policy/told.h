/*
 * What LSM programs tell of an attack, compared with its row in the table of attacks. Beside the
 * policy's own headers, whose names are not those of the maps.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "tests/hostile/policy/attack.h"

struct guard_policy;
struct guard_violations;

/* Between whom attacks are made. */
struct stage {
	struct guard_violations *told; /* of the shard of both; NULL: not open */
	uint64_t inside_id, neighbour_id;
	pid_t victim; /* in the neighbour's cgroup; SIGUSR2 is blocked there */
};

/*
 * Inside, with that policy: the row's rule, hook and path were told, or nothing where it has none;
 * then all is forgotten. NULL: the neighbour did it. Of the neighbour nothing is ever told.
 */
void expect_told(const struct stage *stage, const struct attack *attack,
		 const struct guard_policy *policy);
