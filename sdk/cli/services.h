/* What `dsec policy services` does. */
#pragma once

#include "sdk/cli/session.h"

/* ls: a line for each place of each service; the exit status. */
int services_list(struct session *session);
/*
 * scan: a document of the services that an image's own package managers are configured to fetch
 * from, on stdout. It is read in a sandbox of its own without network, which ends with it; no
 * program of the image runs. The exit status.
 */
int services_scan(struct session *session, const char *image);
