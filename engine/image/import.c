/*
 * The import verb of the image op, on its shard: the client's bytes into the importer's stream, its
 * frames out as PROGRESS, one LAST. Called by image_op.c and by mail from import_run.c. Must hold:
 * the LAST comes after the control thread has answered, when nothing of the import is left.
 */
#include "engine/image/import.h"

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

static const struct status import_over = { .code = DSEC_FAILED,
					   .blame = DSEC_BLAME_CALLER,
					   .error = EPIPE,
					   .table = "import",
					   .step = "stream",
					   .detail = "the import has ended" };

/* ---- how it went ---- */

/* Of an archive that cannot be an image the caller must hear; the rest is ours. */
static struct status told_status(struct importing *in)
{
	const struct import_frame *told = &in->told;
	struct status s = status_of_errno(-told->error, "import", told->step);
	bool ours = !strcmp(told->step, "confine") || !strcmp(told->step, "start") ||
		    !strcmp(told->step, "erofs") || !strcmp(told->step, "unpack") ||
		    told->error == ENOSPC || told->error == ENOMEM || told->error == EIO;

	if (!ours) {
		s.code = DSEC_INVALID;
		s.blame = DSEC_BLAME_CALLER;
	}
	(void)snprintf(in->detail, sizeof in->detail, "%s%s%s", told->reason,
		       *told->name ? ": " : "", told->name);
	s.detail = in->detail;
	return s;
}

static struct status import_status(struct importing *in)
{
	struct status s;

	if (in->result >= 0)
		return STATUS_OK;
	if (in->late)
		return (struct status){ .code = DSEC_DEADLINE,
					.blame = DSEC_BLAME_CALLER,
					.table = "import",
					.step = "time",
					.detail = "an import takes two hours at most" };
	if (in->cancelled)
		return status_of_errno(-ECANCELED, "import", "cancel");
	if (in->result == -EPROTO && in->told.kind == IMPORT_FAILED)
		return told_status(in);
	if (in->result == -EPROTO || in->result == -EOWNERDEAD) {
		s = status_of_errno(-EPIPE, "import", "process");
		s.detail = "the importer was killed";
		return s;
	}
	s = status_of_errno(in->result, "import", in->step);
	if (in->result == -ENOSPC) {
		s.detail = "the disk of images is full to its mark: see dsecd --images-full";
	} else if (in->step && !strcmp(in->step, "images")) {
		s.detail = "the directory of images cannot be written to";
	}
	return s;
}

static void import_end(struct importing *in)
{
	struct part *part = in->part;
	struct emission final = { .kind = DSEC_EV_DONE, .status = import_status(in) };
	char body[IMAGE_ROW_BYTES_MAX];

	if (final.status.code)
		log_warning("import failed name=\"%s\" step=%s err=%s reason=\"%s\" entry=\"%s\"",
			    in->name, final.status.step, strerror(final.status.error),
			    in->told.reason, in->told.name);
	if (!final.status.code) {
		struct image_row row = { .record = in->record,
					 .name = in->name,
					 .file_bytes = in->file_bytes,
					 .dropped_nodes = in->told.dropped_nodes,
					 .dropped_xattrs = in->told.dropped_xattrs };

		final.bytes = image_row_write(&row, body);
		final.body = body;
	}
	part->work = NULL;
	part->shard->imports--;
	timer_clear(&part->shard->timers, &in->limit);
	inlet_done(&in->inlet);
	free(in->record);
	part_end(part, NULL, &final);
	free(in);
}

static void import_settle(struct importing *in)
{
	if (in->answered && in->quiet && !in->reading && !in->cancel_out)
		import_end(in);
}

static void inlet_quiet(struct inlet *inlet)
{
	struct importing *in = inlet->owner;

	in->quiet = true;
	import_settle(in);
}

/* ---- frames ---- */

static void frame_emit(struct importing *in)
{
	struct dsec_wire_progress body = {
		.size = sizeof body,
		.layers = in->told.layers,
		.layers_total = in->told.layers_total,
		.bytes = in->told.bytes,
		.files = in->told.files,
		.read_bytes = in->told.read_bytes,
	};
	struct emission e = { .kind = DSEC_EV_PROGRESS, .body = &body, .bytes = sizeof body };

	part_emit(in->part, &e);
}

