/*
 * The guard of fuzz runs, which tells nothing: their node has none. Linked in place of bpf/guard.c.
 */
#include <errno.h>

#include "bpf/guard.h"
#include "bpf/guard_flows.h"

int guard_violations_open(struct guard *guard, uint32_t shard, struct guard_violations **ret)
{
	(void)guard;
	(void)shard;
	(void)ret;
	return -EOPNOTSUPP;
}

int guard_violations_fd(const struct guard_violations *violations)
{
	(void)violations;
	return -1;
}

int guard_violations_consume(struct guard_violations *violations, int max,
			     void (*seen)(void *context, const struct policy_violation *v),
			     void *context)
{
	(void)violations;
	(void)max;
	(void)seen;
	(void)context;
	return 0;
}

bool guard_violations_wait(const struct guard_violations *violations)
{
	(void)violations;
	return false;
}

void guard_violations_close(struct guard_violations *violations)
{
	(void)violations;
}

int guard_tallies_read(struct guard_violations *violations, uint64_t cgroup_id,
		       struct guard_tallies *ret)
{
	(void)violations;
	(void)cgroup_id;
	*ret = (struct guard_tallies){ 0 };
	return 0;
}

int guard_tallies_drop(struct guard_violations *violations, uint64_t cgroup_id)
{
	(void)violations;
	(void)cgroup_id;
	return 0;
}

int guard_flows_cut(const struct guard_flows *flows, uint32_t *ret_count)
{
	(void)flows;
	(void)ret_count;
	return -EOPNOTSUPP;
}

int guard_shared_load(struct guard *guard, char *ret_why, size_t why_bytes)
{
	(void)guard;
	(void)ret_why;
	(void)why_bytes;
	return -EOPNOTSUPP;
}

bool guard_shared_is_loaded(const struct guard *guard)
{
	return guard != NULL;
}

int guard_egress_counts(const struct guard *guard, uint64_t cgroup_id,
			struct guard_egress_counts *ret)
{
	(void)guard;
	(void)cgroup_id;
	(void)ret;
	return -EOPNOTSUPP;
}

int guard_egress_flows(const struct guard *guard, uint64_t cgroup_id,
		       struct guard_egress_flow ret[static GUARD_EGRESS_FLOWS_MAX])
{
	(void)guard;
	(void)cgroup_id;
	(void)ret;
	return -EOPNOTSUPP;
}

uint32_t guard_capabilities(const struct guard *guard)
{
	(void)guard;
	return 0;
}
