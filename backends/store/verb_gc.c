/*
 * dsec-store gc: gives back what no image needs. Must hold: it tells how much, and of what is
 * broken.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/store/gc.h"
#include "backends/store/verb.h"
#include "engine/base/json.h"

enum { REPORT_BYTES = 4096 };

static int gc_progress(void *owner, uint64_t files, uint64_t bytes)
{
	struct store_job *job = owner;

	job->report.frame.files = files;
	job->report.frame.read_bytes = bytes;
	return report_progress(&job->report);
}

static int gc_report(const struct store_job *job, const struct gc_result *result)
{
	char text[REPORT_BYTES];
	struct json_writer w;
	int r;

	json_open(&w, text, sizeof text);
	json_object(&w, NULL);
	json_bool(&w, "dry_run", job->flags & IMAGE_DRY_RUN);
	json_unsigned(&w, "images", result->images);
	json_unsigned(&w, "blobs", result->blobs);
	json_unsigned(&w, "bytes", result->bytes);
	json_unsigned(&w, "deleted", result->deleted);
	json_unsigned(&w, "deleted_bytes", result->deleted_bytes);
	json_unsigned(&w, "composed_deleted", result->composed_deleted);
	json_unsigned(&w, "temporaries", result->temporaries);
	json_unsigned(&w, "incomplete", result->incomplete);
	if (result->incomplete)
		json_string(&w, "incomplete_image", result->name);
	json_end(&w);
	r = json_close(&w);
	return r < 0 ? r : report_leave(text, w.bytes);
}

int verb_gc(struct store_job *job)
{
	struct gc_wish wish = { .dry_run = job->flags & IMAGE_DRY_RUN,
				.progress = gc_progress,
				.owner = job };
	struct gc_result result;
	struct store store;
	int r = store_open(IMAGE_FD_IMAGES, &store);

	job->report.step = "gc";
	job->report.free_min = 0; /* a full disk is what it is for */
	if (r < 0)
		return r;
	r = store_gc(&store, &wish, &result);
	store_close(&store);
	if (r == -EBUSY)
		return report_fail(&job->report, EBUSY, NULL, "others work with the store");
	if (r == -EBADMSG)
		return report_fail(&job->report, EBADMSG, result.name,
				   "a damaged record: remove the image first");
	if (r < 0)
		return r;
	job->report.frame.files = result.deleted;
	job->report.frame.bytes = result.deleted_bytes;
	return gc_report(job, &result);
}
