/*
 * A shard's violations and the accounts of its sandboxes. Called by the loop, and where sandboxes
 * and execs begin and end. Must hold: counts are exact when a result or an end is told; a record is
 * read before its cgroup is another's; a clean sandbox has no account.
 */
#include "engine/integrity/integrity.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/guard.h"
#include "bpf/policy.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/events/news.h"
#include "engine/exec/exec_state.h"
#include "engine/integrity/anomaly.h"
#include "engine/integrity/own.h"
#include "engine/sandbox/outflow.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"

enum { VIOLATIONS_AT_ONCE = 64, ROUNDS_PER_TURN = 4 };

/* Of a sandbox that broke a rule. */
struct account {
	struct anomaly_state state;
	struct known {
		uint32_t rule, hook;
		uint64_t count; /* told so far */
		uint64_t own;	/* of what the engine itself refuses: counted so far */
		uint64_t own_last_ns, own_told_ns;
		uint32_t policy;
		uint8_t verdict; /* as it was told */
	} known[GUARD_TALLIES_MAX];
	uint32_t known_count;
};

static struct sandbox **place_of(const struct integrity *integrity, uint64_t cgroup_id)
{
	struct sandbox **at = &integrity->buckets[cgroup_id & (integrity->bucket_count - 1)];

	while (*at && (*at)->cgroup_id != cgroup_id)
		at = &(*at)->next_watched;
	return at;
}

static struct account *account_of(struct sandbox *sandbox)
{
	if (!sandbox->account)
		sandbox->account = calloc(1, sizeof *sandbox->account);
	return sandbox->account;
}

static struct known *known_of(struct account *account, uint32_t rule, uint32_t hook)
{
	for (uint32_t i = 0; i < account->known_count; i++) {
		struct known *known = &account->known[i];

		if (known->rule == rule && known->hook == hook)
			return known;
	}
	if (account->known_count == GUARD_TALLIES_MAX)
		return NULL; /* the kernel has no more of them */
	account->known[account->known_count] =
		(struct known){ .rule = rule, .hook = hook, .verdict = POLICY_DENIED };
	return &account->known[account->known_count++];
}

/* The exec in whose leaf it happened; 0: none that runs. */
static uint64_t exec_of_leaf(const struct sandbox *sandbox, const char *leaf)
{
	char name[POLICY_LEAF_BYTES];

	for (const struct exec *exec = sandbox->execs; exec; exec = exec->next) {
		if (!exec->run)
			continue;
		(void)snprintf(name, sizeof name, "e%u", exec->run->leaf); /* fits */
		if (!strcmp(name, leaf))
			return exec->number;
	}
	return 0;
}

/* raised: rules by their bits. */
static void anomalies_tell(struct sandbox *sandbox, const struct policy_violation *v, uint64_t exec,
			   uint32_t raised)
{
	sandbox->taint |= anomaly_taints(sandbox_anomalies(sandbox), raised);
	for (uint32_t i = 0; raised; i++, raised >>= 1) {
		if (raised & 1)
			news_of_anomaly(sandbox, v, exec, i);
	}
}

static void violation_judge(struct sandbox *sandbox, const struct policy_violation *v,
			    uint64_t exec)
{
	struct account *account = account_of(sandbox);
	struct known *known = account ? known_of(account, v->rule, v->hook) : NULL;
	const struct anomaly_rules *rules = sandbox_anomalies(sandbox);
	uint64_t times = 1;

	if (!account) {
		log_error("violation not judged id=%u.%llx err=ENOMEM, continuing",
			  sandbox->shard->number, (unsigned long long)sandbox->id.lo);
		return;
	}
	if (known) {
		known->policy = v->policy;
		known->verdict = v->verdict;
	}
	if (known && v->count > known->count) {
		times = v->count - known->count;
		known->count = v->count;
	}
	anomalies_tell(sandbox, v, exec, anomaly_judge(&account->state, rules, v, times));
}

void integrity_throttled(struct sandbox *sandbox)
{
	const struct policy_violation storm = { .time_ns = io_now_ns(sandbox->shard->io),
						.count = sandbox->throttles };
	struct account *account = sandbox->cgroup_id ? account_of(sandbox) : NULL;

	if (account) /* else nobody would free it, or there is no memory: it is in the stats */
		anomalies_tell(sandbox, &storm, 0,
			       anomaly_happened(&account->state, sandbox_anomalies(sandbox),
						DSEC_ANOMALY_STORM, storm.time_ns));
}

static void own_told(struct sandbox *sandbox, struct known *known, struct policy_violation *v)
{
	v->count = known->own;
	known->own_told_ns = v->time_ns;
	news_of_violation(sandbox, v, 0);
	violation_judge(sandbox, v, 0);
}

