/*
 * Whether a create may have the policy it asked for. Called by create.c on the shard. Must hold: no
 * sandbox is made whose policy cannot be held to, unless the create says that it may.
 */
#include "engine/sandbox/create_policy.h"

#include <errno.h>

#include "engine/request/request.h"
#include "engine/sandbox/network.h"

struct status create_policy_status(struct part *part, const struct policy_want *want, int result,
				   uint32_t network)
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
	s = network_fits(policy, network);
	if (s.code || !policy->unmet || (c->flags & DSEC_CREATE_ALLOW_DEGRADED))
		return s;
	return policy_unmet(policy, "create", part->detail);
}
