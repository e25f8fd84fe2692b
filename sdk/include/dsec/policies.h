/*
 * Policies: what sandboxes may do, in documents (docs/policy.md). A part of dsec.h, whose contracts
 * hold here too.
 */
#pragma once

#include <dsec/dsec.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct dsec_policy_opts {
	uint32_t size, verb; /* enum dsec_policy_verb */
	/* show, remove. check, load: NULL, or what the document's name is to be. Not for list. */
	const char *name;
	struct dsec_bytes document; /* check, load: YAML, at most 64 KiB */
	uint64_t version; /* load, remove: only if this is the one there is; 0: whatever is */
};

/* Body of a policy's DSEC_EV_ROW. */
struct dsec_policy_row {
	uint32_t size, what;	/* enum dsec_policy_what: a policy, or a rule or phase of it */
	uint32_t number, flags; /* of the version, of the rule; bits of enum dsec_policy_flag */
	uint32_t rules, users;	/* of a policy; users: sandboxes that have this version */
	uint32_t levels,
		reserved; /* rule: enum dsec_policy_level, 0: none; policy: rules with none */
	uint64_t age_ms, document_bytes;
	struct dsec_bytes name;	  /* of the policy, of the phase */
	struct dsec_bytes text;	  /* what it extends; the rule; the phase's policy */
	struct dsec_bytes tenant; /* of a policy, for who sees all: whose it is */
};

/*
 * Policies. check: is the document right, and what does it say; nothing is kept. load: it is there
 * under its name from now on, as a new version; the same document again is the version that is
 * there. Sandboxes keep the version they got. Both: DSEC_INVALID with "LINE:COLUMN FIELD: what is
 * wrong" in the detail, and whole in a DSEC_EV_DATA of stream 2. Events: a DSEC_EV_ROW of the
 * policy, then one of each rule and of each phase.
 *
 * show: DSEC_EV_DATA with the document, then the same rows. list: a DSEC_EV_ROW of each policy, in
 * order of names. remove: sandboxes that have it keep it. Ready-made policies are everybody's and
 * stay: DSEC_DENIED. DSEC_CONFLICT: another version is there than the one that was named.
 */
int64_t dsec_policy(struct dsec *d, const struct dsec_call *call,
		    const struct dsec_policy_opts *opts);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
