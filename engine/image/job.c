/*
 * Jobs of the image op on their shard: a client's bytes into the importer's stream, frames of what
 * runs out as PROGRESS, its report as DATA, one LAST. Called by image_op.c and by mail from
 * job_run.c. Must hold: the LAST comes after the control thread has answered, when nothing of the
 * run is left.
 */
#include "engine/image/job.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/control.h"
#include "engine/image/image_op.h"
#include "engine/shard.h"

static const struct status job_over = { .code = DSEC_FAILED,
					.blame = DSEC_BLAME_CALLER,
					.error = EPIPE,
					.table = "import",
					.step = "stream",
					.detail = "the import has ended" };

/* ---- how it went ---- */

/* What a run says of itself: its words may be the caller's fault, or ours. */
static const struct {
	int error;
	uint32_t code;
} told_codes[] = {
	{ EOPNOTSUPP, DSEC_UNSUPPORTED }, { ENOENT, DSEC_ABSENT },   { EINVAL, DSEC_INVALID },
	{ EBUSY, DSEC_CONFLICT },	  { EEXIST, DSEC_CONFLICT }, { EACCES, DSEC_DENIED },
	{ ENOTDIR, DSEC_INVALID },
};

/* Of an archive that cannot be an image the caller must hear; the rest is ours. */
static uint32_t told_code(const struct image_job *job)
{
	const struct import_frame *told = &job->told;

	for (size_t i = 0; !job->is_import && i < sizeof told_codes / sizeof *told_codes; i++)
		if (told_codes[i].error == told->error)
			return told_codes[i].code;
	if (!job->is_import || !strcmp(told->step, "confine") || !strcmp(told->step, "start") ||
	    !strcmp(told->step, "erofs") || !strcmp(told->step, "seal") ||
	    !strcmp(told->step, "unpack") || told->error == ENOSPC || told->error == ENOMEM ||
	    told->error == EIO)
		return DSEC_OK;
	return DSEC_INVALID;
}

/* The end of a path that does not fit says more than its beginning. */
static void detail_print(struct image_job *job)
{
	const struct import_frame *told = &job->told;
	const size_t used = strlen(told->reason) + strlen(": ") + 1, bytes = strlen(told->name);
	const size_t room = used < sizeof job->detail ? sizeof job->detail - used : 0;

	(void)snprintf(job->detail, sizeof job->detail, "%s%s%s", told->reason,
		       *told->name ? ": " : "", told->name + (bytes > room ? bytes - room : 0));
}

static struct status told_status(struct image_job *job)
{
	const struct import_frame *told = &job->told;
	struct status s = status_of_errno(-told->error, job->verb, told->step);
	uint32_t code = told_code(job);

	if (code) {
		s.code = code;
		s.blame = DSEC_BLAME_CALLER;
	}
	detail_print(job);
	s.detail = job->detail;
	return s;
}

struct status image_job_status(struct image_job *job)
{
	struct status s;

	if (job->result >= 0)
		return STATUS_OK;
	if (job->late)
		return (struct status){ .code = DSEC_DEADLINE,
					.blame = DSEC_BLAME_CALLER,
					.table = job->verb,
					.step = "time",
					.detail = "it takes two hours at most" };
	if (job->cancelled)
		return status_of_errno(-ECANCELED, job->verb, "cancel");
	if (job->result == -EPROTO && job->told.kind == IMPORT_FAILED)
		return told_status(job);
	if (job->result == -EPROTO || job->result == -EOWNERDEAD) {
		s = status_of_errno(-EPIPE, job->verb, "process");
		s.detail = job->is_import ? "the importer was killed" :
					    "the store's program was killed";
		return s;
	}
	s = status_of_errno(job->result, job->verb, job->step);
	if (job->result == -ENOSPC) {
		s.detail = "the disk of images is full to its mark: see dsecd --images-full";
	} else if (job->result == -ENOENT && job->step && !strcmp(job->step, "start")) {
		s.detail = job->is_import ? "the program dsec-import is not there: see the log" :
					    "the program dsec-store is not there: see the log";
	} else if (job->step && !strcmp(job->step, "images")) {
		s.detail = "the directory of images cannot be written to";
	}
	return s;
}

