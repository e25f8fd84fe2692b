/*
 * One import: a part of an image request on its shard, a process and a scratch directory on the
 * control thread. It is with one of the two at a time, but for what only one of them touches.
 *
 *	shard		pipes ── import_begin() ──► control: admitted, started
 *	shard		INPUT into the stream, frames out of the status pipe
 *	control		the process was reaped: published, swept ── import_home() ──► the LAST
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/image.h"
#include "engine/base/timer.h"
#include "engine/image/image.h"
#include "engine/image/image_news.h"
#include "engine/request/inlet.h"
#include "engine/request/request.h"
#include "engine/image/scratch.h"

struct control;

struct importing {
	struct mail mail;	 /* to the control thread and home */
	struct mail cancel_mail; /* the same, when it is cancelled */
	struct part *part;
	char name[IMAGE_NAME_MAX];
	enum import_kind kind;
	char tag[IMPORT_TAG_BYTES];
	/* the shard's */
	struct inlet inlet;
	struct io_op status_op;
	int status_fd; /* -1: read to its end */
	struct import_frame frame, told;
	uint32_t frame_bytes;
	bool reading, answered, quiet, cancelled, cancel_out, late;
	struct timer limit;
	char detail[352]; /* cut to what fits on the wire */
	/* the control thread's */
	struct importing *next;
	int its_stream_fd, its_status_fd; /* until the process has them; -1 */
	int pid;			  /* 0: none to kill */
	uint64_t group;			  /* the number of its control group */
	int group_fd;			  /* -1: none */
	struct io_op op;
	siginfo_t info;
	struct scratch scratch;
	/* how it went, for the shard */
	int result; /* 0, or what failed in `step`; -EPROTO: see what it told;
			      -EOWNERDEAD: it was killed */
	const char *step;
	struct image_news news;
	struct image_record *record; /* of what was published */
	uint64_t file_bytes;
};

/* Delivered on the control thread. */
void import_begin(struct mail *mail, void *owner);
void import_kill(struct mail *mail, void *owner);
/* Delivered at the shard. */
void import_home(struct mail *mail, void *owner);
void import_kill_home(struct mail *mail, void *owner);

/* ---- the control thread's ---- */

/* At once, of one tenant alone; of several one each. Each may use a CPU and the disk's time. */
enum { IMPORTS_MAX = 2 };

struct imports {
	struct importing *live;
	struct scratches scratches;
	uint32_t count;
	uint64_t groups_made;
	bool stopping;
};

/* What dead engines left is swept. Never fails: without a place for them, imports do. */
void imports_open(struct control *control);
/* The engine stops: all are killed, and no other begins. */
void imports_stop(struct control *control);
bool imports_live(struct control *control);
void imports_close(struct control *control);
