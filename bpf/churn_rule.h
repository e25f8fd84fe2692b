/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How many processes and threads a sandbox may end a second: a token bucket kept as the one moment
 * at which it would be full again, so that a single word can be changed by many CPUs. For
 * churn.bpf.c and its unit test. A BPF program includes vmlinux.h before it.
 */
#pragma once

#ifndef __bpf__
#include <linux/types.h>
#endif

enum { CHURN_TRIES = 4 };

struct churn_rule {
	__u64 interval_ns; /* of one at the full rate */
	__u64 burst_ns;	   /* how far ahead of now the moment may be */
};

/* Whether there was room for one more at `now_ns`; only then it is counted. */
static inline __attribute__((always_inline)) _Bool churn_allow(const struct churn_rule *rule,
							       __u64 *full_at_ns, __u64 now_ns)
{
	for (int i = 0; i < CHURN_TRIES; i++) {
		__u64 seen = *(volatile __u64 *)full_at_ns;
		__u64 next = (seen > now_ns ? seen : now_ns) + rule->interval_ns;

		if (next > now_ns + rule->burst_ns)
			return 0;
		if (__sync_val_compare_and_swap(full_at_ns, seen, next) == seen)
			return 1;
	}
	/* Others are always faster: it is counted all the same, and there was room. */
	__sync_fetch_and_add(full_at_ns, rule->interval_ns);
	return 1;
}

/* The bucket with room for `left` at `now_ns`, before it fills again. */
static inline __u64 churn_leave(const struct churn_rule *rule, __u64 now_ns, __u32 left)
{
	__u64 room = left * rule->interval_ns;

	return now_ns + (rule->burst_ns > room ? rule->burst_ns - room : 0);
}
