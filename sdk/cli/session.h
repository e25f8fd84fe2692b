/* A connection for one verb, ids as people write them, and errors as people read them. */
#pragma once

#include <stdbool.h>

#include <dsec/dsec.h>

#include "sdk/cli/params.h"

/* Exit statuses that are not the guest's. */
enum { EXIT_DIFFERS = 1, EXIT_TIMED_OUT = 124, EXIT_TROUBLE = 125 };

struct session {
	struct dsec *d;
	const struct options *options;
	bool is_private; /* the engine is ours, and goes with us */
};

/*
 * Connects as the options say. With may_start and no address given, an engine of our own is started
 * where none listens. 0, or -errno after one line on stderr.
 */
int session_open(struct session *session, const struct options *options, bool may_start);
void session_close(struct session *session);

/* The ticket's next event; -errno after one line on stderr, also for a negative ticket. */
int session_next(struct session *session, int64_t ticket, struct dsec_event **ret);

/* How the verb makes its calls: with the time-out that was asked for. */
struct dsec_call session_call(const struct session *session);

/* The options' labels as the library wants them; free() it. NULL: no memory. */
struct dsec_label *session_labels(const struct options *options, uint32_t *ret_count);

/*
 * An id, its unique beginning or end, or name:NAME. 0, or -errno after one line on stderr: -ENOENT
 * none, -ENOTUNIQ several.
 */
int session_resolve(struct session *session, const char *text, struct dsec_id *ret);

/*
 * All arguments and labels as a selection. *ret_ids is for free(), *ret_labels too. -EINVAL when
 * nothing is named at all.
 */
int session_select(struct session *session, struct dsec_select *select, struct dsec_id **ret_ids,
		   struct dsec_label **ret_labels);

/* "dsec: create refused: DETAIL at STEP (errno) [blame]; what to do" */
void report_status(const struct session *session, const char *what,
		   const struct dsec_status *status);
/* "dsec: TEXT", unless the user wants quiet; for notes, not for errors. */
__attribute__((format(printf, 2, 3))) void report_note(const struct options *options,
						       const char *format, ...);

const char *code_name(uint32_t code);
const char *blame_name(uint32_t blame);
const char *network_name(uint32_t network);
