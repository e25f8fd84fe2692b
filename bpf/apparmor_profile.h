/*
 * What AppArmor holds of a policy, as the text of a profile. For guard_apparmor.c and tests: no
 * call of the kernel.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guard_policy;
struct guard_rule;

enum {
	PROFILE_NAME_BYTES = 72, /* dsec-INSTANCE-DIGEST, and NUL */
	PROFILE_DIGEST_DIGITS = 32,
	/* Of all paths of a profile: its table grows with them, and so does the time it takes. */
	PROFILE_PATHS_BYTES_MAX = 4096,
};

struct profile_scope {
	const char *instance;
	/* LSM programs come after AppArmor and would not see, nor tell, what it refuses. */
	bool lsm_tells;
	/* What the filter of every sandbox refuses before either. NULL: nothing. */
	bool (*is_refused)(const struct guard_rule *rule);
};

/* One that holds nothing has no text. */
struct profile {
	char name[PROFILE_NAME_BYTES]; /* no other policy's, for its number is in the digest */
	char *text;		       /* its owner's to free */
	size_t bytes;
};

/* Whether a profile holds rule `at` of the policy, from 0. */
bool profile_holds(const struct profile_scope *scope, const struct guard_policy *policy,
		   uint32_t at);
/* -ENOMEM. */
int profile_write(const struct profile_scope *scope, const struct guard_policy *policy,
		  struct profile *ret);
/* A name that profile_write() gives to this instance's. */
bool profile_name_is_of(const char *name, const char *instance);
