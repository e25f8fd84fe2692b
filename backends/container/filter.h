/*
 * seccomp: the filter that every sandbox has (seccomp.c), and what a policy refuses beyond it
 * (seccomp_policy.c).
 */
#pragma once

#include <linux/filter.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdint.h>

struct guard_policy;
struct guard_rule;

/* For the caller and its children. */
int filter_install(uint64_t secret);
/* Whether every sandbox is refused this, whatever its policy. */
bool filter_refuses(const struct guard_rule *rule);

/*
 * What is left of a policy for a filter of its own, at most WALLS_FILTER_MAX instructions; 0: all
 * of it is refused to everybody, or is none of a filter's matters.
 */
int filter_compile(const struct guard_policy *policy, struct sock_filter *ret, uint32_t *ret_count);
/* Whether a filter can refuse this. */
bool filter_can_refuse(const struct guard_rule *rule);

/* For the two of them. */

struct refusal {
	int call, error;
};

int filter_attributes(scmp_filter_ctx filter);
int filter_rule(scmp_filter_ctx filter, struct refusal refusal, unsigned count,
		const struct scmp_arg_cmp *arguments);

/* What the kernel ignores of an argument is ignored here too. */
static inline struct scmp_arg_cmp filter_masked(unsigned at, uint64_t mask, uint64_t value)
{
	return (struct scmp_arg_cmp){ at, SCMP_CMP_MASKED_EQ, mask, value };
}
