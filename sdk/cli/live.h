/* A program's streams as they come, and stdin to it, until it has ended. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sdk/cli/session.h"
#include "sdk/cli/signals.h"

struct backlog {
	struct dsec_event **events;
	uint32_t at, count, size; /* at: the first that is not done with */
};

struct live {
	struct session *session;
	struct dsec_id sandbox;
	bool shows; /* DATA goes to stdout and stderr */
	bool input; /* stdin goes to it */
	/* A SIGINT, SIGTERM or SIGHUP goes on to the program; a second one ends this. */
	bool passes;
	/* Asks, with a call that names a queue: a ticket, or -errno. */
	int64_t (*ask)(struct live *live, const struct dsec_call *call);
	void (*last)(struct live *live, const struct dsec_event *event);

	/* live.c */
	struct dsec_queue *queue;
	int64_t ticket, input_ticket; /* -1: none */
	uint64_t input_offset, exec;
	char *chunk;
	size_t chunk_bytes; /* read, and not given yet */
	bool input_over, chunk_waits, ended, deaf;
	struct backlog backlog;
	uint32_t shown_bytes; /* of its first event */
	struct signals signals;
	int passed, interrupted; /* the first one, and the second; 0: none */
	bool pass_waits;	 /* until the program has begun, or the engine is back */
};

/*
 * 0, or -errno after a line on stderr: -EINTR with `interrupted`. last() was called where there was
 * an end.
 */
int live_follow(struct live *live);
