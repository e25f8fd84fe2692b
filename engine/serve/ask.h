/*
 * What the kernel asks a FUSE server for, read from the bytes of its device. Struct fuse_ask holds
 * nothing that was not checked: it may be used as it is.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backends/store/digest.h"

enum {
	ASK_READ_BYTES_MAX = 128 << 10,
	ASK_BYTES_MIN = 8192, /* of a buffer that requests are read into: FUSE_MIN_READ_BUFFER */
	ASK_ROOT = 1,	      /* the node of the only directory */
};

enum ask_kind {
	ASK_INIT,
	ASK_LOOKUP, /* a segment in the root */
	ASK_ATTRIBUTES,
	ASK_OPEN,
	ASK_READ,
	ASK_STATFS,
	ASK_INTERRUPT, /* has no answer of its own */
	ASK_SILENT,    /* has none, and nothing follows from it */
	ASK_PLAIN,     /* is answered with `error`, which may be 0 */
	ASK_KINDS,
};

struct fuse_ask {
	enum ask_kind kind;
	uint64_t unique, node;
	int error;		    /* PLAIN: 0 or negative */
	uint8_t name[DIGEST_BYTES]; /* LOOKUP */
	uint64_t offset;	    /* READ */
	uint32_t bytes;		    /* READ: 1 to ASK_READ_BYTES_MAX */
	uint64_t interrupted;	    /* INTERRUPT: the unique of another */
	uint32_t minor, readahead;  /* INIT */
	uint64_t offered;	    /* INIT: flags the kernel knows */
};

/* -EPROTO: no request; there is nobody to answer. */
int fuse_ask_read(const void *bytes, size_t count, struct fuse_ask *ret);