/* Before its part ends, which may be gone then. */
static void job_close(struct image_job *job)
{
	struct shard *shard = job->part->shard;

	shard->imports--;
	timer_clear(&shard->timers, &job->limit);
	if (job->is_import)
		inlet_done(&job->inlet);
}

static void job_free(struct image_job *job)
{
	free(job->words.texts);
	free(job->record);
	free(job->report);
	free(job);
}

void image_job_drop(struct image_job *job)
{
	job_close(job);
	job_free(job);
}

void image_job_end(struct image_job *job)
{
	struct part *part = job->part;
	struct emission final = { .kind = DSEC_EV_DONE, .status = image_job_status(job) };
	struct emission report = { .kind = DSEC_EV_DATA,
				   .body = job->report,
				   .bytes = job->report_bytes };
	char body[IMAGE_ROW_BYTES_MAX];

	if (final.status.code)
		log_warning("image %s failed name=\"%s\" step=%s err=%s reason=\"%s\" entry=\"%s\"",
			    job->verb, job->words.name, final.status.step,
			    strerror(final.status.error), job->told.reason, job->told.name);
	if (!final.status.code && job->record) {
		struct image_row row = { .record = job->record,
					 .name = job->words.name,
					 .file_bytes = job->file_bytes,
					 .new_bytes = UINT64_MAX,
					 .shared_bytes = UINT64_MAX,
					 .segment_bytes = UINT64_MAX,
					 .local_bytes = UINT64_MAX,
					 .dropped_nodes = job->told.dropped_nodes,
					 .dropped_xattrs = job->told.dropped_xattrs };

		/* What is shared says what others have: it is for who has all there is. */
		if (part->shard->node->tenant_count < 2) {
			row.new_bytes = job->told.new_bytes;
			row.shared_bytes = job->told.shared_bytes;
		}
		final.bytes = image_row_write(&row, body);
		final.body = body;
	}
	if (job->report_bytes)
		part_emit(part, &report);
	part->work = NULL;
	job_close(job);
	part_end(part, NULL, &final);
	job_free(job);
}

static void job_settle(struct image_job *job)
{
	if (!job->answered || !job->quiet || job->reading || job->cancel_out)
		return;
	if (job->hold)
		job->hold->over(job->hold);
	else
		image_job_end(job);
}

static void inlet_quiet(struct inlet *inlet)
{
	struct image_job *job = inlet->owner;

	job->quiet = true;
	job_settle(job);
}

/* ---- frames ---- */

static void frame_emit(struct image_job *job)
{
	struct dsec_wire_progress body = {
		.size = sizeof body,
		.layers = job->told.layers,
		.layers_total = job->told.layers_total,
		.bytes = job->told.bytes,
		.files = job->told.files,
		.read_bytes = job->told.read_bytes,
	};
	struct emission e = { .kind = DSEC_EV_PROGRESS, .body = &body, .bytes = sizeof body };

	part_emit(job->part, &e);
}

/* A pack says with its one layer that it has read it. */
static void frame_tell(struct image_job *job, const struct import_frame *frame)
{
	struct image_job_hold *hold = job->hold;

	if (!hold || !hold->read || job->has_read || !frame->layers)
		return;
	job->has_read = true;
	hold->read(hold);
}

static void status_read(struct image_job *job);

static void status_got(struct io_op *op, int res)
{
	struct image_job *job = container_of(op, struct image_job, status_op);
	struct import_frame frame;

	job->reading = false;
	if (res > 0) {
		job->frame_bytes += (uint32_t)res;
		if (job->frame_bytes == sizeof job->frame) {
			job->frame_bytes = 0;
			/* What the first failure said stays; nonsense is not read on. */
			res = import_frame_read(&job->frame, sizeof job->frame, &frame);
			if (res >= 0 && job->told.kind != IMPORT_FAILED)
				job->told = frame;
			if (res >= 0 && frame.kind == IMPORT_PROGRESS)
				frame_emit(job);
			if (res >= 0 && frame.kind != IMPORT_FAILED)
				frame_tell(job, &frame);
			res = res < 0 ? res : 1;
		}
	}
	if (res > 0 || res == -EINTR || res == -EAGAIN) {
		status_read(job);
		return;
	}
	cleanup_close(&job->status_fd);
	job->status_fd = -1;
	job_settle(job);
}

