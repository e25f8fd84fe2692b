/*
 * Policies on the wire: a part of ring.h, which includes it.
 */
#pragma once

#include <dsec/ring.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * check, load: the document; a name only where it is to be that one. show, remove: the name.
 * version: load and remove only if this is the one there is; 0: whatever is.
 */
struct dsec_wire_policy {
	uint32_t size, verb; /* enum dsec_policy_verb */
	uint32_t flags, reserved0;
	struct dsec_wire_ref name, document;
	uint64_t version;
	uint64_t reserved[4];
};

/*
 * Body of a policy's ROW: a policy, or one of its rules or phases. show sends DATA with the
 * document before them. A document that is wrong is INVALID, its detail "LINE:COLUMN FIELD: what";
 * DATA of stream 2 has it whole.
 */
struct dsec_wire_policy_row {
	uint32_t size, what;	/* enum dsec_policy_what */
	uint32_t number, flags; /* of the version, of the rule; enum dsec_policy_flag */
	uint32_t rules, users;	/* users: sandboxes of this tenant and others */
	uint32_t levels;	/* rule: enum dsec_policy_level; policy: how many rules have none */
	uint32_t reserved0;
	uint64_t age_ms, document_bytes;
	struct dsec_wire_ref name; /* policy; phase; service */
	/* policy: what it extends; rule: as the document has it; phase: its policy; service: place
	 */
	struct dsec_wire_ref text;
	struct dsec_wire_ref tenant; /* policy: whose it is, to who sees all */
	uint64_t reserved[4];
};

/*
 * PHASE: the subject goes to the phase of that name if it is in `version`; 0: whatever it is in.
 * CONFLICT: it is in another one.
 */
struct dsec_wire_phase {
	uint32_t size, flags; /* enum dsec_phase_flag */
	uint64_t version;
	struct dsec_wire_ref name, policy; /* policy: empty: what its policy says of that phase */
	uint64_t reserved[4];
};

enum { DSEC_PHASE_FLAGS_KNOWN = 7 }; /* of enum dsec_phase_flag */

/* Body of PHASE's DONE, with a CONFLICT, too: the phase that it is in now. */
struct dsec_wire_phased {
	uint32_t size, execs_killed;
	uint64_t version;
	uint32_t policy, rules_unenforced; /* as in dsec_wire_created */
	uint32_t flows_cut, reserved0;
	struct dsec_wire_ref name, policy_name;
	uint64_t reserved[4];
};

/* So many sandboxes whose files begin as the subject's are. */
struct dsec_wire_fork {
	uint32_t size, count; /* 0: one */
	uint64_t reserved[3];
};

/* Body of FORK's DONE, where the subject was held still. */
struct dsec_wire_forked {
	uint32_t size, reserved0;
	uint64_t paused_us; /* for so long nobody ran in it */
	uint64_t reserved[2];
};

/* A ROW with the subject for each whose task's own it is. */
struct dsec_wire_fetched {
	struct dsec_wire_select select; /* its size is this struct's */
	struct dsec_wire_ref path;
	uint64_t reserved[4];
};

DSEC__ASSERT(sizeof(struct dsec_wire_fork) == 32);
DSEC__ASSERT(sizeof(struct dsec_wire_forked) == 32);
DSEC__ASSERT(sizeof(struct dsec_wire_phase) == 64);
DSEC__ASSERT(sizeof(struct dsec_wire_phased) == 80);
DSEC__ASSERT(sizeof(struct dsec_wire_fetched) == 120);
DSEC__ASSERT(sizeof(struct dsec_wire_policy) == 72);
DSEC__ASSERT(sizeof(struct dsec_wire_policy_row) == 104);

#ifdef __cplusplus
}
#endif
