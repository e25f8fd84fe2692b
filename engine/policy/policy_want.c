/*
 * Policies for shards. Called by create.c and phase.c. Must hold: a shard reads of the table only
 * the ready-made ones, which never change; new uses of the others are taken on the control thread
 * alone, so that one that is stale and unused stays so.
 */
#include "engine/policy/policy_want.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/control.h"
#include "engine/policy/narrower.h"
#include "engine/shard.h"

static void want_answered(struct mail *mail, void *owner)
{
	struct policy_want *want = container_of(mail, struct policy_want, mail);

	(void)owner; /* want->shard */
	want->ready(want, want->result);
}

static void want_arrived(struct mail *mail, void *owner)
{
	struct policy_want *want = container_of(mail, struct policy_want, mail);
	struct control *control = owner;

	want->policy = policies_find(control_policies(control), want->tenant, want->name);
	want->result = want->policy ? 0 : -ENOENT;
	if (want->policy) {
		policy_use(want->policy);
		want->unheld = policies_hold(control_policies(control), want->policy);
	}
	if (want->unheld < 0)
		log_error("policy not loaded into the kernel name=\"%s\" err=%s, continuing",
			  want->name, strerror(-want->unheld));
	if (want->policy && want->wider) { /* which takes long */
		want->lacks = policy_lacks(want->policy, want->wider);
		want->goes_further = !policy_goes_no_further(want->policy, want->wider);
	}
	want->mail.deliver = want_answered;
	mail_send(control_io(control), want->shard->io, &want->mail);
}

int policy_get(struct policy_want *want)
{
	struct node *node = want->shard->node;
	const char *name = want->name;

	if (!*name)
		(void)strcpy(want->name, POLICY_DEFAULT);
	if (!policy_name_is_good(name))
		return -EINVAL;
	for (uint32_t i = 0; i < POLICIES_READY && !want->wider; i++) {
		if (strcmp(node->policies[i]->guard.name, name) != 0 ||
		    !policy_is_held(node->policies[i]))
			continue;
		want->policy = node->policies[i];
		policy_use(want->policy);
		return 0;
	}
	want->mail.deliver = want_arrived;
	mail_send(want->shard->io, control_io(node->control), &want->mail);
	return -EAGAIN;
}

struct status policy_unmet(const struct policy *policy, const char *table, char ret_detail[80])
{
	const struct guard_rule *rule = &policy->rules[policy->unmet - 1];

	(void)snprintf(ret_detail, 80, "%.40s: %s", rule->label,
		       rule->kind == GUARD_RULE_DESTINATION || rule->kind == GUARD_RULE_CAP ?
			       "no way out, see dsecd --egress" :
		       rule->kind == GUARD_RULE_NAME ? "no resolver, see dsecd --dns-upstream" :
						       "nothing enforces it on this host");
	return status_unsupported(table, "policy", ret_detail);
}

struct status policy_unheld(const struct policy_want *want, const char *table, char ret_detail[80])
{
	struct status s = status_of_errno(want->unheld, table, "policy");

	(void)snprintf(ret_detail, 80, "%.40s: the kernel does not take its rules",
		       want->policy->guard.name);
	s.detail = ret_detail;
	return s;
}
