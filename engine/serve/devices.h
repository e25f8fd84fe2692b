/*
 * The devices of an image: the segments that its table names, each a file. Called on the control
 * thread, which may block, before the image is mounted.
 */
#pragma once

#include "backends/backend.h"
#include "backends/store/erofs.h"
#include "engine/serve/serve.h"

struct image;

struct devices {
	int fds[EROFS_DEVICES_MAX];
	struct backend_devices list; /* of those */
	void (*ready)(struct devices *devices, int result);
	void *owner;
	struct serve_use *uses; /* of what is not in the store: one per device, or none */
	uint32_t pending;
	int error;
	char missing[DIGEST_HEX_BYTES]; /* -ENOMEDIUM: this segment */
};

struct devices_ask {
	struct control *control;
	const struct erofs_table *table;
	const struct tree_segment *segments; /* as the image's record has them; none */
	uint32_t segment_count;
};

/*
 * All of them, or none; ready and owner are set. -EAGAIN: ready() will be called. -EBADMSG: a tag
 * that is no digest, or a segment that has not the size the table says; -ENOMEDIUM: a segment that
 * is not here, and is not served. It is logged, by name.
 */
int devices_open(struct devices *devices, const struct devices_ask *ask);
/* The mount has its own. What is served is put back, unless it was kept. */
void devices_close(struct devices *devices);
/* As long as the image is mounted. */
void devices_keep(struct devices *devices, struct image *image);
