/*
 * The entries of network.egress: an address or a range of them, then what is meant of it, as
 * "192.0.2.0/24 tcp/443,8000-8080 udp/123"; and how a policy's entries become destinations.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bpf/guard_policy.h"

/* NULL: it is read; else what is wrong with it. Its rule is the caller's to give. */
const char *egress_read(const char *text, bool is_deny, struct guard_destination *ret);

/*
 * Turns the entries into destinations in place, at most as many as there were: one for each prefix,
 * whose ranges are its own and those of the wider ones that hold it, up to one that denies. An
 * entry without ranges denies, and wins over those of its own prefix. How many there are, or
 * -EINVAL: more than GUARD_PORT_RANGES_MAX come together, in the name of rule *ret_rule.
 */
int egress_fold(struct guard_destination *entries, uint32_t count, uint32_t *ret_rule);

/*
 * Whether folded destinations allow nothing that those of `wider` do not. A range of ports counts
 * as allowed where one range of `wider` holds it. Compares each with each.
 */
bool egress_is_within(const struct guard_policy *policy, const struct guard_policy *wider);
