/* Checking what the store has: every byte of it, and that images have all they need. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/store/store.h"

struct verify_fault {
	char image[256];	       /* "": of no image */
	const char *what;	       /* "record", "erofs", "manifest", "config", "tree", … */
	const char *how;	       /* "missing", "damaged", "unsound", … */
	char digest[DIGEST_HEX_BYTES]; /* of the blob; "": it is none */
	char path[256];		       /* in the image: of a file */
};

struct verify_wish {
	const char *name; /* of one image; NULL: all, and what no image needs */
	bool lazy;	  /* segments may be missing: they come on demand */
	int (*fault)(void *owner, const struct verify_fault *fault);
	int (*progress)(void *owner, uint64_t files, uint64_t bytes); /* as of a seal */
	void *owner;
};

struct verify_result {
	uint64_t images, blobs, files, bytes; /* looked at */
	uint64_t faults, absent;	      /* absent: segments, where they may be */
	uint64_t unchecked;		      /* images of no record: made by other means */
};

/* 0, also with faults. -ENOENT: no image of that name. */
int store_verify(const struct store *store, const struct verify_wish *wish,
		 struct verify_result *ret);
