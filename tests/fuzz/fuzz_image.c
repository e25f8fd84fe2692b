/*
 * What comes with an image: the record at the end of any file, and frames of an importer that was
 * taken over. Must hold: what is accepted is bounded, ends where it says, and can be written again.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/image.h"
#include "backends/store/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void segments_check(int fd, int of_record)
{
	struct tree_segment *segments = NULL;
	uint32_t count = 0;
	int r = image_segments_read(fd, &segments, &count);

	assert(r >= 0 || r == -ENODATA || r == -EBADMSG);
	assert((r == -ENODATA) == (of_record == -ENODATA));
	assert(count <= TREE_SEGMENTS_MAX);
	for (uint32_t i = 0; i < count; i++) {
		assert(segments[i].bytes);
		assert(!(segments[i].bytes % TREE_BLOCK_BYTES));
	}
	free(segments);
}

static void record_check(int fd)
{
	struct image_record *record = malloc(sizeof *record);
	char *text = malloc(IMAGE_RECORD_BYTES_MAX);
	uint32_t strings = 0;
	int r = image_record_read(fd, record);

	if (r >= 0) {
		assert(record->string_bytes <= sizeof record->strings);
		for (uint32_t i = 0; i < record->string_bytes; i++)
			strings += !record->strings[i];
		assert(strings == record->env_count + record->entrypoint_count + record->cmd_count);
		assert(!record->cwd[0] || record->cwd[0] == '/');
		assert(strlen(record->user) < sizeof record->user);
		assert(image_record_text(record, text, IMAGE_RECORD_BYTES_MAX) > 0);
	} else {
		assert(r == -ENODATA || r == -EBADMSG);
	}
	segments_check(fd, r);
	free(text);
	free(record);
}

static void frame_check(const uint8_t *data, size_t bytes)
{
	struct import_frame frame;
	size_t count = bytes < sizeof frame ? bytes : sizeof frame;

	if (import_frame_read(data, count, &frame) < 0)
		return;
	assert(count == sizeof frame);
	assert(strlen(frame.step) < sizeof frame.step);
	assert(strlen(frame.name) < sizeof frame.name);
	assert(strlen(frame.reason) < sizeof frame.reason);
	assert(strlen(frame.digest) < sizeof frame.digest);
	assert(frame.kind != IMPORT_FAILED || frame.error > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	int fd = memfd_create("image", MFD_CLOEXEC);

	assert(fd >= 0);
	assert(write(fd, data, bytes) == (ssize_t)bytes);
	record_check(fd);
	(void)close(fd); /* gone */
	frame_check(data, bytes);
	return 0;
}
