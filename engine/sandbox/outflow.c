/*
 * Reads what went out of a sandbox. Called by inspect, stats and integrity on its shard. Must hold:
 * it costs system calls in proportion to what is told, and none for who has no way out.
 */
#include "engine/sandbox/outflow.h"

#include <string.h>

#include "bpf/guard.h"
#include "engine/policy/policies.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"

enum { FLOWS_MAX = sizeof((struct dsec_egress *)NULL)->flows / sizeof(struct dsec_flow) };

bool outflow_is_policed(const struct sandbox *sandbox)
{
	return sandbox->network != DSEC_NETWORK_EGRESS_UNPOLICED && sandbox->cgroup_id &&
	       sandbox->policy && sandbox->shard->node->guard && policy_leads_out(sandbox->policy);
}

void outflow_read(const struct sandbox *sandbox, struct dsec_egress *ret)
{
	struct guard_egress_counts counts;

	*ret = (struct dsec_egress){ 0 };
	if (!outflow_is_policed(sandbox) ||
	    guard_egress_counts(sandbox->shard->node->guard, sandbox->cgroup_id, &counts) < 0)
		return; /* it begins or ends just now */
	ret->sent_bytes = counts.sent_bytes;
	ret->connections = counts.connections;
	ret->refused = counts.refused;
	ret->dropped = counts.dropped;
	ret->capped = counts.capped;
}

void outflow_read_places(const struct sandbox *sandbox, struct dsec_egress *ret)
{
	struct guard_egress_flow flows[GUARD_EGRESS_FLOWS_MAX];
	int count;

	outflow_read(sandbox, ret);
	if (!ret->sent_bytes)
		return;
	count = guard_egress_flows(sandbox->shard->node->guard, sandbox->cgroup_id, flows);
	for (int i = 0; i < count && i < FLOWS_MAX; i++) {
		struct dsec_flow *flow = &ret->flows[ret->flow_count++];

		flow->port = flows[i].port;
		flow->protocol = flows[i].protocol;
		flow->rule = flows[i].rule;
		flow->bytes = flows[i].bytes;
		memcpy(flow->address, flows[i].address, sizeof flow->address);
	}
}
