/* What dsec-fetch may do once it has read its files and looked up its server. */
#pragma once

/*
 * Everything but the network is given up for good: a root that it may not look into, nobody's uid,
 * no capabilities, system calls of memory, time and sockets alone. IMAGE_FD_SCRATCH is closed.
 */
int fetch_confine(void);
