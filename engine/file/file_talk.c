/*
 * What the engine and a file helper say to each other, and what the client hears of it. Called by
 * file.c. Must hold: the helper is a process of the sandbox, so every packet is checked as a
 * client's would be; one packet is taken at a time, and no row before the client has room for it.
 */
#include "engine/file/file_state.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "engine/base/cleanup.h"
#include "engine/file/file.h"
#include "engine/request/request.h"
#include "engine/shard.h"

static const char *const step_names[] = {
	[GUEST_STEP_NONE] = "helper",	  [GUEST_STEP_ASK] = "request",
	[GUEST_STEP_PATH] = "path",	  [GUEST_STEP_OPEN] = "open",
	[GUEST_STEP_READ] = "read",	  [GUEST_STEP_WRITE] = "write",
	[GUEST_STEP_COMMIT] = "commit",	  [GUEST_STEP_MKDIR] = "mkdir",
	[GUEST_STEP_REMOVE] = "remove",	  [GUEST_STEP_RENAME] = "rename",
	[GUEST_STEP_ARCHIVE] = "archive", [GUEST_STEP_WATCH] = "watch",
};

_Static_assert(sizeof step_names / sizeof *step_names == GUEST_STEP_COUNT, "a step has no name");

/* ---- to the helper ---- */

/* Into an empty buffer that is larger: it never waits. */
static int packet_send(struct file *file, const struct iovec *parts, size_t count)
{
	const struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = count };

	return sendmsg(file->control_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int file_ask(struct file *file, const char *path, const char *to)
{
	const struct iovec parts[] = {
		{ &file->ask, sizeof file->ask },
		{ (void *)path, file->ask.path_bytes },
		{ (void *)to, file->ask.to_bytes },
	};

	return packet_send(file, parts, 3);
}

void file_commit(struct file *file)
{
	struct guest_commit commit = {
		.packet = GUEST_COMMIT,
		.size = sizeof commit,
		.bytes = file->inlet.offset,
	};

	file->committed = true;
	/* Where it cannot be sent the helper has ended, and that is told. */
	(void)packet_send(file, &(struct iovec){ &commit, sizeof commit }, 1);
}

/* ---- from the helper ---- */

static void helper_broke(struct file *file)
{
	const struct status s = { .code = DSEC_FAILED,
				  .blame = DSEC_BLAME_GUEST,
				  .error = EPROTO,
				  .table = "file",
				  .step = "helper",
				  .detail = "it sent what makes no sense" };

	file->silent = true;
	file_cut(file, &s);
}

/* The client has room again, or is gone; the operation may be over meanwhile. */
static void room_came(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);
	struct file *file = part->work;

	(void)owner; /* part->shard */
	if (!file) {
		part_end(part, NULL, NULL); /* with the status it was left */
		return;
	}
	file->asking = false;
	file_receive(file);
	file_settle(file);
}

static bool row_is_sane(const struct guest_row *row, size_t bytes)
{
	return row->size == sizeof *row && row->name_bytes <= GUEST_NAME_BYTES_MAX &&
	       row->target_bytes <= GUEST_NAME_BYTES_MAX &&
	       bytes == sizeof *row + row->name_bytes + row->target_bytes &&
	       row->type <= DSEC_FILE_TYPE_BLOCK && row->reason <= DSEC_FILE_REASON_ATTRIBUTES &&
	       row->error < 4096 && row->mode <= 07777 && row->change < 128 && !row->reserved;
}

static void row_emit(struct file *file, const struct guest_row *row, const char *names)
{
	struct {
		struct dsec_wire_file_row row;
		char names[2 * GUEST_NAME_BYTES_MAX];
	} body;
	struct emission e = {
		.kind = DSEC_EV_ROW,
		.subject = file->sandbox->id,
		.index = (uint16_t)file->rows++,
		.body = &body,
		.bytes = sizeof body.row + row->name_bytes + row->target_bytes,
	};

	body.row = (struct dsec_wire_file_row){
		.size = sizeof body.row,
		.type = row->type,
		.reason = row->reason,
		.error = row->error,
		.mode = row->mode,
		.uid = row->uid,
		.gid = row->gid,
		.change = row->change,
		.links = row->links,
		.bytes = row->bytes,
		.disk_bytes = row->disk_bytes,
		.mtime_ns = row->mtime_ns,
		.name = { sizeof body.row, row->name_bytes },
		.target = { sizeof body.row + row->name_bytes, row->target_bytes },
	};
	memcpy(body.names, names, row->name_bytes + row->target_bytes);
	part_emit(file->part, &e);
}

