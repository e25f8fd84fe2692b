/*
 * What dsec-store may do once it has its descriptors. Whatever it parses came from elsewhere:
 * manifests, trees, image files, a sandbox's files.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct store_confine {
	bool network;	       /* the engine's network, and no filter of system calls */
	bool uncut;	       /* links are made to a directory that is not ours */
	uint64_t capabilities; /* bits to keep beside those to reach files of any owner */
};

/*
 * Everything is given up for good: a root that is the scratch, none of the engine's files but those
 * that are open, no network, other capabilities, other system calls than those on open directories.
 * IMAGE_FD_SCRATCH and IMAGE_FD_IMAGES are replaced: nothing above them is reached, but `uncut`.
 */
int store_confine(const struct store_confine *wish);
