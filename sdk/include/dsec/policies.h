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
	/*
	 * show, remove. check, load: NULL, or what the document's name is to be. Not for list and
	 * services.
	 */
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
	struct dsec_bytes name;	  /* of the policy, of the phase, of the service */
	struct dsec_bytes text;	  /* what it extends; the rule; the phase's policy; the place */
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
 * order of names. services: a row of each place of each service that the operator named. remove:
 * sandboxes that have it keep it. Ready-made policies are everybody's and stay: DSEC_DENIED.
 * DSEC_CONFLICT: another version is there than the one that was named.
 */
int64_t dsec_policy(struct dsec *d, const struct dsec_call *call,
		    const struct dsec_policy_opts *opts);

struct dsec_phase_opts {
	uint32_t size, flags; /* bits of enum dsec_phase_flag */
	const char *name;
	const char *policy; /* NULL: what its policy says of that phase, or none: the same one */
	uint64_t version;   /* only if it is in that version; 0: whatever it is in */
};

/* Body of a phase's DSEC_EV_DONE, also with DSEC_CONFLICT: what the sandbox is in now. */
struct dsec_phased {
	uint32_t size, execs_killed; /* and operations on files */
	uint64_t version;
	uint32_t policy, rules_unenforced; /* as in dsec_created */
	uint32_t flows_cut, reserved;
	struct dsec_bytes name, policy_name; /* name empty: it is where it began */
};

/*
 * Moves a sandbox to another phase. It begins in one without a name, version 1; each move is a new
 * version. A policy comes into force with it that allows no more than the one before: DSEC_DENIED,
 * and the detail names the rule that it lacks. Execs may name the version that they are meant for.
 * Meanwhile they and operations on files are DSEC_REFUSED. docs/phases.md says what becomes of what
 * runs on.
 *
 * With DSEC_PHASE_KILL_OLD DSEC_EV_DONE comes when nothing of the old phase runs: its execs end
 * with DSEC_PHASE_OVER. DSEC_FAILED at step "phase.kill": something does not die; the phase is the
 * one before. DSEC_CONFLICT: it is in another version than the one that was named.
 */
int64_t dsec_phase(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		   const struct dsec_phase_opts *opts);

struct dsec_fetched_opts {
	uint32_t size, reserved; /* reserved: 0 */
	const char *path;	 /* "git.example/owner/name/@v/list", at most 2048 bytes */
};

/*
 * Of who serves packages to sandboxes: these were seen to fetch that. Where it is what a sandbox's
 * label task.repository names, it is the anomaly DSEC_ANOMALY_PROXY_OWN_REPOSITORY. Events: a
 * DSEC_EV_ROW with the subject of each whose own it is, then DSEC_EV_DONE; DSEC_ABSENT: one that
 * was named is not there. Who sees all tenants may tell of anybody's.
 */
int64_t dsec_fetched(struct dsec *d, const struct dsec_call *call, const struct dsec_select *select,
		     const struct dsec_fetched_opts *opts);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