void integrity_refused(struct sandbox *sandbox, struct policy_violation *v)
{
	struct account *account = sandbox->cgroup_id ? account_of(sandbox) : NULL;
	struct known *known = account ? known_of(account, v->rule, v->hook) : NULL;

	if (!known)
		return; /* there is no memory, or it breaks more rules than are counted */
	v->time_ns = io_now_ns(sandbox->shard->io);
	v->verdict = POLICY_DENIED;
	known->own++;
	known->own_last_ns = v->time_ns;
	if (known->own <= POLICY_TOLD_BURST ||
	    v->time_ns - known->own_told_ns >= POLICY_TOLD_INTERVAL_NS)
		own_told(sandbox, known, v);
}

void integrity_odd_name(struct sandbox *sandbox, struct policy_violation *v)
{
	struct account *account = sandbox->cgroup_id ? account_of(sandbox) : NULL;

	v->time_ns = io_now_ns(sandbox->shard->io);
	if (account)
		anomalies_tell(sandbox, v, 0,
			       anomaly_happened(&account->state, sandbox_anomalies(sandbox),
						DSEC_ANOMALY_DNS_TUNNEL, v->time_ns));
}

/* Its task's own repositories, as its label names them. */
static struct own_text own_of(const struct sandbox *sandbox)
{
	struct own_text own = { NULL, 0 };

	(void)sandbox_label(sandbox, OWN_LABEL, &own.at, &own.bytes); /* or none */
	return own;
}

static int own_reached(struct sandbox *sandbox, uint16_t hook, struct own_text what)
{
	struct account *account = account_of(sandbox);
	struct policy_violation v = { .time_ns = io_now_ns(sandbox->shard->io),
				      .count = 1,
				      .hook = hook,
				      .verdict = POLICY_AUDITED, /* nobody was refused */
				      .text_kind = POLICY_TEXT_NAME };

	if (!account)
		return -ENOMEM;
	v.is_cut = what.bytes > sizeof v.text;
	v.text_bytes = (uint16_t)(v.is_cut ? sizeof v.text : what.bytes);
	memcpy(v.text, what.at, v.text_bytes);
	anomalies_tell(sandbox, &v, 0,
		       anomaly_happened(&account->state, sandbox_anomalies(sandbox),
					DSEC_ANOMALY_PROXY_OWN_REPOSITORY, v.time_ns));
	return 1;
}

int integrity_fetched(struct sandbox *sandbox, struct own_text path)
{
	if (!sandbox->cgroup_id)
		return -EOPNOTSUPP;
	return own_has_path(own_of(sandbox), path) ? own_reached(sandbox, POLICY_HOOK_FETCH, path) :
						     0;
}

void integrity_asked(struct sandbox *sandbox, const char *host)
{
	const struct own_text own = sandbox->cgroup_id ? own_of(sandbox) : (struct own_text){ 0 };

	if (own.bytes && own_has_host(own, host))
		(void)own_reached(sandbox, POLICY_HOOK_DNS, /* without memory nothing is judged */
				  (struct own_text){ host, strlen(host) });
}

/* What the engine refused and did not tell: as tallies_tell(). */
static void own_tell(struct sandbox *sandbox)
{
	struct account *account = sandbox->account;

	for (uint32_t i = 0; account && i < account->known_count; i++) {
		struct known *known = &account->known[i];
		struct policy_violation rest = { .time_ns = known->own_last_ns,
						 .rule = known->rule,
						 .hook = (uint16_t)known->hook,
						 .policy = known->policy,
						 .verdict = POLICY_DENIED };

		if (known->own > known->count)
			own_told(sandbox, known, &rest);
	}
}

static void violation_take(void *context, const struct policy_violation *v)
{
	struct integrity *integrity = context;
	struct sandbox *sandbox = *place_of(integrity, v->cgroup_id);
	uint64_t exec;

	if (!sandbox)
		return; /* of a function's call: counted, and forgotten with its box */
	exec = exec_of_leaf(sandbox, v->leaf);
	news_of_violation(sandbox, v, exec);
	violation_judge(sandbox, v, exec);
}

/* In a flood the rest waits for the next turn: what is refused has been refused. */
static void violations_read(struct integrity *integrity)
{
	int r = VIOLATIONS_AT_ONCE;

	for (int round = 0; round < ROUNDS_PER_TURN && r == VIOLATIONS_AT_ONCE; round++)
		r = guard_violations_consume(integrity->violations, VIOLATIONS_AT_ONCE,
					     violation_take, integrity);
}

static void violations_come(struct io_op *op, int res)
{
	struct integrity *integrity = container_of(op, struct integrity, poll);

	if (!integrity->violations || res == -ECANCELED)
		return;
	violations_read(integrity);
	io_poll_once(integrity->shard->io, op, guard_violations_fd(integrity->violations), POLLIN);
}

