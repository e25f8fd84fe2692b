/*
 * dsec-store push NAME oci:DIR[:TAG]: an image of the store becomes one of a layout, which is made
 * where it is new. Without a tag it is the image's name.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/store/confine.h"
#include "backends/store/roots.h"
#include "backends/store/transfer.h"
#include "backends/store/verb.h"
#include "engine/base/cleanup.h"

static int image_find(struct store_job *job, struct store_images *ret)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	int fd = -1, r = record ? root_open(IMAGE_FD_IMAGES, job->name, &fd) : -ENOMEM;
	auto_close int file = fd;

	job->report.step = "name";
	if (r == -ENOENT || r == -EINVAL)
		return report_fail(&job->report, -r, job->name, "no such image");
	if (r >= 0)
		r = image_record_read(file, record);
	if (r == -EBADMSG)
		return report_fail(&job->report, EBADMSG, job->name, "its record is damaged");
	if (r == -ENODATA || (r >= 0 && !record->manifest_count))
		return report_fail(&job->report, EOPNOTSUPP, job->name,
				   "not of the store: import it anew");
	if (r < 0)
		return r;
	job->report.step = "blobs";
	ret->count = record->manifest_count;
	memcpy(ret->manifests, record->manifests, (size_t)ret->count * DIGEST_BYTES);
	return 0;
}

static int push_run(struct store_job *job, struct transfer *transfer)
{
	auto_free struct store_images *images = calloc(1, sizeof *images);
	struct store store;
	int r = images ? store_open(IMAGE_FD_IMAGES, &store) : -ENOMEM;

	if (r < 0)
		return r;
	transfer->store = &store;
	r = image_find(job, images);
	if (r >= 0)
		r = store_push(transfer, images);
	store_close(&store);
	return r < 0 ? transfer_fail(job, transfer, r) : transfer_report(job, transfer, images);
}

/* What an earlier push left, also one that was cut off, or nothing: a slip litters no folder. */
static bool is_layout_or_empty(int fd)
{
	static const char *const own[] = { ".", "..", ".lock", "blobs", "index.json" };
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	bool has_other = !dir, is_layout = false;

	if (!dir)
		cleanup_close(&copy);
	while (dir && (entry = readdir(dir))) {
		size_t at = 0;

		while (at < sizeof own / sizeof *own && strcmp(entry->d_name, own[at]) != 0)
			at++;
		is_layout |= !strcmp(entry->d_name, "oci-layout");
		has_other |= at == sizeof own / sizeof *own;
	}
	if (dir)
		(void)closedir(dir); /* was only read */
	return is_layout || !has_other;
}

int verb_push(struct store_job *job)
{
	auto_free char *path = malloc(LAYOUT_PATH_BYTES);
	char tag[LAYOUT_TAG_BYTES];
	struct transfer transfer = {
		.is_packed = job->flags & IMAGE_ZSTD,
		.progress = transfer_progress,
		.owner = job,
	};
	const struct store_confine wish = { .uncut = true };
	const char *why;
	int r;

	job->report.step = "target";
	if (!path)
		return -ENOMEM;
	if (job->text_count != 1 || layout_address_parse(job->texts[0], path, tag, &why) < 0)
		return report_fail(&job->report, EINVAL, job->texts[0],
				   job->text_count == 1 ? why : "no target");
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return report_fail(&job->report, errno, path, strerror(errno));
	auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return report_fail(&job->report, errno, path, strerror(errno));
	if (!is_layout_or_empty(fd))
		return report_fail(&job->report, EINVAL, path,
				   "it is no image layout, and other files are in it");
	transfer.layout_fd = fd;
	transfer.tag = *tag ? tag : job->name;
	r = store_confine(&wish);
	return r < 0 ? r : push_run(job, &transfer);
}
