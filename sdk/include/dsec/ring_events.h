/*
 * Payloads of subscriptions: a part of ring.h, which includes it.
 */
#pragma once

#include <dsec/ring.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What happens, until it is cancelled. STARTED, whose offset is the number of the first event that
 * may follow; then STATE with a dsec_wire_state and GAP with a dsec_wire_missed, offset: its
 * number. Events of an engine are numbered from 1. CREDIT of stream 0 counts STATE and GAP of this
 * request: no more than `window` are sent beyond what was consumed. Who does not keep up loses the
 * oldest.
 */
struct dsec_wire_subscribe {
	struct dsec_wire_select select; /* its size is this struct's; nothing: everything */
	uint64_t topics;		/* bits 1 << enum dsec_topic; 0: all */
	uint64_t from_seq;		/* from that event on; 0: from now on */
	uint64_t epoch;			/* of the engine that gave from_seq; 0: this one */
	uint32_t window,
		flags; /* events; 0: the default; clamped. flags: enum dsec_subscribe_flag */
	uint64_t reserved[4];
};

enum { DSEC_EVENTS_WINDOW_DEFAULT = 64, DSEC_EVENTS_WINDOW_MAX = 1024 };

/* Body of a subscription's STATE. */
struct dsec_wire_state {
	uint32_t size, topic; /* enum dsec_topic */
	uint64_t seq;
	uint64_t time_ms;	/* since 1970, by the engine's clock */
	struct dsec_wire_id id; /* zero: of an image */
	uint64_t exec;		/* 0: of the sandbox itself */
	uint32_t cause, flags;	/* enum dsec_cause; DSEC_EVENT_UNPOLICED */
	/* EXEC_ENDED: enum dsec_reason; DSEC_NOT_STARTED, too, where the host could not start it */
	uint32_t reason;
	int32_t exit_code, signal;
	uint32_t reserved0;
	uint64_t wall_us;
	struct dsec_wire_ref image;    /* CREATING, IMAGE_IMPORTED to IMAGE_REMOVED: its name */
	struct dsec_wire_items labels; /* of the sandbox */
	/* VIOLATION, ANOMALY: a dsec_wire_violation, and what it points to */
	struct dsec_wire_ref violation;
	uint64_t phase_version;	    /* it happened in: of the sandbox, or of the exec */
	struct dsec_wire_ref phase; /* its name, where it is the sandbox's phase still */
	uint64_t reserved[1];
};

struct dsec_wire_violation {
	uint32_t size, rule; /* rule: its number in the policy, or from 0x8000 one of all */
	uint32_t hook, anomaly;
	uint64_t count, argument;
	uint32_t verdict, policy;
	int32_t error, pid;
	struct dsec_wire_ref process, text; /* within the record */
};

/* Body of a subscription's GAP. */
struct dsec_wire_missed {
	uint32_t size, flags; /* enum dsec_missed_flag */
	uint64_t first_seq;   /* not before that one */
	uint64_t next_seq;    /* and before this one */
	uint64_t count;	      /* so many were not sent */
	uint64_t reserved[2];
};

DSEC__ASSERT(sizeof(struct dsec_wire_subscribe) == 144);
DSEC__ASSERT(sizeof(struct dsec_wire_state) % 8 == 0);
DSEC__ASSERT(sizeof(struct dsec_wire_missed) == 48);

#ifdef __cplusplus
}
#endif
