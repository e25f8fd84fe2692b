/*
 * dsec-store verify: reads all that the store has, and names what is wrong with it. Must hold: with
 * a fault it fails, and the report says which; without one it does not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/store/verb.h"
#include "backends/store/verify.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

enum { REPORT_BYTES = 60 << 10, FAULT_BYTES_MAX = 2048 };

struct telling {
	struct store_job *job;
	struct json_writer w;
	uint64_t left_out; /* faults that found no room */
	char first[256];   /* image of the first fault */
	char *text;
};

static int verify_progress(void *owner, uint64_t files, uint64_t bytes)
{
	struct store_job *job = ((struct telling *)owner)->job;

	job->report.frame.files = files;
	job->report.frame.read_bytes = bytes;
	return report_progress(&job->report);
}

static int fault_add(void *owner, const struct verify_fault *fault)
{
	struct telling *t = owner;

	if (!*t->first)
		(void)snprintf(t->first, sizeof t->first, "%s",
			       *fault->image ? fault->image : fault->digest);
	if (t->w.bytes > REPORT_BYTES - FAULT_BYTES_MAX) {
		t->left_out++;
		return 0;
	}
	json_object(&t->w, NULL);
	if (*fault->image)
		json_string(&t->w, "image", fault->image);
	json_string(&t->w, "what", fault->what);
	json_string(&t->w, "how", fault->how);
	if (*fault->digest)
		json_string(&t->w, "digest", fault->digest);
	if (*fault->path)
		json_string(&t->w, "path", fault->path);
	json_end(&t->w);
	return 0;
}

static int verify_run(struct telling *t, struct verify_result *ret)
{
	struct verify_wish wish = {
		.name = *t->job->name ? t->job->name : NULL,
		.lazy = t->job->flags & IMAGE_LAZY,
		.fault = fault_add,
		.progress = verify_progress,
		.owner = t,
	};
	struct store store;
	int r = store_open(IMAGE_FD_IMAGES, &store);

	if (r < 0)
		return r;
	json_open(&t->w, t->text, REPORT_BYTES);
	json_object(&t->w, NULL);
	json_array(&t->w, "faults");
	r = store_verify(&store, &wish, ret);
	json_end(&t->w);
	store_close(&store);
	return r;
}

static int verify_report(struct telling *t, const struct verify_result *result)
{
	int r;

	json_unsigned(&t->w, "images", result->images);
	json_unsigned(&t->w, "unchecked", result->unchecked);
	json_unsigned(&t->w, "blobs", result->blobs);
	json_unsigned(&t->w, "files", result->files);
	json_unsigned(&t->w, "bytes", result->bytes);
	json_unsigned(&t->w, "fault_count", result->faults);
	json_unsigned(&t->w, "left_out", t->left_out);
	json_unsigned(&t->w, "absent", result->absent);
	json_end(&t->w);
	r = json_close(&t->w);
	return r < 0 ? r : report_leave(t->text, t->w.bytes);
}

int verb_verify(struct store_job *job)
{
	auto_free char *text = malloc(REPORT_BYTES);
	struct telling telling = { .job = job, .text = text };
	struct verify_result result;
	char words[80];
	int r = text ? 0 : -ENOMEM;

	job->report.step = "verify";
	job->report.free_min = 0; /* it writes nothing */
	if (r >= 0)
		r = verify_run(&telling, &result);
	if (r == -ENOENT || r == -EINVAL) {
		job->report.step = "name";
		return report_fail(&job->report, -r, job->name, "no such image");
	}
	if (r >= 0)
		r = verify_report(&telling, &result);
	if (r < 0 || !result.faults)
		return r;
	(void)snprintf(words, sizeof words, "%llu faults: the report names them",
		       (unsigned long long)result.faults);
	return report_fail(&job->report, EBADMSG, telling.first, words);
}
