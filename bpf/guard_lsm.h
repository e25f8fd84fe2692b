/* The maps of policies and the LSM programs that read them. For guard.c and guard_policy.c only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/guard_pins.h"

struct guard;
struct guard_lsm;

struct guard_violation_maps;

struct guard_lsm_place {
	uint32_t slot_level;
	const struct guard_violation_maps *violations; /* NULL: nothing is told */
};

enum guard_map {
	GUARD_MAP_SANDBOXES,
	GUARD_MAP_POLICIES,
	GUARD_MAP_RULES,
	GUARD_MAP_PATHS,
	GUARD_MAP_IOCTLS,
	GUARD_MAP_FAMILIES,
	GUARD_MAP_UNIX_NAMES,
	GUARD_MAP_CREATIONS,
	GUARD_MAPS,
};

/* Make the maps; `log` is the verifier's. */
int guard_lsm_open(char *log, size_t log_bytes, struct guard_lsm **ret);
/* Load and attach what this kernel has hooks for: for the first policy, since it takes a while. */
int guard_lsm_attach(struct guard_lsm *lsm, const struct guard_lsm_place *place);
/* Pin maps and links, in place of those of an engine that died; links are held by nothing else. */
int guard_lsm_pin(struct guard_lsm *lsm, const struct guard_pins *pins);
bool guard_lsm_is_attached(const struct guard_lsm *lsm);
void guard_lsm_close(struct guard_lsm *lsm);
int guard_lsm_map_fd(const struct guard_lsm *lsm, enum guard_map map);

/* guard.c's; NULL without GUARD_POLICIES. */
const struct guard_lsm *guard_lsm_of(const struct guard *guard);
/* guard.c's: from here on LSM programs enforce, where the host has GUARD_LSM. */
int guard_lsm_enforce(struct guard *guard);
