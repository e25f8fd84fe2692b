/*
 * dsec-store compose and assemble: one image of several, or of manifests, the lowest first. Must
 * hold: the result has its name only when it is whole and synced.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/store/roots.h"
#include "backends/store/store.h"
#include "backends/store/verb.h"
#include "engine/base/cleanup.h"

struct parts {
	uint8_t manifests[IMAGE_MANIFESTS_MAX][DIGEST_BYTES];
	uint32_t count;
};

/* A part may be a composition itself. */
static int part_take(struct store_job *job, const char *name, struct parts *parts)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	int fd = -1, r = record ? root_open(IMAGE_FD_IMAGES, name, &fd) : -ENOMEM;
	auto_close int file = fd;

	job->report.step = "part";
	if (r == -ENOENT || r == -EINVAL)
		return report_fail(&job->report, -r, name, "no such image");
	if (r >= 0)
		r = image_record_read(file, record);
	if (r == -EBADMSG)
		return report_fail(&job->report, EBADMSG, name, "its record is damaged");
	if (r == -ENODATA || (r >= 0 && !record->manifest_count))
		return report_fail(&job->report, EOPNOTSUPP, name,
				   "not of the store: import it anew");
	if (r < 0)
		return r;
	if (record->manifest_count > IMAGE_MANIFESTS_MAX - parts->count)
		return report_fail(&job->report, E2BIG, name, "more than 128 parts");
	memcpy(parts->manifests[parts->count], record->manifests,
	       record->manifest_count * DIGEST_BYTES);
	parts->count += record->manifest_count;
	return 0;
}

int verb_result_make(struct store_job *job, const struct store *store,
		     const uint8_t (*manifests)[DIGEST_BYTES], uint32_t count)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	auto_close int fd = openat(IMAGE_FD_SCRATCH, VERB_UNFINISHED,
				   O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	int r = !record ? -ENOMEM : fd < 0 ? -errno : 0;

	if (r >= 0)
		r = store_compose(store, manifests, count, fd, record);
	if (r == -ENOENT || r == -EBADMSG)
		return report_fail(&job->report, -r, job->texts[0],
				   r == -ENOENT ? "the store lacks a part: verify names it" :
						  "the store is damaged: verify names where");
	if (r >= 0 &&
	    (fchmod(fd, 0644) < 0 || fsync(fd) < 0 ||
	     renameat(IMAGE_FD_SCRATCH, VERB_UNFINISHED, IMAGE_FD_SCRATCH, IMPORT_RESULT) < 0))
		r = -errno;
	if (r < 0)
		return r;
	job->report.frame.files = record->files;
	job->report.frame.bytes = record->content_bytes;
	job->report.frame.layers = job->report.frame.layers_total = record->layers;
	memcpy(job->report.frame.digest, record->digest, sizeof job->report.frame.digest);
	return 0;
}

int verb_compose(struct store_job *job)
{
	auto_free struct parts *parts = calloc(1, sizeof *parts);
	struct store store;
	int r = parts ? 0 : -ENOMEM;

	job->report.step = "part";
	if (!job->text_count)
		return report_fail(&job->report, EINVAL, NULL, "no parts");
	job->report.step = "compose";
	if (r >= 0)
		r = store_open(IMAGE_FD_IMAGES, &store);
	if (r < 0)
		return r;
	/* What they are of stays from here on. */
	for (uint32_t i = 0; r >= 0 && i < job->text_count; i++)
		r = part_take(job, job->texts[i], parts);
	job->report.step = "compose";
	if (r >= 0)
		r = verb_result_make(job, &store, parts->manifests, parts->count);
	store_close(&store);
	return r;
}

/* For the engine, which knows of what manifests a composition is. */
int verb_assemble(struct store_job *job)
{
	auto_free struct parts *parts = calloc(1, sizeof *parts);
	struct store store;
	int r = parts ? 0 : -ENOMEM;

	job->report.step = "compose";
	if (!job->text_count || job->text_count > IMAGE_MANIFESTS_MAX)
		return -EINVAL;
	for (uint32_t i = 0; r >= 0 && i < job->text_count; i++)
		if (!digest_parse(job->texts[i], parts->manifests[i]))
			r = -EINVAL;
	if (r >= 0)
		r = store_open(IMAGE_FD_IMAGES, &store);
	if (r < 0)
		return r;
	parts->count = job->text_count;
	r = verb_result_make(job, &store, parts->manifests, parts->count);
	store_close(&store);
	return r;
}
