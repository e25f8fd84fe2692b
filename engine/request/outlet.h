/*
 * A stream from a descriptor to the client of a part: DATA events with offsets, while there is
 * room in the window. What was read but not consumed is at most the window. One reader; what is
 * kept for several is an exec's own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/io.h"
#include "engine/request/request.h"
#include "engine/request/window.h"

struct outlet {
	struct io *io;
	struct io_op op;
	struct part *part;
	struct emission event; /* what all its DATA have in common: subject, exec, stream */
	struct window window;
	int fd; /* ours; -1: closed */
	char *buffer;
	bool reading, stopping, ended;
	void *owner;
	/*
	 * End of file (0) after all was emitted, a failed read (-errno), or -ECANCELED after
	 * outlet_stop() that returned false. Nothing is in flight then, and nothing follows.
	 */
	void (*over)(struct outlet *outlet, int error);
};

struct outlet_options {
	struct io *io;
	struct part *part;
	int fd;		       /* taken, also on failure */
	uint64_t window_bytes; /* wished; 0: the default */
	struct emission event; /* subject, exec, stream */
};

/* `owner` and `over` are set before. -ENOMEM. */
int outlet_open(struct outlet *outlet, const struct outlet_options *options);
/* The op's `credit` hook. -EINVAL. */
int outlet_credit(struct outlet *outlet, uint64_t consumed);
/* Nothing is emitted any more. True: nothing is in flight; else over() will be called. */
bool outlet_stop(struct outlet *outlet);
void outlet_done(struct outlet *outlet);
