/* What --cp-in asks of a sandbox that was just made. */
#pragma once

#include "sdk/cli/session.h"

/* Before anything is made: 0, or the exit status after a line on stderr. */
int copies_check(struct session *session);
/* All of them, in order. As above. */
int copies_make(struct session *session, struct dsec_id sandbox);
