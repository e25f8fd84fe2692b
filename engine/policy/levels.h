/*
 * How a rule is enforced on this host.
 */
#pragma once

#include <stdint.h>

struct guard_rule;

/* A set of enum guard_level; 0: nothing enforces it. */
uint32_t policy_rule_levels(const struct guard_rule *rule);
