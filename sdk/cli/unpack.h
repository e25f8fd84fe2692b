/* An archive that a sandbox wrote, into a folder of this machine. */
#pragma once

#include "sdk/cli/session.h"

/*
 * Takes the read of a tree under `ticket` to its end and puts it into the folder, which must be
 * there. Nothing outside of it is written. 0 or the exit status, after lines on stderr.
 */
int unpack(struct session *session, int64_t ticket, const char *folder);
