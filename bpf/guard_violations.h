/* The maps of violations, and one shard's stream of them. For guard.c and its like only. */
#pragma once

#include <stdint.h>

#include "bpf/guard.h"
#include "bpf/policy.h"

struct bpf_object;
struct guard_pins;
struct guard_violation_maps;

/* place: of the engine; log: of the verifier. -ENOMEM, or what the kernel says. */
int guard_violation_maps_open(const struct guard_options *options,
			      const struct policy_engine *place, struct guard_violation_maps **ret);
void guard_violation_maps_close(struct guard_violation_maps *maps);
/* An opened object with violation.bpf.h, before it is loaded, uses these; NULL: its own. */
int guard_violation_maps_share(const struct guard_violation_maps *maps, struct bpf_object *object);
/* So that anybody can read what was tried: tallies, tally_heads. */
int guard_violation_maps_pin(const struct guard_violation_maps *maps,
			     const struct guard_pins *pins);
int guard_violations_new(const struct guard_violation_maps *maps, uint32_t shard,
			 struct guard_violations **ret);
