/*
 * Where the output of background children goes when the exec that started them has ended: it is
 * read and thrown away, so that they neither wait nor die of it, slowly enough to cost others
 * nothing. Such a stream costs a descriptor and a read in flight until its last writer is gone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/pipe.h"
#include "engine/base/timer.h"

struct shard;

/* Of one stream. */
struct sink {
	struct pipe_op pipe;
	struct shard *shard;
	int fd;
	bool reading;
	struct sink *next, **link; /* of all, newest first */
	struct sink *next_due;
};

struct sinks {
	struct sink *all, *due, **due_last;
	uint32_t count;
	struct timer timer; /* of those that are due */
	char *scrap;	    /* what all of them read into */
};

int sinks_init(struct sinks *sinks);
/* After the loop has ended. */
void sinks_done(struct sinks *sinks);
/* Takes the reading end of a pipe. Where there are too many the oldest is closed. */
void sink_take(struct shard *shard, int fd);
