/*
 * One import inside the program: what its processes share. The supervisor trusts nothing that the
 * unpacker left here but numbers and bounded text.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/image.h"
#include "backends/store/report.h"

enum {
	IMPORT_DEPTH_MAX = 128,	  /* directories in a path: whoever walks the tree recurses */
	IMPORT_PATH_BYTES = 3072, /* of a path: what programs of any kind can open */
	IMPORT_BLOBS_MAX = 16384, /* entries of a docker archive or an OCI layout */
	IMPORT_ID_MAX = 65535,	  /* owners: what a sandbox's range of ids holds */
};

/* Between supervisor and unpacker, in shared memory. */
struct import {
	enum import_kind kind;
	char tag[IMPORT_TAG_BYTES]; /* of an archive's images this one; "": the only one */
	uint32_t flags;		    /* enum image_flag */
	struct import_limits limits;
	struct report report;
	struct image_record record;
	int tree_fd, raw_fd, blobs_fd; /* the tree blob, contents, parts of an archive */
};

/* As report_fail() and report_progress(). */
static inline int import_fail(struct import *in, int error, const char *name, const char *reason)
{
	return report_fail(&in->report, error, name, reason);
}

static inline int import_progress(struct import *in)
{
	return report_progress(&in->report);
}

/* unpack.c: the unpacker's work, from the stream to tree, contents and a record. */
int import_unpack(struct import *in);
/* seal.c: the sealer's, from these to blobs of the store and IMPORT_RESULT in `out_fd`. */
int import_seal(struct import *in, int out_fd, int images_fd);

/* confine.c. Each gives up for good what its part of the work does not need. */
int confine_process(int scratch_fd, int images_fd);
int confine_unpacker(pid_t parent);
int confine_sealer(pid_t parent);