static void status_read(struct image_job *job)
{
	job->reading = true;
	job->status_op.done = status_got;
	io_read(job->part->shard->io, &job->status_op, job->status_fd,
		(char *)&job->frame + job->frame_bytes,
		(uint32_t)sizeof job->frame - job->frame_bytes);
}

/* ---- to and from the control thread ---- */

void image_job_home(struct mail *mail, void *owner)
{
	struct image_job *job = container_of(mail, struct image_job, mail);

	(void)owner; /* job->part->shard */
	job->answered = true;
	if (!job->is_import || inlet_stop(&job->inlet, &job_over))
		job->quiet = true;
	job_settle(job);
}

void image_job_kill_home(struct mail *mail, void *owner)
{
	struct image_job *job = container_of(mail, struct image_job, cancel_mail);

	(void)owner; /* job->part->shard */
	job->cancel_out = false;
	job_settle(job);
}

void image_job_cancel(struct image_job *job)
{
	struct part *part = job->part;

	if (job->cancelled || job->answered)
		return;
	job->cancelled = job->cancel_out = true;
	job->cancel_mail.deliver = image_job_kill;
	mail_send(part->shard->io, control_io(part->shard->node->control), &job->cancel_mail);
}

void image_job_input(struct image_job *job, struct part *input)
{
	inlet_add(&job->inlet, input);
}

/* Whoever sends slowly, or no more, does not keep one of few places. */
static void job_late(struct timer *timer)
{
	struct image_job *job = container_of(timer, struct image_job, limit);

	job->late = !job->cancelled;
	image_job_cancel(job);
}

static int stream_make(struct image_job *job)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	job->its_stream_fd = ends[0];
	job->inlet.owner = job;
	job->inlet.quiet = inlet_quiet;
	inlet_open(&job->inlet, job->part->shard->io, ends[1]);
	return 0;
}

static int pipes_make(struct image_job *job)
{
	int status[2], r;

	job->its_stream_fd = -1;
	if (pipe2(status, O_CLOEXEC) < 0)
		return -errno;
	r = job->is_import ? stream_make(job) : 0;
	if (r < 0) {
		(void)close(status[0]); /* nothing went through it */
		(void)close(status[1]);
		return r;
	}
	job->its_status_fd = status[1];
	job->status_fd = status[0];
	return 0;
}

struct status image_job_start(struct part *part, const char *verb, struct image_words *words,
			      struct image_job_hold *hold, struct image_job **ret)
{
	struct image_job *job = calloc(1, sizeof *job);
	int r = job ? 0 : -ENOMEM;

	if (job) {
		job->part = part;
		job->verb = verb;
		job->hold = hold;
		job->is_import = !hold && part->request->body.image.verb == DSEC_IMAGE_IMPORT;
		job->further_fd = -1;
		r = pipes_make(job);
	}
	if (r < 0) {
		free(job);
		return status_of_errno(r, verb, "pipes");
	}
	job->words = *words;
	words->texts = NULL;
	*ret = job;
	if (hold) {
		job->further_fd = hold->further_fd;
		hold->further_fd = -1;
	}
	part->shard->imports++;
	job->limit.expired = job_late;
	(void)timer_set(&part->shard->timers, &job->limit, /* full: no limit but the client's */
			io_now_ns(part->shard->io) + IMPORT_S_MAX * 1000000000ull);
	status_read(job);
	job->mail.deliver = image_job_begin;
	mail_send(part->shard->io, control_io(part->shard->node->control), &job->mail);
	return STATUS_OK;
}
