/*
 * What the program tells: frames on the status pipe, each one write, so that they come whole.
 * Called by both of its processes. A pipe that nobody reads any more is no failure: whoever
 * started us kills us.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "backends/image/import.h"

enum { TELL_NS = 200 * 1000000, LOOK_NS = 100 * 1000000, LOOK_BYTES = 4 << 20 };

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void import_tell(const struct import_frame *frame)
{
	while (write(IMPORT_FD_STATUS, frame, sizeof *frame) < 0 && errno == EINTR)
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

int import_fail(struct import *in, int error, const char *name, const char *reason)
{
	struct import_frame frame = in->frame;

	if (in->told)
		return -error;
	in->told = true;
	frame.kind = IMPORT_FAILED;
	frame.error = error > 0 ? error : EIO;
	(void)snprintf(frame.step, sizeof frame.step, "%s", in->step);
	name_plain(reason, frame.reason, sizeof frame.reason);
	name_plain(name ? name : "", frame.name, sizeof frame.name);
	import_tell(&frame);
	return -frame.error;
}

/* Below the mark of the disk everything ends, whoever filled it. */
static int disk_look(struct import *in)
{
	struct statfs fs;

	if (fstatfs(in->tree_fd, &fs) < 0 ||
	    (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize >= in->limits.free_min)
		return 0;
	return import_fail(in, ENOSPC, NULL, "the disk of images is full to its mark");
}

int import_progress(struct import *in)
{
	uint64_t now = now_ns(), written = in->frame.bytes + in->frame.read_bytes;

	if (now - in->told_ns >= TELL_NS) {
		in->told_ns = now;
		in->frame.kind = IMPORT_PROGRESS;
		import_tell(&in->frame);
	}
	if (now - in->looked_ns < LOOK_NS && written - in->looked_bytes < LOOK_BYTES)
		return 0;
	in->looked_ns = now;
	in->looked_bytes = written;
	return disk_look(in);
}
