/*
 * The image op: jobs, list, inspect, remove; and a row about an image as the wire has it.
 */
#pragma once

#include <stdint.h>

#include "backends/image.h"
#include "dsec/ring.h"
#include "engine/image/image.h"
#include "engine/request/status.h"

struct part;

struct image_row {
	const char *name;
	const struct image_record *record; /* NULL: it has none */
	uint64_t file_bytes, age_ms;
	uint32_t users;
	uint32_t dropped_nodes, dropped_xattrs; /* of a job, as what follows */
	uint64_t new_bytes, shared_bytes, segment_bytes, local_bytes;
};

enum {
	IMAGE_ROW_BYTES_MAX =
		sizeof(struct dsec_wire_image_row) + IMAGE_NAME_MAX + IMAGE_DIGEST_BYTES + 24 + 40,
};

uint32_t image_row_write(const struct image_row *row, char ret[IMAGE_ROW_BYTES_MAX]);
