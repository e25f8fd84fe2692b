/*
 * The entries of network.egress: an address or a range of them, then what is meant of it, as
 * "192.0.2.0/24 tcp/443,8000-8080 udp/123"; and how a policy's entries become destinations. Instead
 * of an address there may be a name, see names.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bpf/guard_policy.h"

/*
 * NULL: it is read; else what is wrong with it. Its rule is the caller's to give. Where the entry
 * begins with a name (egress_is_name()) there is no address: what is allowed of those it will have.
 */
const char *egress_read(const char *text, bool is_deny, struct guard_destination *ret);

bool egress_is_name(const char *text);

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
/* Which one says what holds for all of a prefix that no other one lies in; NULL: none. */
const struct guard_destination *egress_find(const struct guard_policy *policy,
					    const struct guard_destination *of);
/* What `from` allows is allowed of `to`, too; -EINVAL: more than GUARD_PORT_RANGES_MAX ranges. */
int egress_ports_join(struct guard_destination *to, const struct guard_destination *from);
/* NULL: nothing. */
bool egress_ports_are_within(const struct guard_destination *ports,
			     const struct guard_destination *wider);
