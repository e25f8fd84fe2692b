/* Destinations as the kernel's tries have them. For guard_egress.c and guard_tap.c only. */
#pragma once

#include <stdint.h>

#include "bpf/policy.h"

struct guard_destination;

/* -EINVAL: prefix, ports or their count are out of range. */
int guard_destination_entry(uint32_t policy, const struct guard_destination *destination,
			    struct policy_destination_key *ret_key,
			    struct policy_destination *ret_value);
