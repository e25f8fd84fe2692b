/*
 * Frames to the engine. Called by all processes of dsec-import and dsec-store. Must hold: FAILED is
 * told once, by the first that fails; its texts are plain, since they come from hostile names.
 */
#include "backends/store/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "backends/store/file.h"
#include "engine/base/cleanup.h"

enum { TELL_NS = 200 * 1000000, LOOK_NS = 100 * 1000000, LOOK_BYTES = 4 << 20 };

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void frame_tell(const struct import_frame *frame)
{
	while (write(IMAGE_FD_STATUS, frame, sizeof *frame) < 0 && errno == EINTR)
		;
}

/* The end of a long path says more than its beginning. */
static void name_plain(const char *name, char *ret, size_t bytes)
{
	size_t length = strlen(name);

	if (length >= bytes)
		name += length - bytes + 1;
	for (; *name; name++)
		*ret++ = *name < 32 || *name == 127 ? '?' : *name;
	*ret = 0;
}

int report_fail(struct report *report, int error, const char *name, const char *reason)
{
	struct import_frame frame = report->frame;

	if (report->told)
		return -error;
	report->told = true;
	frame.kind = IMPORT_FAILED;
	frame.error = error > 0 ? error : EIO;
	(void)snprintf(frame.step, sizeof frame.step, "%s", report->step);
	name_plain(reason, frame.reason, sizeof frame.reason);
	name_plain(name ? name : "", frame.name, sizeof frame.name);
	frame_tell(&frame);
	return -frame.error;
}

void report_done(struct report *report)
{
	report->frame.kind = IMPORT_DONE;
	frame_tell(&report->frame);
}

int report_leave(const char *json, size_t bytes)
{
	auto_close int fd = openat(IMAGE_FD_SCRATCH, STORE_REPORT,
				   O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : file_write(fd, json, bytes, 0);
}

void report_layer(struct report *report)
{
	report->frame.layers++;
	report->frame.kind = IMPORT_PROGRESS;
	report->told_ns = now_ns();
	frame_tell(&report->frame);
}

/* Below the mark of the disk everything ends, whoever filled it. */
static int disk_look(struct report *report)
{
	struct statfs fs;

	if (fstatfs(report->disk_fd, &fs) < 0 ||
	    (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize >= report->free_min)
		return 0;
	return report_fail(report, ENOSPC, NULL, "the disk of images is full to its mark");
}

int report_progress(struct report *report)
{
	uint64_t now = now_ns(), written = report->frame.bytes + report->frame.read_bytes;

	if (now - report->told_ns >= TELL_NS) {
		report->told_ns = now;
		report->frame.kind = IMPORT_PROGRESS;
		frame_tell(&report->frame);
	}
	if (now - report->looked_ns < LOOK_NS && written - report->looked_bytes < LOOK_BYTES)
		return 0;
	report->looked_ns = now;
	report->looked_bytes = written;
	return disk_look(report);
}
