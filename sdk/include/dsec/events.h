/*
 * What happens to sandboxes and images, told as it happens. A part of dsec.h, whose contracts hold
 * here too.
 */
#pragma once

#include <dsec/dsec.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct dsec_subscribe_opts {
	uint32_t size, flags;		  /* bits of enum dsec_subscribe_flag */
	const struct dsec_select *select; /* at most 4096 ids, 8 labels; NULL: everything */
	uint64_t topics;		  /* bits 1 << enum dsec_topic; 0: all, later ones too */
	/*
	 * From that event on, the last one's number plus 1 to go on, 1: from the oldest; 0: from
	 * now on. `epoch`: of the engine that gave the number; 0: of this one.
	 */
	uint64_t from_seq, epoch;
	uint32_t window, reserved; /* events sent ahead of dsec_event_free(); 0: 64. reserved: 0 */
};

/*
 * Body of a DSEC_EV_STATE, whose subject is the sandbox; zero: of an image. An engine numbers
 * events from 1.
 */
struct dsec_news {
	uint32_t size, topic; /* enum dsec_topic */
	uint64_t seq, epoch;  /* its number, and of which engine */
	uint64_t time_ms;     /* since 1970, by the engine's clock */
	struct dsec_id sandbox;
	uint64_t exec;	       /* its number in its sandbox; 0: of the sandbox itself */
	uint32_t cause, flags; /* enum dsec_cause, where it ends; flags: DSEC_UNPOLICED */
	/* DSEC_TOPIC_EXEC_ENDED: enum dsec_reason; DSEC_NOT_STARTED also if the host could not */
	uint32_t reason;
	int32_t exit_code, signal; /* by reason */
	uint32_t label_count;
	uint64_t wall_us;
	struct dsec_bytes image; /* its name: DSEC_TOPIC_CREATING, and DSEC_TOPIC_IMAGE_* */
	const struct dsec_label *labels;
	/* DSEC_TOPIC_VIOLATION, DSEC_TOPIC_ANOMALY; else 0. See docs/anomalies.md */
	uint32_t rule, hook; /* rule: its number in its policy, or from 0x8000 one of all */
	uint64_t count;	     /* how often so far, this one included */
	uint64_t argument;   /* by hook */
	uint32_t verdict;    /* 1: refused, 2: only told */
	uint32_t anomaly;    /* enum dsec_anomaly */
	int32_t error, pid;  /* pid: on the engine's host; 0: unknown */
	struct dsec_bytes process, text; /* its name; a path, the name of a socket */
	/* In which phase; its name where the sandbox is still in it. */
	struct dsec_bytes phase;
	uint64_t phase_version;
};

/* Body of a subscription's DSEC_EV_GAP: events that it does not get. */
struct dsec_missed {
	uint32_t size, flags;	      /* bits of enum dsec_missed_flag */
	uint64_t first_seq, next_seq; /* numbers from first_seq to before next_seq */
	uint64_t count;		      /* so many of them would have been sent */
	uint64_t epoch;
};

/*
 * Events: DSEC_EV_STARTED, whose offset is the number of the first event that may follow: all that
 * happens from then on is told; then DSEC_EV_STATE and DSEC_EV_GAP until it is cancelled or its
 * time is over; with DSEC_SUBSCRIBE_SO_FAR until all is told, then DSEC_EV_DONE. Each event comes
 * once, in the order of their numbers, which have gaps where others were not selected.
 *
 * Events of a sandbox: CREATING, RUNNING, PHASE any number of times, DESTROYING, ENDED, in this
 * order; of one that cannot be built CREATING, ENDED with DSEC_CAUSE_FAILED. QUARANTINED: it does
 * not end, or does not come to be, in time. Of an exec EXEC_STARTED and EXEC_ENDED; one that could
 * not start only has the end.
 *
 * Events of an image, to all who may see it: IMAGE_IMPORTED, or IMAGE_REPLACED where the name was
 * another's, and IMAGE_REMOVED. A file that is put among the images by hand is not told. Whoever
 * selects ids or labels is told of sandboxes alone.
 *
 * Who does not free events gets no more of them: the engine keeps the past for a while, see
 * dsecd(8), and passes over what is older, with a DSEC_EV_GAP in its place. That holds up nobody.
 *
 * After a reconnect to the same engine it goes on with the next number. To another one: a
 * DSEC_EV_GAP with DSEC_MISSED_RESET, then all that happened there; what was before is gone, with
 * its sandboxes. DSEC_UNSUPPORTED: an engine that is older than this.
 */
int64_t dsec_subscribe(struct dsec *d, const struct dsec_call *call,
		       const struct dsec_subscribe_opts *opts);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
