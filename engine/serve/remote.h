/*
 * A remote: where blobs are that this node has not. Asked for ranges of blobs, on a shard, by its
 * ring; nothing here blocks. What comes is believed by nobody: the asker checks digests.
 *
 *	dir:PATH	PATH/blobs/sha256/HEX: any mounted file system, an OCI image layout
 *	3fs:PATH	the same on 3FS, read by its USRBIO where its library is there
 *	http://… https://…	ADDRESS/blobs/sha256/HEX, by range requests
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/store/digest.h"

struct remote;
struct shard;

enum {
	REMOTE_BYTES_MAX = 1 << 20, /* of one read */
	REMOTE_FLIGHTS = 32,	    /* reads under way at once, of a shard; others wait */
};

/* One read. The asker's, from remote_read() until done(); done() comes always, and once. */
struct remote_read {
	uint8_t blob[DIGEST_BYTES];
	uint64_t offset;
	uint32_t bytes;
	void *buffer; /* of `bytes`; holds nothing of use until done() */
	/* How many bytes, fewer only at the blob's end; -ENOENT, -EIO, -ETIMEDOUT, … */
	void (*done)(struct remote_read *read, int result);
	void *owner;
	/* The remote's. */
	struct remote_read *next, *previous;
	uint64_t until_ns;
	void *flight; /* NULL: it waits for one */
	int result;
	bool has_ended;
};

/* Checked before an engine starts: -EINVAL, and `ret_why` in words. */
int remote_check(const char *address, const char **ret_why);
/* One for each shard. A remote that is down is no error here. */
int remote_open(const char *address, struct shard *shard, struct remote **ret);
/*
 * done() is never called from within. After config->remote_timeout_s it is -ETIMEDOUT, whatever
 * hangs, and what comes later changes nothing. -EINVAL: no bytes, or over REMOTE_BYTES_MAX.
 */
void remote_read(struct remote *remote, struct remote_read *read);
/* done() follows soon, with -ECANCELED. */
void remote_cancel(struct remote *remote, struct remote_read *read);
/* What it holds open of a blob was not what it should be: the next read looks anew. */
void remote_doubt(struct remote *remote, const uint8_t blob[DIGEST_BYTES]);
/*
 * Nothing is being read; before io_close(). What was given up and hangs still keeps its memory, and
 * the remote its descriptors, until the process ends.
 */
void remote_close(struct remote *remote);
