/*
 * dsec-store pull oci:DIR[:TAG] NAME: an image of a layout becomes one of the store. What it leaves
 * when it fails has no name, and gc takes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/confine.h"
#include "backends/store/transfer.h"
#include "backends/store/verb.h"
#include "engine/base/cleanup.h"

static int pull_run(struct store_job *job, struct transfer *transfer)
{
	uint8_t manifest[1][DIGEST_BYTES];
	struct store store;
	int r = store_open(IMAGE_FD_IMAGES, &store);

	if (r < 0)
		return r;
	transfer->store = &store;
	r = store_pull(transfer, manifest[0]);
	if (r < 0) {
		r = transfer_fail(job, transfer, r);
	} else {
		job->report.step = "compose";
		r = verb_result_make(job, &store, manifest, 1);
	}
	store_close(&store);
	return r < 0 ? r : transfer_report(job, transfer, manifest[0]);
}

int verb_pull(struct store_job *job)
{
	auto_free char *path = malloc(LAYOUT_PATH_BYTES);
	char tag[LAYOUT_TAG_BYTES];
	struct transfer transfer = {
		.bytes_max = job->bytes_max,
		.is_lazy = job->flags & IMAGE_LAZY,
		.tag = tag,
		.progress = transfer_progress,
		.owner = job,
	};
	const struct store_confine wish = { .uncut = true };
	const char *why;
	int r;

	job->report.step = "source";
	if (!path)
		return -ENOMEM;
	if (job->text_count != 1 || layout_address_parse(job->texts[0], path, tag, &why) < 0)
		return report_fail(&job->report, EINVAL, job->texts[0],
				   job->text_count == 1 ? why : "no source");
	auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return report_fail(&job->report, errno, path, strerror(errno));
	transfer.layout_fd = fd;
	r = store_confine(&wish);
	return r < 0 ? r : pull_run(job, &transfer);
}
