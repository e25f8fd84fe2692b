/* Places as people write them: ID:PATH in a sandbox, else a path of this machine. */
#pragma once

#include <stdbool.h>

#include "sdk/cli/session.h"

enum { REMOTE_WHAT_BYTES = 512 };

struct remote {
	struct dsec_id id;
	const char *path;
	const char *text; /* as the user wrote it; NULL: the path alone */
};

/* It names a place in a sandbox. Local: "-", what begins with '/' or '.', what has no ':'. */
bool remote_is(const char *text);
/* 0; or the exit status after a line on stderr. */
int remote_find(struct session *session, const char *text, struct remote *ret);
/* "cat ID:PATH", for what is said of a failure; `ret`, which long ones fill. */
const char *remote_what(const struct remote *remote, const char *verb, char ret[REMOTE_WHAT_BYTES]);
/* What every operation there says. */
struct dsec_file_opts remote_opts(const struct session *session, const struct remote *remote);
/*
 * What there is, links followed. 0 and its row without texts; -ENOENT: nothing, which is not said;
 * else -errno after a line on stderr.
 */
int remote_stat(struct session *session, const struct remote *remote, struct dsec_file_row *ret);
/* A row that says what was left out of an archive, as a note. */
void remote_refusal_note(const struct session *session, const struct dsec_file_row *row);
/* The last name of a path; "" has none. Its bytes. */
struct dsec_bytes path_last(const char *path);
