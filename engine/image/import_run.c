/*
 * Imports on the control thread: admission, the process, publishing, the sweep. Called by mail from
 * import.c, and by control.c at the start and the end. Must hold: whatever happens to the process,
 * its scratch is swept and the shard is answered once; an image appears whole, by one rename, or
 * not at all.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/control.h"
#include "engine/image/image_files.h"
#include "engine/image/import.h"
#include "engine/shard.h"

static void import_answer(struct control *control, struct importing *in)
{
	in->mail.deliver = import_home;
	in->news.name = in->name;
	in->news.answer = &in->mail;
	in->news.asker = in->part->shard;
	image_news_send(control, &in->news);
}

static void fds_drop(struct importing *in)
{
	cleanup_close(&in->its_stream_fd);
	cleanup_close(&in->its_status_fd);
	in->its_stream_fd = in->its_status_fd = -1;
}

/* ---- the end ---- */

/* What of it is left dies now. */
static void group_drop(struct control *control, struct importing *in)
{
	int r;

	if (in->group_fd < 0)
		return;
	r = import_group_remove(control_cgroup(control), in->group, in->group_fd);
	if (r < 0)
		log_error("import group stays number=%llu err=%s, continuing",
			  (unsigned long long)in->group, strerror(-r));
	cleanup_close(&in->group_fd);
	in->group_fd = -1;
}

/* All of it at once: no child of it outlives the moment. */
static void process_kill(struct importing *in)
{
	if (in->pid > 0)
		import_group_kill(in->group_fd);
}

static void import_swept(struct scratch *scratch)
{
	struct importing *in = scratch->owner;
	struct imports *imports = control_imports(scratch->control);
	struct importing **at = &imports->live;

	while (*at != in)
		at = &(*at)->next;
	*at = in->next;
	imports->count--;
	import_answer(scratch->control, in);
}

/* The record is read back out of the file: that is what counts from now on. */
static int result_take(struct control *control, struct importing *in)
{
	auto_close int fd =
		openat(in->scratch.fd, IMPORT_RESULT, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	in->record = calloc(1, sizeof *in->record);
	if (!in->record)
		return -ENOMEM;
	r = image_record_read(fd, in->record);
	if (r < 0)
		return r;
	in->file_bytes = (uint64_t)st.st_size;
	return image_publish(control_config(control), in->scratch.fd, IMPORT_RESULT, in->name);
}

static void import_reaped(struct io_op *op, int res)
{
	struct importing *in = container_of(op, struct importing, op);
	struct control *control = in->scratch.control;

	in->pid = 0;
	group_drop(control, in);
	if (res < 0 || in->info.si_code != CLD_EXITED) {
		in->result = -EOWNERDEAD; /* its children may have told what came of that */
	} else if (in->info.si_status) {
		in->result = -EPROTO; /* it told why */
	} else {
		in->step = "publish";
		in->result = result_take(control, in);
		if (in->result >= 0) {
			log_info("image imported name=\"%s\" digest=%s", in->name,
				 in->record->digest);
			in->news.topic = in->result ? DSEC_TOPIC_IMAGE_REPLACED :
						      DSEC_TOPIC_IMAGE_IMPORTED;
			images_refresh(control, control_config(control));
		}
	}
	scratch_sweep(&in->scratch, &control_imports(control)->scratches);
}

/* ---- the beginning ---- */

/* What of the disk must stay free: the rest above the mark. As df counts it. */
static uint64_t disk_reserve(const struct config *config, const struct statfs *fs)
{
	uint64_t blocks = fs->f_blocks - fs->f_bfree + fs->f_bavail;

	return blocks / 100 * (100 - config->images_full_percent) * (uint64_t)fs->f_bsize;
}

/* Of several tenants each may have one: a slow one keeps nobody else waiting. */
static bool may_begin(const struct imports *imports, const struct importing *in)
{
	const struct request *request = in->part->request;

	if (request->home->node->tenant_count == 1)
		return imports->count < IMPORTS_MAX;
	for (const struct importing *one = imports->live; one; one = one->next)
		if (one->part->request->tenant == request->tenant)
			return false;
	return true;
}

static int import_admit(struct control *control, struct importing *in, uint64_t *ret_free_min)
{
	const struct imports *imports = control_imports(control);
	struct statfs fs;

	if (imports->stopping)
		return -ECANCELED;
	in->step = "imports_max";
	if (!may_begin(imports, in))
		return -EAGAIN;
	in->step = "images";
	if (statfs(control_config(control)->images_path, &fs) < 0)
		return -errno;
	*ret_free_min = disk_reserve(control_config(control), &fs);
	in->step = "disk";
	return (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < *ret_free_min ? -ENOSPC : 0;
}

static int import_launch(struct control *control, struct importing *in, uint64_t free_min)
{
	const struct config *config = control_config(control);
	int r;

	in->step = "cgroup";
	in->group = ++control_imports(control)->groups_made;
	r = import_group_make(control_cgroup(control), in->group, &in->group_fd);
	if (r < 0)
		return r;
	struct import_options options = {
		.program_path = config->import_path,
		.kind = in->kind,
		.tag = in->tag,
		.limits = { .bytes_max = config->image_bytes_max,
			    .free_min = free_min,
			    .files_max = IMAGE_FILES_MAX,
			    .layers_max = IMAGE_LAYERS_MAX },
		.group_fd = in->group_fd,
		.scratch_fd = in->scratch.fd,
		.stream_fd = in->its_stream_fd,
		.status_fd = in->its_status_fd,
	};

	in->step = "start";
	r = import_start(&options, &in->pid);
	if (r < 0)
		group_drop(control, in);
	return r;
}

void import_begin(struct mail *mail, void *owner)
{
	struct importing *in = container_of(mail, struct importing, mail);
	struct control *control = owner;
	struct imports *imports = control_imports(control);
	uint64_t free_min = 0;
	bool made = false;

	in->result = import_admit(control, in, &free_min);
	if (in->result >= 0) {
		in->step = "images";
		in->scratch.owner = in;
		in->scratch.gone = import_swept;
		in->result = scratch_make(control, &imports->scratches, &in->scratch);
		made = in->result >= 0;
	}
	if (made)
		in->result = import_launch(control, in, free_min);
	fds_drop(in);
	if (!made) {
		import_answer(control, in);
		return;
	}
	in->next = imports->live;
	imports->live = in;
	imports->count++;
	if (in->result < 0) {
		scratch_sweep(&in->scratch, &imports->scratches);
		return;
	}
	log_info("import started name=\"%s\" pid=%d", in->name, in->pid);
	in->op.done = import_reaped;
	io_wait_pid(control_io(control), &in->op, in->pid, &in->info);
}

void import_kill(struct mail *mail, void *owner)
{
	struct importing *in = container_of(mail, struct importing, cancel_mail);
	struct control *control = owner;

	process_kill(in);
	in->cancel_mail.deliver = import_kill_home;
	mail_send(control_io(control), in->part->shard->io, &in->cancel_mail);
}

/* ---- with the engine ---- */

void imports_open(struct control *control)
{
	scratches_open(control, &control_imports(control)->scratches);
}

void imports_stop(struct control *control)
{
	struct imports *imports = control_imports(control);

	imports->stopping = true;
	for (struct importing *in = imports->live; in; in = in->next)
		process_kill(in);
}

bool imports_live(struct control *control)
{
	const struct imports *imports = control_imports(control);

	return imports->live || imports->scratches.sweeping;
}

void imports_close(struct control *control)
{
	scratches_close(&control_imports(control)->scratches);
}
