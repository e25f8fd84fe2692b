/*
 * One job of the image op: a part of a request on its shard, a run on the control thread. It is
 * with one of the two at a time, but for what only one of them touches.
 *
 *	shard		pipes ── image_job_begin() ──► control: admitted, started
 *	shard		import: INPUT into the stream; frames out of the status pipe
 *	control		the process ended: published, swept ── image_job_home() ──► the LAST
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/image.h"
#include "engine/base/timer.h"
#include "engine/image/image.h"
#include "engine/image/image_news.h"
#include "engine/image/run.h"
#include "engine/request/inlet.h"
#include "engine/request/request.h"

enum {
	IMAGE_TEXTS_MAX = 256, /* parts, rules, …: of one job */
	IMAGE_TEXTS_BYTES_MAX = 32 << 10,
	IMAGE_REPORT_BYTES_MAX = 64 << 10,
};

/* Texts of a request, checked. */
struct image_words {
	char name[IMAGE_NAME_MAX], tag[IMPORT_TAG_BYTES];
	char *texts;		    /* owned; each ends with NUL. NULL: none */
	uint32_t text_count, flags; /* enum image_flag */
};

struct image_job;

/* Whose a job is that is a part of something else: it outlives the job. */
struct image_job_hold {
	int further_fd; /* IMAGE_FD_FURTHER: the job's once it began */
	/* May be NULL. It has read what it was given: once, if at all, before over(). */
	void (*read)(struct image_job_hold *hold);
	/*
	 * Nothing of it runs any more: image_job_end() or image_job_drop() is to follow, at once or
	 * later.
	 */
	void (*over)(struct image_job_hold *hold);
};

struct image_job {
	struct mail mail;	 /* to the control thread and home */
	struct mail cancel_mail; /* the same, when it is cancelled */
	struct part *part;
	const char *verb; /* as dsec-store has it; of statuses and of the log */
	bool is_import;
	struct image_job_hold *hold; /* NULL: its part is all there is */
	struct image_words words;
	/* the shard's */
	struct inlet inlet; /* of an import */
	struct io_op status_op;
	int status_fd; /* -1: read to its end */
	struct import_frame frame, told;
	uint32_t frame_bytes;
	bool reading, has_read, answered, quiet, cancelled, cancel_out, late;
	struct timer limit;
	char detail[352]; /* cut to what fits on the wire */
	/* the control thread's */
	struct image_run run;
	int its_stream_fd, its_status_fd, further_fd; /* until the process has them; -1 */
	/* how it went, for the shard */
	int result; /* 0, or what failed in `step`; -EPROTO, -EOWNERDEAD: see run.h */
	const char *step;
	struct image_news news;
	struct image_record *record; /* of what was published; NULL: nothing was */
	uint64_t file_bytes;
	char *report; /* NULL: none */
	uint32_t report_bytes;
};

/* Delivered on the control thread. */
void image_job_begin(struct mail *mail, void *owner);
void image_job_kill(struct mail *mail, void *owner);
/* Delivered at the shard. */
void image_job_home(struct mail *mail, void *owner);
void image_job_kill_home(struct mail *mail, void *owner);

/*
 * `words` are taken where it returns OK. Not OK: the part ends with it, and nothing began. With a
 * `hold` the part's work is not the job's to set, and its end is the holder's. For image_op.c,
 * pack.c and fork.c, as what follows.
 */
struct status image_job_start(struct part *part, const char *verb, struct image_words *words,
			      struct image_job_hold *hold, struct image_job **ret);
void image_job_cancel(struct image_job *job);
void image_job_input(struct image_job *job, struct part *input);
/* The part ends with how it went; the job is freed. */
void image_job_end(struct image_job *job);
/* How it went; the text lives as long as the job. */
struct status image_job_status(struct image_job *job);
/* It is freed, and the part goes on. */
void image_job_drop(struct image_job *job);
