/*
 * What is done of segments behind whoever fills them, by a second thread: digests of their chunks
 * and of all of them, and what was written on its way to the disk. One who gives pieces.
 */
#pragma once

#include <stdint.h>

#include "backends/store/digest.h"

struct behind;

/* A piece of a file: room for a chunk. */
struct behind_piece {
	char *bytes;
	uint32_t count;
	uint64_t at;	     /* of the file; it was written there */
	int fd;		     /* open until behind_wait() */
	struct digest *file; /* of the pieces that were given before, too */
	uint8_t *ret;	     /* its own digest goes there: DIGEST_BYTES */
	struct behind_piece *next;
};

int behind_new(struct behind **ret);
/* What was given and not looked at yet is forgotten. */
void behind_free(struct behind *behind);
/* An empty one, once there is one. */
struct behind_piece *behind_take(struct behind *behind);
/* In the order they are given; `piece` is the thread's. */
void behind_give(struct behind *behind, struct behind_piece *piece);
/* One that was taken and is not given. */
void behind_return(struct behind *behind, struct behind_piece *piece);
/* All that was given is done: what it points to is the caller's again. */
void behind_wait(struct behind *behind);
