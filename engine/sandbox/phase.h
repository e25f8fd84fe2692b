/*
 * Phases of a sandbox: it begins in one without a name, version 1, and each move is a new version.
 * See docs/phases.md.
 */
#pragma once

#include <stdint.h>

#include "dsec/ring.h"
#include "engine/request/status.h"

struct phase_move;
struct policy;
struct sandbox;

/* So many policies at most, one after the other, before the one in force: each stays in use. */
enum { PHASE_POLICIES_MAX = 8 };

struct sandbox_phase {
	uint64_t version;
	char name[DSEC_PHASE_NAME_BYTES_MAX + 1];
	struct phase_move *move; /* it is on its way to another; NULL: it is not */
	struct policy *earlier[PHASE_POLICIES_MAX]; /* the oldest is that of its create */
	uint32_t earlier_count;
};

/*
 * Whether something may begin that is meant for the phase of that version (0: for any): OK, or a
 * status whose detail is in ret_detail.
 */
struct status phase_admits(const struct sandbox *sandbox, uint64_t version, char ret_detail[80]);
/* An exec or an operation on files is over, or was killed and does not die. */
void phase_ended_one(struct sandbox *sandbox);
void phase_overdue(struct sandbox *sandbox);
/* The sandbox goes. */
void phase_done(struct sandbox *sandbox);