static void status_read(struct importing *in);

static void status_got(struct io_op *op, int res)
{
	struct importing *in = container_of(op, struct importing, status_op);
	struct import_frame frame;

	in->reading = false;
	if (res > 0) {
		in->frame_bytes += (uint32_t)res;
		if (in->frame_bytes == sizeof in->frame) {
			in->frame_bytes = 0;
			/* What the first failure said stays; nonsense is not read on. */
			res = import_frame_read(&in->frame, sizeof in->frame, &frame);
			if (res >= 0 && in->told.kind != IMPORT_FAILED)
				in->told = frame;
			if (res >= 0 && frame.kind == IMPORT_PROGRESS)
				frame_emit(in);
			res = res < 0 ? res : 1;
		}
	}
	if (res > 0 || res == -EINTR || res == -EAGAIN) {
		status_read(in);
		return;
	}
	cleanup_close(&in->status_fd);
	in->status_fd = -1;
	import_settle(in);
}

static void status_read(struct importing *in)
{
	in->reading = true;
	in->status_op.done = status_got;
	io_read(in->part->shard->io, &in->status_op, in->status_fd,
		(char *)&in->frame + in->frame_bytes, (uint32_t)sizeof in->frame - in->frame_bytes);
}

/* ---- to and from the control thread ---- */

void import_home(struct mail *mail, void *owner)
{
	struct importing *in = container_of(mail, struct importing, mail);

	(void)owner; /* in->part->shard */
	in->answered = true;
	if (inlet_stop(&in->inlet, &import_over))
		in->quiet = true;
	import_settle(in);
}

void import_kill_home(struct mail *mail, void *owner)
{
	struct importing *in = container_of(mail, struct importing, cancel_mail);

	(void)owner; /* in->part->shard */
	in->cancel_out = false;
	import_settle(in);
}

void import_cancel(struct part *part)
{
	struct importing *in = part->work;

	if (in->cancelled || in->answered)
		return;
	in->cancelled = in->cancel_out = true;
	in->cancel_mail.deliver = import_kill;
	mail_send(part->shard->io, control_io(part->shard->node->control), &in->cancel_mail);
}

void import_input(struct part *part, struct part *input)
{
	struct importing *in = part->work;

	inlet_add(&in->inlet, input);
}

/* Whoever sends slowly, or no more, does not keep one of few places. */
static void import_late(struct timer *timer)
{
	struct importing *in = container_of(timer, struct importing, limit);

	in->late = !in->cancelled;
	import_cancel(in->part);
}

static int pipes_make(struct importing *in)
{
	int stream[2], status[2];

	if (pipe2(stream, O_CLOEXEC) < 0)
		return -errno;
	if (pipe2(status, O_CLOEXEC) < 0) {
		int r = -errno;

		(void)close(stream[0]); /* nothing went through it */
		(void)close(stream[1]);
		return r;
	}
	in->its_stream_fd = stream[0];
	in->its_status_fd = status[1];
	in->status_fd = status[0];
	in->inlet.owner = in;
	in->inlet.quiet = inlet_quiet;
	inlet_open(&in->inlet, in->part->shard->io, stream[1]);
	return 0;
}

struct status import_part(struct part *part, const char *name, const char *tag)
{
	struct importing *in = calloc(1, sizeof *in);
	int r = in ? 0 : -ENOMEM;

	if (in) {
		in->part = part;
		in->kind = (enum import_kind)part->request->body.image.kind;
		in->group_fd = -1;
		(void)snprintf(in->name, sizeof in->name, "%s", name);
		(void)snprintf(in->tag, sizeof in->tag, "%s", tag);
		r = pipes_make(in);
	}
	if (r < 0) {
		free(in);
		return status_of_errno(r, "import", "pipes");
	}
	part->work = in;
	part->shard->imports++;
	in->limit.expired = import_late;
	(void)timer_set(&part->shard->timers, &in->limit, /* full: no limit but the client's */
			io_now_ns(part->shard->io) + IMPORT_S_MAX * 1000000000ull);
	status_read(in);
	in->mail.deliver = import_begin;
	mail_send(part->shard->io, control_io(part->shard->node->control), &in->mail);
	return STATUS_OK;
}
