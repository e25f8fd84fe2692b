/*
 * The devices of an image: the segments that its table names, each a file. Called on the control
 * thread, which may block, before the image is mounted.
 */
#pragma once

#include "backends/backend.h"
#include "backends/store/erofs.h"

struct config;

struct devices {
	int fds[EROFS_DEVICES_MAX];
	struct backend_devices list; /* of those */
};

/*
 * All of them, or none. -EBADMSG: a tag that is no digest, or a segment that has not the size the
 * table says; -ENOMEDIUM: a segment that is not here. It is logged, by name.
 */
int devices_open(const struct config *config, const struct erofs_table *table, struct devices *ret);
/* The mount has its own. */
void devices_close(struct devices *devices);