int integrity_open(struct shard *shard, struct guard *guard)
{
	struct integrity *integrity = &shard->integrity;
	int r;

	integrity->shard = shard;
	if (!guard)
		return 0;
	integrity->bucket_count = 64;
	while (integrity->bucket_count < shard->sandboxes.count)
		integrity->bucket_count *= 2;
	integrity->buckets = calloc(integrity->bucket_count, sizeof(struct sandbox *));
	if (!integrity->buckets)
		return -ENOMEM;
	r = guard_violations_open(guard, shard->number, &integrity->violations);
	if (r < 0)
		return r == -EOPNOTSUPP ? 0 : r;
	integrity->poll.done = violations_come;
	io_poll_once(shard->io, &integrity->poll, guard_violations_fd(integrity->violations),
		     POLLIN);
	return 0;
}

void integrity_close(struct shard *shard)
{
	guard_violations_close(shard->integrity.violations);
	free(shard->integrity.buckets);
	shard->integrity = (struct integrity){ 0 };
}

void integrity_watch(struct sandbox *sandbox)
{
	struct integrity *integrity = &sandbox->shard->integrity;
	struct sandbox **at;

	if (!integrity->violations || !sandbox->box->cgroup_id)
		return;
	sandbox->cgroup_id = sandbox->box->cgroup_id;
	at = &integrity->buckets[sandbox->cgroup_id & (integrity->bucket_count - 1)];
	sandbox->next_watched = *at;
	*at = sandbox;
}

/* What was counted and not told: one event for each rule and hook. */
static void tallies_tell(struct sandbox *sandbox)
{
	struct guard_tallies tallies;

	if (guard_tallies_read(sandbox->shard->integrity.violations, sandbox->cgroup_id, &tallies) <
	    0)
		return; /* what was told stands */
	for (uint32_t i = 0; i < tallies.count; i++) {
		const struct guard_tally *tally = &tallies.tallies[i];
		struct account *account = account_of(sandbox);
		struct known *known = account ? known_of(account, tally->rule, tally->hook) : NULL;
		struct policy_violation rest = { .time_ns = tally->last_ns,
						 .count = tally->count,
						 .rule = tally->rule,
						 .hook = (uint16_t)tally->hook };

		if (!known || known->count >= tally->count)
			continue;
		rest.policy = known->policy;
		rest.verdict = known->verdict;
		news_of_violation(sandbox, &rest, 0);
		violation_judge(sandbox, &rest, 0);
	}
}

/* What is allowed breaks no rule; what it comes to is judged here, for who has a way out. */
static void egress_judge(struct sandbox *sandbox)
{
	const struct anomaly_rules *rules = sandbox_anomalies(sandbox);
	struct dsec_egress egress = { 0 };
	const uint64_t now_ns = io_now_ns(sandbox->shard->io);
	uint32_t raised, at[DSEC_ANOMALIES] = { 0 };
	struct account *account;

	if (outflow_is_policed(sandbox))
		outflow_read_places(sandbox, &egress);
	account = egress.flow_count ? account_of(sandbox) : NULL;
	raised = account ? anomaly_flows(&account->state, rules, &egress, now_ns, at) : 0;
	for (uint32_t i = 0; i < DSEC_ANOMALIES; i++) {
		const struct dsec_flow *flow = &egress.flows[at[i]];
		struct policy_violation passed = { .time_ns = now_ns,
						   .count = flow->bytes,
						   .rule = flow->rule,
						   .hook = POLICY_HOOK_SEND,
						   .family = 6,
						   .port = flow->port,
						   .protocol = flow->protocol };

		memcpy(passed.address, flow->address, sizeof passed.address);
		if (raised >> i & 1)
			anomalies_tell(sandbox, &passed, 0, 1u << i);
	}
}

void integrity_settle(struct sandbox *sandbox)
{
	struct integrity *integrity = &sandbox->shard->integrity;

	if (!integrity->violations || !sandbox->cgroup_id)
		return;
	if (guard_violations_wait(integrity->violations))
		violations_read(integrity);
	tallies_tell(sandbox);
	own_tell(sandbox);
	egress_judge(sandbox);
}

void integrity_emptied(struct shard *shard, uint64_t cgroup_id)
{
	struct integrity *integrity = &shard->integrity;
	struct sandbox **at, *sandbox;
	int r;

	if (!integrity->violations || !cgroup_id)
		return;
	at = place_of(integrity, cgroup_id);
	sandbox = *at;
	if (sandbox) {
		integrity_settle(sandbox);
		*at = sandbox->next_watched;
		sandbox->cgroup_id = 0;
		free(sandbox->account);
		sandbox->account = NULL;
	}
	r = guard_tallies_drop(integrity->violations, cgroup_id);
	if (r < 0)
		log_error("tallies stay cgroup=%llu err=%d, continuing",
			  (unsigned long long)cgroup_id, -r);
}

uint32_t integrity_taint(const struct sandbox *sandbox)
{
	return sandbox->taint;
}
