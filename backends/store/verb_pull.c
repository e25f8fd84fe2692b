/*
 * dsec-store pull NAME SOURCE...: an image of a layout becomes one of the store. What it leaves
 * when it fails has no name, and gc takes it. A source is one of
 *
 *	oci:DIR[:TAG]
 *	dir:DIR TAG
 *	http[s]://… TAG FETCH-PROGRAM TIMEOUT_S HEADERS AUTHORITIES (the last two may be empty)
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/store/confine.h"
#include "backends/store/fetch.h"
#include "backends/store/transfer.h"
#include "backends/store/verb.h"
#include "engine/base/cleanup.h"

enum { TEXT_SOURCE, TEXT_TAG, TEXT_PROGRAM, TEXT_TIMEOUT, TEXT_HEADERS, TEXT_AUTHORITIES, TEXTS };

static int pull_run(struct store_job *job, struct transfer *transfer)
{
	auto_free struct store_images *images = calloc(1, sizeof *images);
	struct store store;
	int r = images ? store_open(IMAGE_FD_IMAGES, &store) : -ENOMEM;

	if (r < 0)
		return r;
	transfer->store = &store;
	r = store_pull(transfer, images);
	if (r < 0) {
		r = transfer_fail(job, transfer, r);
	} else {
		job->report.step = "compose";
		r = verb_result_make(job, &store, images->manifests, images->count);
	}
	store_close(&store);
	return r < 0 ? r : transfer_report(job, transfer, images);
}

static int pull_confined(struct store_job *job, struct transfer *transfer)
{
	const struct store_confine wish = { .uncut = true };
	int r = store_confine(&wish);

	return r < 0 ? r : pull_run(job, transfer);
}

static int directory_pull(struct store_job *job, struct transfer *transfer, const char *path)
{
	auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return report_fail(&job->report, errno, path, strerror(errno));
	transfer->layout_fd = fd;
	return pull_confined(job, transfer);
}

static int layout_pull(struct store_job *job, struct transfer *transfer)
{
	auto_free char *path = malloc(LAYOUT_PATH_BYTES);
	char tag[LAYOUT_TAG_BYTES];
	const char *why;

	if (!path)
		return -ENOMEM;
	if (layout_address_parse(job->texts[TEXT_SOURCE], path, tag, &why) < 0)
		return report_fail(&job->report, EINVAL, job->texts[TEXT_SOURCE], why);
	transfer->tag = tag;
	return directory_pull(job, transfer, path);
}

/* Who fetches has the network, and nothing of ours; we have all the rest, and no network. */
static int address_pull(struct store_job *job, struct transfer *transfer)
{
	char *const *texts = job->texts;
	const struct fetch_wish wish = {
		.program_path = texts[TEXT_PROGRAM],
		.address = texts[TEXT_SOURCE],
		.timeout_s = texts[TEXT_TIMEOUT],
		.headers_path = texts[TEXT_HEADERS],
		.authorities_path = texts[TEXT_AUTHORITIES],
	};
	struct fetch fetch;
	int r = fetch_start(&wish, &fetch);

	if (r < 0)
		return report_fail(&job->report, -r, wish.program_path, strerror(-r));
	transfer->fetch = &fetch;
	r = pull_confined(job, transfer);
	(void)close(fetch.fd); /* its process ends with that */
	return r;
}

int verb_pull(struct store_job *job)
{
	struct transfer transfer = {
		.layout_fd = -1,
		.bytes_max = job->bytes_max,
		.is_lazy = job->flags & IMAGE_LAZY,
		.tag = job->text_count > 1 ? job->texts[TEXT_TAG] : "",
		.progress = transfer_progress,
		.owner = job,
	};
	const char *source = job->text_count ? job->texts[TEXT_SOURCE] : "";

	job->report.step = "source";
	if (job->text_count == 1)
		return layout_pull(job, &transfer);
	if (job->text_count == 2 && !strncmp(source, "dir:", 4))
		return directory_pull(job, &transfer, source + 4);
	if (job->text_count == TEXTS && !strncmp(source, "http", 4))
		return address_pull(job, &transfer);
	return report_fail(&job->report, EINVAL, source, "no source");
}
