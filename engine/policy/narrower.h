/*
 * Whether a policy lets through no more than another one: what a phase may bring.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct policy;

/*
 * The first rule of `wider` that `policy` does not keep, from 1; 0: it keeps all of them. Rules
 * that are only told of bind nobody, and are not looked for. Compares each with each.
 */
uint32_t policy_lacks(const struct policy *policy, const struct policy *wider);
/* Its way out, if it has one, leads nowhere where that of `wider` does not, nor carries more. */
bool policy_goes_no_further(const struct policy *policy, const struct policy *wider);
