/*
 * Profiles of AppArmor in the kernel, one for each version of a policy that has one. For guard.c
 * and guard_policy.c only, and for tests.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/apparmor_profile.h"

struct guard_apparmor;
struct guard_policy;
struct guard_why;

/*
 * scope.lsm_tells in: LSM programs will be attached; it stays so where AppArmor comes before them.
 * scope.instance is copied. -ENOMEM; -EOPNOTSUPP: why says what is missing, and the remedy.
 */
int guard_apparmor_open(const struct profile_scope *scope, struct guard_why *why,
			struct guard_apparmor **ret);
/* Profiles that were loaded stay. NULL is fine. */
void guard_apparmor_close(struct guard_apparmor *apparmor);
/* guard.c's; NULL without GUARD_APPARMOR. */
struct guard;
const struct guard_apparmor *guard_apparmor_of(const struct guard *guard);
/* 0 also where there is nothing to load, or apparmor is NULL. */
int guard_apparmor_load(const struct guard_apparmor *apparmor, const struct guard_policy *policy);
int guard_apparmor_drop(const struct guard_apparmor *apparmor, const struct guard_policy *policy);
/* "": it has none. */
int guard_apparmor_name(const struct guard_apparmor *apparmor, const struct guard_policy *policy,
			char ret[static PROFILE_NAME_BYTES]);
bool guard_apparmor_holds(const struct guard_apparmor *apparmor, const struct guard_policy *policy,
			  uint32_t at);
/* What a dead engine of this instance left; 0 also where there is no AppArmor. */
int guard_apparmor_sweep(const char *instance);
