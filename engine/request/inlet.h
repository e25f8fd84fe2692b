/*
 * A stream from a client into a descriptor: INPUT requests, in order of their offsets, written as
 * the reader takes them. An INPUT ends when its bytes are taken whole; while there is no room it
 * waits, and that is the client's back-pressure. Used by every op whose requests take input.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/io.h"
#include "engine/base/pipe.h"
#include "engine/request/status.h"

struct part;

struct inlet {
	struct io *io;
	struct pipe_op pipe;
	struct io_op op; /* in place of it, of a terminal */
	int fd;		 /* ours until the stream's end; -1: closed */
	uint64_t offset; /* of the first byte that was not taken */
	char *chunk;	 /* taken, and being written from `at` on */
	uint32_t at, bytes;
	struct part *waiting, **waiting_last;
	bool writing, last, ended, stopping; /* last: the chunk is the last one */
	/* Set after inlet_open(): its end is typed, as Ctrl-D, for the line stays. */
	bool is_terminal, end_typed;
	char typed;	    /* the byte that was written last; 0: none */
	struct status over; /* not OK: what further input is answered with */
	void *owner;
	/* May be NULL. All was written and the descriptor closed (0), or a write failed. */
	void (*closed)(struct inlet *inlet, int error);
	/*
	 * May be NULL. After inlet_stop() that returned false: nothing is in flight any more, and
	 * the inlet may be freed from here.
	 */
	void (*quiet)(struct inlet *inlet);
};

/*
 * Takes the descriptor. `owner` and what is called back are set before. -1: there is none yet, and
 * all input waits for inlet_start().
 */
void inlet_open(struct inlet *inlet, struct io *io, int fd);
void inlet_start(struct inlet *inlet, int fd);
/* The op's `input` hook: ends `input` now, or when its turn has come. */
void inlet_add(struct inlet *inlet, struct part *input);
/*
 * All there is to be written, where it came with the request: a copy is taken, and then the stream
 * ends. May call closed() from inside. -ENOMEM.
 */
int inlet_feed(struct inlet *inlet, const char *bytes, uint32_t count);
/*
 * Nothing is written any more, and whoever waits or comes later is answered with `over` (not OK).
 * True: nothing is in flight; else `quiet` will be called. Then inlet_done().
 */
bool inlet_stop(struct inlet *inlet, const struct status *over);
void inlet_done(struct inlet *inlet);
/* The cancel of an INPUT: where it waits, nothing of it was taken. */
void inlet_cancel(struct part *input);
