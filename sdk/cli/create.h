/* Asking for sandboxes as the options of run and create say. */
#pragma once

#include "sdk/cli/session.h"

/* The ticket, or -errno. count 0: 1. disconnect: enum dsec_disconnect. */
int64_t create_start(struct session *session, const char *image, uint32_t count,
		     uint32_t disconnect);
/* One that was made goes again. 0, or -errno after a line on stderr. */
int create_undo(struct session *session, struct dsec_id id);
/*
 * policy.c: what --policy says, rule by rule, and how it is enforced here, on stdout. version: of
 * the policy that was given; another one that is there by now is told on stderr. The exit status.
 */
int policy_tell_made(struct session *session, uint32_t version);

/* The sandboxes of a ticket that was to make so many, as they come. Returns the exit status. */
int create_tell(struct session *session, int64_t ticket, const char *what, uint64_t asked);
