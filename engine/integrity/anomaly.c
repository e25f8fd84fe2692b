/*
 * The anomaly rules and their judge. Called by integrity.c for each violation that is told, for
 * what tallies have beyond those, and for what counts by itself: a sandbox was throttled, asked
 * for an odd name. Must hold: a violation takes a bounded time and no memory.
 */
#include "engine/integrity/anomaly.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#include "bpf/policy.h"

#define RULE(which, name, limit, window_s, severity)                                               \
	[DSEC_ANOMALY_##which] = { name, limit, window_s, ANOMALY_##severity }

const struct anomaly_rules anomaly_defaults = {
	.rules = {
		RULE(PROTECTED_WRITE, "protected-write", 1, 0, TAINT),
		RULE(DANGEROUS_IOCTL, "dangerous-ioctl", 1, 0, TAINT),
		RULE(PORT_SCAN, "port-scan", 16, 60, TAINT),
		RULE(HUNTING, "hunting", 3, 60, TAINT),
		RULE(OUTSIDE_PTRACE, "outside-ptrace", 1, 0, TAINT),
		RULE(OUTSIDE_SIGNAL, "outside-signal", 8, 60, NOTE),
		RULE(SOCKET_PROBING, "socket-probing", 3, 60, TAINT),
		RULE(OFFLINE_SOCKETS, "offline-sockets", 100, 60, NOTE),
		RULE(VERIFY_TAMPER, "verify-tamper", 1, 0, TAINT),
		RULE(STORM, "storm", 8, 60, NOTE),
		RULE(DNS_TUNNEL, "dns-tunnel", 20, 60, TAINT),
		RULE(BYTES_PER_DESTINATION, "bytes-per-destination", 64, 0, NOTE),
		RULE(VCS_DIRECT, "vcs-direct", 1, 0, NOTE),
		RULE(PROXY_OWN_REPOSITORY, "proxy-own-repository", 1, 0, TAINT),
	},
};

/* Which rule a violation counts for; DSEC_ANOMALIES: none. */
static enum dsec_anomaly rule_of(const struct policy_violation *v)
{
	switch (v->hook) {
	case POLICY_HOOK_SOCKET:
		return DSEC_ANOMALY_OFFLINE_SOCKETS;
	case POLICY_HOOK_UNIX_CONNECT:
	case POLICY_HOOK_UNIX_SEND:
		return DSEC_ANOMALY_SOCKET_PROBING;
	case POLICY_HOOK_IOCTL:
		return DSEC_ANOMALY_DANGEROUS_IOCTL;
	case POLICY_HOOK_CONNECT:
	case POLICY_HOOK_SEND: /* what is too much for a cap went where it may */
		return v->rule == POLICY_RULE_EGRESS_CAP ? DSEC_ANOMALIES : DSEC_ANOMALY_PORT_SCAN;
	case POLICY_HOOK_PTRACE:
		return DSEC_ANOMALY_OUTSIDE_PTRACE;
	case POLICY_HOOK_SIGNAL:
		return DSEC_ANOMALY_OUTSIDE_SIGNAL;
	case POLICY_HOOK_STAT:
	case POLICY_HOOK_EXECUTE:
		return DSEC_ANOMALY_HUNTING;
	case POLICY_HOOK_OPEN:
		/* Only what is hidden is told to be absent. */
		return v->error == ENOENT || v->rule == POLICY_RULE_PLATFORM ?
			       DSEC_ANOMALY_HUNTING :
			       DSEC_ANOMALY_PROTECTED_WRITE;
	case POLICY_HOOK_CREATE:
	case POLICY_HOOK_REMOVE:
	case POLICY_HOOK_RENAME:
	case POLICY_HOOK_LINK:
	case POLICY_HOOK_TRUNCATE:
	case POLICY_HOOK_METADATA:
	case POLICY_HOOK_MOUNT:
		return DSEC_ANOMALY_PROTECTED_WRITE;
	default: /* BYTECODE, MOUNT_CALL, IOCTL_OTHER: honest programs try */
		return DSEC_ANOMALIES;
	}
}

/* Ports of ssh, svn and git: who goes there fetches past every mirror. */
static bool port_is_vcs(uint16_t port, uint8_t protocol)
{
	return protocol == IPPROTO_TCP && (port == 22 || port == 3690 || port == 9418);
}

/* A write to what is judged is more than one to what is only kept. */
static enum dsec_anomaly rule_among(const struct anomaly_rules *rules,
				    const struct policy_violation *v)
{
	const enum dsec_anomaly which = rule_of(v);

	if (which != DSEC_ANOMALY_PROTECTED_WRITE || !v->rule || v->rule > ANOMALY_RULES_MAX)
		return which;
	return rules->judged[(v->rule - 1) / 64] >> (v->rule - 1) % 64 & 1 ?
		       DSEC_ANOMALY_VERIFY_TAMPER :
		       which;
}

/* A destination counts once in a window, however often it was tried. */
static uint64_t destination_is_new(struct anomaly_state *state, const struct policy_violation *v)
{
	struct anomaly_destination *at = state->destinations;
	uint32_t count = state->destination_count;

	for (uint32_t i = 0; i < count; i++) {
		if (at[i].port == v->port && !memcmp(at[i].address, v->address, 16))
			return 0;
	}
	if (count == ANOMALY_DESTINATIONS_MAX)
		return 0; /* as many as any limit counts */
	memcpy(at[count].address, v->address, 16);
	at[count].port = v->port;
	state->destination_count++;
	return 1;
}

/* True where what was counted so far is of a window that is over, or there was none. */
static bool window_begins(struct anomaly_count *count, const struct anomaly_rule *rule,
			  uint64_t time_ns)
{
	const uint64_t window_ns = rule->window_s * 1000000000ull;

	if (count->since_ns && (!window_ns || time_ns <= count->since_ns + window_ns))
		return false;
	*count = (struct anomaly_count){ .since_ns = time_ns };
	return true;
}

/* The rule's bit, where its limit is reached for the first time. */
static uint32_t count_add(struct anomaly_state *state, const struct anomaly_rules *rules,
			  enum dsec_anomaly which, uint64_t times)
{
	const uint32_t limit = rules->rules[which].limit, bit = 1u << which;

	state->counts[which].count += times;
	if (state->counts[which].count < (limit ? limit : 1) || state->raised & bit)
		return 0;
	state->raised |= bit;
	return bit;
}

static uint32_t rule_judge(struct anomaly_state *state, const struct anomaly_rules *rules,
			   enum dsec_anomaly which, const struct policy_violation *v,
			   uint64_t times)
{
	if (which == DSEC_ANOMALIES || rules->rules[which].severity == ANOMALY_OFF)
		return 0;
	if (window_begins(&state->counts[which], &rules->rules[which], v->time_ns) &&
	    which == DSEC_ANOMALY_PORT_SCAN)
		state->destination_count = 0;
	if (which == DSEC_ANOMALY_PORT_SCAN)
		times = destination_is_new(state, v);
	return count_add(state, rules, which, times);
}

uint32_t anomaly_judge(struct anomaly_state *state, const struct anomaly_rules *rules,
		       const struct policy_violation *violation, uint64_t times)
{
	const enum dsec_anomaly which = rule_among(rules, violation);
	uint32_t raised;

	if (violation->rule == POLICY_RULE_FILE_STORM) /* allowed, too */
		return rule_judge(state, rules, DSEC_ANOMALY_STORM, violation, times);
	if (violation->verdict == POLICY_AUDITED && violation->rule != POLICY_RULE_PLATFORM)
		return 0; /* it was allowed; what is the platform's only shows nothing */
	raised = rule_judge(state, rules, which, violation, times);
	if (which == DSEC_ANOMALY_PORT_SCAN && port_is_vcs(violation->port, violation->protocol))
		raised |= rule_judge(state, rules, DSEC_ANOMALY_VCS_DIRECT, violation, times);
	return raised;
}

static bool is_service(const struct anomaly_rules *rules, uint32_t rule)
{
	return rule && rule <= ANOMALY_RULES_MAX &&
	       rules->services[(rule - 1) / 64] >> (rule - 1) % 64 & 1;
}

/* Where most went stands first. */
static uint32_t bytes_judge(struct anomaly_state *state, const struct anomaly_rules *rules,
			    const struct dsec_egress *egress)
{
	const enum dsec_anomaly which = DSEC_ANOMALY_BYTES_PER_DESTINATION;
	const uint64_t limit = rules->rules[which].limit ? rules->rules[which].limit : 1;

	if (!egress->flow_count || rules->rules[which].severity == ANOMALY_OFF ||
	    egress->flows[0].bytes >> 20 < limit || state->raised & 1u << which)
		return 0;
	state->raised |= 1u << which;
	return 1u << which;
}

uint32_t anomaly_flows(struct anomaly_state *state, const struct anomaly_rules *rules,
		       const struct dsec_egress *egress, uint64_t time_ns,
		       uint32_t ret_at[static DSEC_ANOMALIES])
{
	const struct anomaly_rule *vcs = &rules->rules[DSEC_ANOMALY_VCS_DIRECT];
	uint32_t raised = bytes_judge(state, rules, egress), count = 0;

	ret_at[DSEC_ANOMALY_BYTES_PER_DESTINATION] = 0;
	for (uint32_t i = 0; i < egress->flow_count && vcs->severity != ANOMALY_OFF; i++) {
		const struct dsec_flow *flow = &egress->flows[i];

		if (!port_is_vcs(flow->port, flow->protocol) || is_service(rules, flow->rule))
			continue;
		ret_at[DSEC_ANOMALY_VCS_DIRECT] = i;
		count++;
	}
	if (count > state->vcs_flows) {
		(void)window_begins(&state->counts[DSEC_ANOMALY_VCS_DIRECT], vcs, time_ns);
		raised |=
			count_add(state, rules, DSEC_ANOMALY_VCS_DIRECT, count - state->vcs_flows);
		state->vcs_flows = count;
	}
	return raised;
}

uint32_t anomaly_happened(struct anomaly_state *state, const struct anomaly_rules *rules,
			  enum dsec_anomaly which, uint64_t time_ns)
{
	const struct anomaly_rule *rule = &rules->rules[which];

	if (rule->severity == ANOMALY_OFF)
		return 0;
	(void)window_begins(&state->counts[which], rule, time_ns);
	return count_add(state, rules, which, 1);
}

uint32_t anomaly_taints(const struct anomaly_rules *rules, uint32_t raised)
{
	uint32_t taints = 0;

	for (uint32_t i = 0; i < DSEC_ANOMALIES; i++)
		taints |= rules->rules[i].severity == ANOMALY_TAINT ? raised & 1u << i : 0;
	return taints;
}
