/*
 * Networks of creates, before anything is built. Called by create.c, and as the engine starts. Must
 * hold: what `shared` needs is loaded once, on the control thread, since it takes 25 ms; a failure
 * is logged once and stays; a create that names no network is never refused for it.
 */
#include "engine/sandbox/network.h"

#include <errno.h>
#include <string.h>

#include "bpf/guard.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/control.h"
#include "engine/policy/policies.h"
#include "engine/sandbox/create_policy.h"
#include "engine/shard.h"
#include "engine/tenant/tenant.h"

#define LABEL_JOB "job"

struct status network_check(const struct config *config, uint32_t network)
{
	if (network > DSEC_NETWORK_SHARED)
		return create_invalid("network", -EINVAL,
				      "none, private, shared or egress-unpoliced");
	if (network != DSEC_NETWORK_EGRESS_UNPOLICED || config->egress_range)
		return STATUS_OK;
	return status_unsupported("create", "network",
				  "this engine has no egress: start dsecd with --egress RANGE");
}

struct status network_fits(const struct policy *policy, uint32_t network)
{
	static const enum policy_network needs[] = {
		[DSEC_NETWORK_PRIVATE] = POLICY_NETWORK_PRIVATE,
		[DSEC_NETWORK_SHARED] = POLICY_NETWORK_SHARED,
		[DSEC_NETWORK_EGRESS_UNPOLICED] = POLICY_NETWORK_ANY,
	};
	static const char *const modes[] = {
		[POLICY_NETWORK_NONE] = "the policy has network.mode none",
		[POLICY_NETWORK_PRIVATE] = "the policy has network.mode private",
		[POLICY_NETWORK_SHARED] = "the policy has network.mode shared",
	};

	if (network == DSEC_NETWORK_EGRESS_UNPOLICED && policy->guard.has_egress)
		return create_invalid("network", -EACCES,
				      "the policy has rules of egress: private leads out by them");
	if (needs[network] <= policy->network)
		return STATUS_OK;
	return create_invalid("network", -EACCES, modes[policy->network]);
}

bool network_leads_out(uint32_t network)
{
	return network == DSEC_NETWORK_PRIVATE || network == DSEC_NETWORK_SHARED;
}

/* Of the value of a create's label `job`; where it has none, of nothing. */
static uint64_t job_hash(const struct request *request)
{
	const struct dsec_wire_items *labels = &request->body.create.labels;
	const struct wire *w = &request->payload;
	uint64_t hash = 14695981039346656037ull;
	struct dsec_wire_ref key, value;
	uint32_t cursor = 0;

	while (wire_next(w, labels, &cursor, &key) > 0 &&
	       wire_next(w, labels, &cursor, &value) > 0) {
		if (key.bytes != strlen(LABEL_JOB) ||
		    memcmp(w->payload + key.at, LABEL_JOB, key.bytes) != 0)
			continue;
		for (uint32_t i = 0; i < value.bytes; i++)
			hash = (hash ^ (unsigned char)w->payload[value.at + i]) * 1099511628211ull;
		break;
	}
	return hash;
}

struct box_group network_group_of(const struct request *request, uint32_t scope, bool is_policed)
{
	return (struct box_group){ .tenant = scope == DSEC_NETWORK_SCOPE_NODE ?
						     0 :
						     request->tenant->index,
				   .job = scope == DSEC_NETWORK_SCOPE_JOB ? job_hash(request) : 0,
				   .leads_out = is_policed };
}

enum box_network network_of(uint32_t network, bool is_policed)
{
	switch (network) {
	case DSEC_NETWORK_PRIVATE:
		return is_policed ? BOX_NETWORK_EGRESS : BOX_NETWORK_PRIVATE;
	case DSEC_NETWORK_EGRESS_UNPOLICED:
		return BOX_NETWORK_EGRESS;
	case DSEC_NETWORK_SHARED:
		return BOX_NETWORK_SHARED;
	default:
		return BOX_NETWORK_NONE;
	}
}

static int network_load(struct guard *guard)
{
	char why[512];
	int r = guard_shared_load(guard, why, sizeof why);

	why[strcspn(why, "\n")] = '\0';
	if (*why)
		log_warning("guard: %s: see `dsecd --check`, bpf-shared, continuing", why);
	return r;
}

static uint32_t why_of_host(const struct guard *guard)
{
	const uint32_t has = guard ? guard_capabilities(guard) : 0;

	return has & GUARD_NETWORK_NONE && !(has & GUARD_ABSTRACT) ? DSEC_NETWORK_WHY_NO_ABSTRACT :
								     DSEC_NETWORK_WHY_NO_PROGRAMS;
}

int network_start(struct node *node)
{
	const uint32_t wanted = node->config->network;
	int r;

	node->network = wanted == CONFIG_NETWORK_NONE ? DSEC_NETWORK_NONE : DSEC_NETWORK_SHARED;
	node->network_why = wanted == CONFIG_NETWORK_ANY ? DSEC_NETWORK_WHY_DEFAULT :
							   DSEC_NETWORK_WHY_OPERATOR;
	if (wanted != CONFIG_NETWORK_SHARED)
		return 0;
	r = node->guard ? network_load(node->guard) : -EOPNOTSUPP;
	if (r < 0)
		log_error("--network shared: this host cannot keep sandboxes apart in one: see"
			  " `dsecd --check`, bpf-shared");
	return r;
}

void network_choose(struct network_want *want, uint32_t asked, const struct policy *policy)
{
	/* enum policy_network is in order, from the least on. */
	static const uint32_t most[] = {
		[POLICY_NETWORK_NONE] = DSEC_NETWORK_NONE,
		[POLICY_NETWORK_PRIVATE] = DSEC_NETWORK_PRIVATE,
	};
	const struct node *node = want->shard->node;

	want->network = asked;
	want->why = DSEC_NETWORK_WHY_ASKED;
	if (asked != DSEC_NETWORK_DEFAULT)
		return;
	want->network = node->network;
	want->why = node->network_why;
	if (want->network != DSEC_NETWORK_SHARED || policy->network >= POLICY_NETWORK_SHARED)
		return;
	want->network = most[policy->network];
	want->why = DSEC_NETWORK_WHY_POLICY;
}

static void want_answered(struct mail *mail, void *owner)
{
	struct network_want *want = container_of(mail, struct network_want, mail);

	(void)owner; /* want->shard */
	want->ready(want, want->result);
}

static void want_arrived(struct mail *mail, void *owner)
{
	struct network_want *want = container_of(mail, struct network_want, mail);
	struct control *control = owner;

	want->result = network_load(want->shard->node->guard);
	want->mail.deliver = want_answered;
	mail_send(control_io(control), want->shard->io, &want->mail);
}

int network_get(struct network_want *want)
{
	const struct node *node = want->shard->node;

	if (want->network != DSEC_NETWORK_SHARED)
		return 0;
	if (!node->guard)
		return -EOPNOTSUPP;
	if (guard_shared_is_loaded(node->guard))
		return 0;
	want->mail.deliver = want_arrived;
	mail_send(want->shard->io, control_io(node->control), &want->mail);
	return -EAGAIN;
}

struct status network_failed(struct network_want *want, int result)
{
	if (result >= 0)
		return STATUS_OK;
	if (result == -ENOMEM)
		return status_of_errno(result, "create", "network");
	if (want->why == DSEC_NETWORK_WHY_DEFAULT) {
		want->network = DSEC_NETWORK_NONE;
		want->why = why_of_host(want->shard->node->guard);
		return STATUS_OK;
	}
	return status_unsupported("create", "network",
				  "this host cannot keep sandboxes apart in one: see dsecd's log");
}
