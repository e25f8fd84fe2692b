/*
 * Host names in network.egress.allow: "api.example", or ".mirror.example" for it and all names
 * below it; and what a policy says of the name that somebody asks for.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bpf/guard_policy.h"

/* Whether the first word of an entry is meant as a name: it is no address, and not wrong yet. */
bool name_is_meant(const char *word);
/* NULL: it is one, as it has to be written; else what is wrong. */
const char *name_check(const char *word);

/*
 * Sorts the entries and joins in place those of one name; each has what those that hold it have,
 * too: so the one that holds a name most closely says all, see names_find(). How many there are, or
 * -EINVAL: more than GUARD_PORT_RANGES_MAX come together, in the name of rule *ret_rule.
 */
int names_fold(struct guard_name *entries, uint32_t count, uint32_t *ret_rule);
/* Which folded entry says what holds for a name, in lower case and without a dot at its end. */
const struct guard_name *names_find(const struct guard_policy *policy, const char *name);
/* Whether the names of a policy lead nowhere else than those of `wider`. Compares each with each.
 */
bool names_are_within(const struct guard_policy *policy, const struct guard_policy *wider);
