/*
 * Anomaly rules: what of a sandbox's violations is worth a name, and which of those taint it. Pure:
 * no I/O and no clock. See docs/anomalies.md.
 */
#pragma once

#include <stdint.h>

#include "dsec/types.h"

struct policy_violation;

enum anomaly_severity { ANOMALY_OFF, ANOMALY_NOTE, ANOMALY_TAINT };

/* limit 0 is 1; window_s 0: since the sandbox began. */
struct anomaly_rule {
	const char *name;
	uint32_t limit, window_s;
	enum anomaly_severity severity;
};

enum { ANOMALY_RULES_MAX = 1024 }; /* of a policy */

/* What holds for a sandbox: a policy's. */
struct anomaly_rules {
	struct anomaly_rule rules[DSEC_ANOMALIES]; /* by enum dsec_anomaly */
	/* Bit per rule of the policy, from 0, whose files are judged: files.verify. */
	uint64_t judged[ANOMALY_RULES_MAX / 64];
	/* The same of those that are a service: network.egress.allow. */
	uint64_t services[ANOMALY_RULES_MAX / 64];
};

/* What a policy's section `anomalies` does not say is as here. */
extern const struct anomaly_rules anomaly_defaults;

enum { ANOMALY_DESTINATIONS_MAX = 64 };

/* What the rules remember of one sandbox. All zero: nothing has happened. */
struct anomaly_state {
	struct anomaly_count {
		uint64_t since_ns, count;
	} counts[DSEC_ANOMALIES];
	uint32_t raised;    /* bits 1 << enum dsec_anomaly */
	uint32_t vcs_flows; /* that were counted */
	uint32_t destination_count;
	struct anomaly_destination {
		uint8_t address[16];
		uint16_t port;
	} destinations[ANOMALY_DESTINATIONS_MAX]; /* that it was refused, in the window */
};

/*
 * `times`: how often it happened since the last one of its kind that was judged, itself included.
 * The rules whose limit this reaches for the first time: bits 1 << enum dsec_anomaly.
 */
uint32_t anomaly_judge(struct anomaly_state *state, const struct anomaly_rules *rules,
		       const struct policy_violation *violation, uint64_t times);
/*
 * What went out so far, where most of it went; as above, and ret_at[rule] says which flow it was.
 * Limits of bytes-per-destination are MiB, and its window is the sandbox's life.
 */
uint32_t anomaly_flows(struct anomaly_state *state, const struct anomaly_rules *rules,
		       const struct dsec_egress *egress, uint64_t time_ns,
		       uint32_t ret_at[static DSEC_ANOMALIES]);
/*
 * What counts by itself happened once more: it was frozen for making processes too fast, or asked
 * for a name that looks like data; as above. Times are of any one clock.
 */
uint32_t anomaly_happened(struct anomaly_state *state, const struct anomaly_rules *rules,
			  enum dsec_anomaly which, uint64_t time_ns);
/* Of rules that were raised, those that taint. */
uint32_t anomaly_taints(const struct anomaly_rules *rules, uint32_t raised);
