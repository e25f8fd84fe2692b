/*
 * Whether a create may have the policy it asked for. Called by create.c on the shard. Must hold: no
 * sandbox is made whose policy cannot be held to, unless the create says that it may.
 */
#include "engine/sandbox/create_policy.h"

#include <errno.h>

#include "engine/request/request.h"

static struct status network_fits(const struct dsec_wire_create *c, const struct policy *policy)
{
	const uint32_t network = c->network == DSEC_NETWORK_EGRESS_UNPOLICED ? POLICY_NETWORK_ANY :
				 c->network == DSEC_NETWORK_PRIVATE ? POLICY_NETWORK_PRIVATE :
								      POLICY_NETWORK_NONE;

	if (network <= policy->network)
		return STATUS_OK;
	return create_invalid("network", -EACCES,
			      policy->network == POLICY_NETWORK_NONE ?
				      "the policy has network.mode none" :
				      "the policy has network.mode private");
}

struct status create_policy_status(struct part *part, const struct policy_want *want, int result)
{
	const struct dsec_wire_create *c = &part->request->body.create;
	const struct policy *policy = want->policy;
	struct status s;

	if (result == -EINVAL)
		return create_invalid("policy", result, "1 to 63 of a-z 0-9 and - inside");
	if (result < 0)
		return (struct status){ .code = DSEC_ABSENT,
					.blame = DSEC_BLAME_CALLER,
					.error = -result,
					.table = "create",
					.step = "policy",
					.detail = "no such policy" };
	if (want->unheld < 0)
		return policy_unheld(want, "create", part->detail);
	s = network_fits(c, policy);
	if (s.code || !policy->unmet || (c->flags & DSEC_CREATE_ALLOW_DEGRADED))
		return s;
	return policy_unmet(policy, "create", part->detail);
}
