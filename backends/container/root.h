/* A mount namespace of the caller's own that holds one tmpfs, its root, and nothing else. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct root_options {
	const char *mode;
	unsigned attributes;  /* MOUNT_ATTR_* */
	bool covers;	      /* an empty file ROOT_FILE and an empty folder ROOT_FOLDER */
	const char *resolver; /* what a file ROOT_RESOLVER says; NULL: there is none */
};

#define ROOT_FILE     "file"
#define ROOT_FOLDER   "folder"
#define ROOT_RESOLVER "resolv.conf"

/* System calls only. On failure the caller is left in a namespace it must not use: it exits. */
long root_replace(const struct root_options *options, uint64_t secret);
