/*
 * What dsec-import and dsec-store tell the engine: frames on the status pipe, each one write, so
 * that they come whole. A pipe that nobody reads any more is no failure: whoever started us kills
 * us.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/image.h"

/* Of one run; it may be in memory that its processes share. */
struct report {
	struct import_frame frame; /* of PROGRESS, filled as it goes */
	const char *step;	   /* of what is being done: for failures */
	uint64_t free_min;	   /* of the disk: below it everything ends */
	int disk_fd;		   /* on that disk */
	bool told;		   /* FAILED was sent */
	uint64_t told_ns, looked_ns, looked_bytes;
};

/* Tell how it ended, once; returns -error. `name` may be NULL, it is shortened and made plain. */
int report_fail(struct report *report, int error, const char *name, const char *reason);
/* Called often; tells now and then, and looks whether the disk fills. */
int report_progress(struct report *report);
/* STORE_REPORT in the scratch: whole, or -errno. At most 64 KiB are sent. */
int report_leave(const char *json, size_t bytes);
/* One more layer was read whole: told at once. */
void report_layer(struct report *report);
/* That it went well, with what the frame says by now. */
void report_done(struct report *report);
