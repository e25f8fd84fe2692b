/*
 * Jobs on the control thread: a run for each, and what the run left in its scratch. Called by mail
 * from job.c. Must hold: the shard is answered once, when nothing of the run is left; an image
 * appears whole, by one rename, or not at all.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/control.h"
#include "engine/image/image_files.h"
#include "engine/image/job.h"
#include "engine/shard.h"

static void job_answer(struct image_job *job)
{
	job->mail.deliver = image_job_home;
	job->news.name = job->words.name;
	job->news.answer = &job->mail;
	job->news.asker = job->part->shard;
	image_news_send(job->run.control, &job->news);
}

static void fds_drop(struct image_job *job)
{
	cleanup_close(&job->its_stream_fd);
	cleanup_close(&job->its_status_fd);
	cleanup_close(&job->further_fd);
	job->its_stream_fd = job->its_status_fd = job->further_fd = -1;
}

/* ---- the end ---- */

/* -ENOENT: the run left none of that name. */
static int left_open(const struct image_job *job, const char *name, struct stat *ret_stat)
{
	int fd = openat(job->run.scratch.fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return -errno;
	if (fstat(fd, ret_stat) == 0 && S_ISREG(ret_stat->st_mode))
		return fd;
	(void)close(fd); /* was only looked at */
	return -EBADMSG;
}

/* The record is read back out of the file: that is what counts from now on. */
static int result_take(struct image_job *job)
{
	const struct config *config = control_config(job->run.control);
	struct stat st;
	int r;
	auto_close int fd = left_open(job, IMPORT_RESULT, &st);

	if (fd == -ENOENT && !job->is_import)
		return 0;
	if (fd < 0)
		return fd;
	job->record = calloc(1, sizeof *job->record);
	if (!job->record)
		return -ENOMEM;
	r = image_record_read(fd, job->record);
	if (r < 0)
		return r;
	job->file_bytes = (uint64_t)st.st_size;
	r = image_publish(config, job->run.scratch.fd, IMPORT_RESULT, job->words.name);
	if (r < 0)
		return r;
	log_info("image %s name=\"%s\" digest=%s", job->is_import ? "imported" : "made",
		 job->words.name, job->record->digest);
	if (*job->words.name != '.') /* one that nobody may name is nobody's news */
		job->news.topic = r ? DSEC_TOPIC_IMAGE_REPLACED : DSEC_TOPIC_IMAGE_IMPORTED;
	images_refresh(job->run.control, config);
	return 0;
}

/* Also of a run that failed: what it found is in it. */
static int report_take(struct image_job *job)
{
	struct stat st;
	auto_close int fd = left_open(job, STORE_REPORT, &st);
	ssize_t n;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (st.st_size > IMAGE_REPORT_BYTES_MAX)
		return -EFBIG;
	auto_free char *report = malloc((size_t)st.st_size + 1);
	if (!report)
		return -ENOMEM;
	n = pread(fd, report, (size_t)st.st_size, 0);
	if (n != st.st_size)
		return n < 0 ? -errno : -EIO;
	job->report = take_ptr(report);
	job->report_bytes = (uint32_t)n;
	return 0;
}

static void job_ended(struct image_run *run)
{
	struct image_job *job = container_of(run, struct image_job, run);
	int r = run->result == -EOWNERDEAD || job->is_import ? 0 : report_take(job);

	if (run->result >= 0) {
		run->step = "report";
		run->result = r;
	}
	if (run->result >= 0) {
		run->step = "publish";
		run->result = result_take(job);
	}
}

static void job_gone(struct image_run *run)
{
	struct image_job *job = container_of(run, struct image_job, run);

	job->result = run->result;
	job->step = run->step;
	job_answer(job);
}

/* ---- the beginning ---- */

static int job_start(struct image_run *run, const struct image_run_place *place, pid_t *ret_pid)
{
	struct image_job *job = container_of(run, struct image_job, run);
	const struct config *config = control_config(run->control);
	const struct dsec_wire_image *body = &job->part->request->body.image;
	const struct image_start start = {
		.program_path = job->is_import ? config->import_path : config->store_path,
		.limits = { .bytes_max = config->image_bytes_max,
			    .free_min = place->free_min,
			    .files_max = IMAGE_FILES_MAX,
			    .layers_max = IMAGE_LAYERS_MAX },
		.flags = job->words.flags,
		.stream_fd = job->its_stream_fd,
		.status_fd = job->its_status_fd,
		.scratch_fd = place->scratch_fd,
		.images_fd = place->images_fd,
		.further_fd = job->further_fd,
		.group_fd = place->group_fd,
	};
	const struct store_words words = { .verb = job->verb,
					   .name = job->words.name,
					   .texts = job->words.texts,
					   .text_count = job->words.text_count };
	int r;

	if (job->is_import)
		r = import_start(&start, (enum import_kind)body->kind, job->words.tag, ret_pid);
	else
		r = store_start(&start, &words, ret_pid);
	if (r >= 0)
		log_info("image %s started name=\"%s\" pid=%d", job->verb, job->words.name,
			 (int)*ret_pid);
	return r;
}

void image_job_begin(struct mail *mail, void *owner)
{
	struct image_job *job = container_of(mail, struct image_job, mail);
	int r;

	job->run.control = owner;
	job->run.tenant = job->part->request->tenant;
	job->run.start = job_start;
	job->run.ended = job_ended;
	job->run.gone = job_gone;
	r = image_run_begin(&job->run);
	fds_drop(job);
	if (r >= 0)
		return;
	job->result = r;
	job->step = job->run.step;
	job_answer(job);
}

void image_job_kill(struct mail *mail, void *owner)
{
	struct image_job *job = container_of(mail, struct image_job, cancel_mail);
	struct control *control = owner;

	image_run_kill(&job->run);
	job->cancel_mail.deliver = image_job_kill_home;
	mail_send(control_io(control), job->part->shard->io, &job->cancel_mail);
}