/* Rows are bounded, but those of a watch by its time. False: it makes no sense. */
static bool row_came(struct file *file, size_t bytes)
{
	struct guest_row row;

	if (bytes < sizeof row)
		return false;
	memcpy(&row, file->packet, sizeof row);
	if (!row_is_sane(&row, bytes))
		return false;
	if (file->rows > GUEST_ROWS_MAX && file->ask.verb != DSEC_FILE_WATCH)
		return false;
	row_emit(file, &row, file->packet + sizeof row);
	file->asking = true;
	part_again_with_room(file->part, room_came);
	return true;
}

static bool done_came(struct file *file, size_t bytes)
{
	struct guest_done done;

	if (bytes != sizeof done)
		return false;
	memcpy(&done, file->packet, sizeof done);
	if (done.size != sizeof done || done.error >= 4096 || done.step >= GUEST_STEP_COUNT ||
	    done.more > 1)
		return false;
	file->done = done;
	file->silent = true;
	return true;
}

static bool packet_take(struct file *file, size_t bytes)
{
	uint32_t packet;

	if (bytes < sizeof packet)
		return false;
	memcpy(&packet, file->packet, sizeof packet);
	switch (packet) {
	case GUEST_ROW:
		return row_came(file, bytes);
	case GUEST_DONE:
		return done_came(file, bytes);
	default:
		return false;
	}
}

static void packet_came(struct io_op *op, int res)
{
	struct file *file = container_of(op, struct file, packet_op);

	file->receiving = false;
	if (file->cut || (res <= 0 && res != -EINTR)) {
		file->silent = true; /* it ended without an answer, or is no longer asked */
	} else if (res > 0 && !packet_take(file, (size_t)res)) {
		helper_broke(file); /* it may be gone now */
		return;
	}
	file_receive(file);
	file_settle(file);
}

void file_receive(struct file *file)
{
	if (file->silent || file->receiving || file->asking || file->cut)
		return;
	file->receiving = true;
	file->packet_op.done = packet_came;
	io_recv(file->sandbox->shard->io, &file->packet_op, file->control_fd, file->packet,
		FILE_PACKET_BYTES + 1);
}

/* ---- the end ---- */

/* What the file system said, of a path that the caller named or of room that the guest has used. */
static struct status status_of_answer(const struct guest_done *done)
{
	struct status s = {
		.code = DSEC_FAILED,
		.blame = DSEC_BLAME_CALLER,
		.error = (int)done->error,
		.table = "file",
		.step = step_names[done->step],
	};

	switch (done->error) {
	case 0:
		return STATUS_OK;
	case EINVAL:
		s.code = DSEC_INVALID;
		break;
	case EOPNOTSUPP:
		s.code = DSEC_UNSUPPORTED;
		break;
	case EMEDIUMTYPE:
		s.detail = "not a regular file";
		break;
	case ENOSPC:
	case EDQUOT:
	case ENOMEM:
	case EIO:
	case EPROTO:
		s.blame = DSEC_BLAME_GUEST;
		break;
	}
	return s;
}

static struct status file_status(const struct file *file, int error)
{
	if (file->cut)
		return file->cut_status;
	if (file->sandbox->state != DSEC_STATE_RUNNING || error == -ESRCH) {
		struct status s = status_absent();

		s.detail = "it ended before the operation did";
		return s;
	}
	if (error && file->run && file->run->program_failed) {
		struct status s = status_of_errno(error, "file", file->failed_step);

		s.code = DSEC_FAILED;
		s.blame = DSEC_BLAME_CALLER;
		return s;
	}
	if (error && file->failed_step)
		return status_of_errno(error, "container", file->failed_step);
	if (error)
		return status_of_errno(error, "file", file->flow.failed_step);
	if (file->done.packet)
		return status_of_answer(&file->done);
	return (struct status){ .code = DSEC_FAILED,
				.blame = DSEC_BLAME_GUEST,
				.error = EPIPE,
				.table = "file",
				.step = "helper",
				.detail = "it was killed inside the sandbox" };
}

void file_report(struct file *file, int error)
{
	struct part *part = file->part;
	struct dsec_wire_file_result body = {
		.size = sizeof body,
		.more = file->done.more,
		.bytes = file->done.bytes,
		.entries = file->done.entries,
		.left_out = file->done.left_out,
	};
	struct emission e = { .kind = DSEC_EV_DONE, .subject = file->sandbox->id };

	if (!part)
		return;
	e.status = file_status(file, error);
	if (file->done.packet) {
		e.body = &body;
		e.bytes = sizeof body;
	}
	file->part = NULL;
	file->sandbox->files_asked--;
	part->work = NULL;
	if (file->asking) /* its mail is under way: it ends when that comes back */
		status_merge(&part->status, &e.status);
	else
		part_end(part, NULL, &e);
}

void files_end(struct sandbox *sandbox, const struct status *status)
{
	struct file *next;

	for (struct file *file = sandbox->files; file; file = next) {
		next = file->next;
		file_cut(file, status); /* it may be gone afterwards */
	}
}
