/* A connection for one verb, its requests, and how it tells that something failed. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include <dsec/dsec.h>
#include <jansson.h>

#include "sdk/cli/params.h"
#include "sdk/cli/report.h"

struct session {
	const struct options *options; /* set by the verb; the rest starts as zero */
	struct dsec *d;
	FILE *status_file;
	struct dsec_status failure; /* the first; code DSEC_OK: none */
	bool is_private;	    /* the engine is ours, and goes with us */
	bool told;		    /* the result is written */
	bool runs;		    /* a program, which goes with its engine; set by the verb */
	bool image_command;	    /* the image's entrypoint comes first; set by the verb */
	char token[4096 + 2];
};

/*
 * Opens the status file, if there is to be one, and connects as the options say. With may_start and
 * no address given, an engine of our own is started where none listens. 0, or -errno after a line
 * on stderr.
 */
int session_open(struct session *session, bool may_start);
/*
 * Connects, as the tenant that the options say, and tells only of a token that cannot be read.
 * *ret_named: somebody said where the engine is, or who we are. 0, or -errno, for which
 * dsec_error() has the words; -EKEYREJECTED: no token, which was told.
 */
int session_connect(struct session *session, struct dsec_open_opts *opts, bool *ret_named);
/*
 * The end of a verb, whatever state the session is in. With --json or a status file the failure is
 * written there, unless a result was. Returns `status`.
 */
int session_end(struct session *session, int status);

/* The verb's result: on stdout with --json, and into the status file. */
void session_tell(struct session *session, const json_t *json);

/* The result of a verb that has nothing more to tell than that it went well: 0. */
int session_done(struct session *session);
/* Of a verb that writes bytes to stdout: 0, or EXIT_TROUBLE where JSON is wanted of it. */
int session_refuse_json(struct session *session, const char *what);

/* One line on stderr; the first failure is what session_end() writes. They return EXIT_TROUBLE. */
int session_fail(struct session *session, const char *what, const struct dsec_status *status);
/* Of a call or of our own, with errno and words. */
int session_fail_error(struct session *session, int r, const char *step, const char *text);
/* The command line makes no sense. */
__attribute__((format(printf, 2, 3))) int session_refuse(struct session *session,
							 const char *format, ...);

/*
 * Fetches a ticket's events to the last one; a negative ticket is a call that failed. Those that
 * went well are seen (seen may be NULL); the first that did not is told as `what`. With what NULL
 * all are seen. 0, or -errno after a line on stderr, -EIO for an event.
 */
int session_events(struct session *session, int64_t ticket, const char *what,
		   void (*seen)(void *state, const struct dsec_event *event), void *state);

/* How rows are told: each as a line of JSON, or as a line of text, of which -q leaves the name. */
struct session_rows {
	void (*json)(const void *row);
	void (*show)(const void *row, bool quiet);
};

/* session_events() for those that have rows, each told as the options say. */
int session_tell_rows(struct session *session, int64_t ticket, const char *what,
		      const struct session_rows *rows);

/* How the verb makes its calls: with the time-out that was asked for. */
struct dsec_call session_call(const struct session *session);

/* Where the engine is: as the options say, or the environment, or else the library's default. */
const char *session_address(const struct options *options);
/* -H private: or the same in the environment. */
bool address_is_private(const struct options *options);
