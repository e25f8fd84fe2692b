/*
 * An image's file becomes a mount, on the control thread: its record is read, what its table of
 * devices names is opened or asked for, and it is mounted.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "backends/store/erofs.h"
#include "engine/image/image.h"
#include "engine/serve/devices.h"

struct image_load {
	struct control *control;
	struct image *image;
	char path[PATH_MAX];
	/* Not called from within image_load(). The load is the callee's. */
	void (*loaded)(struct image_load *load, int result);
	void *owner;
	int mount_fd; /* result 0: the caller's */
	/* its own */
	struct erofs_table table;
	struct tree_segment *segments;
	uint32_t segment_count;
	struct devices devices;
	uint32_t tries;
};

/* 0: it is mounted; -EAGAIN: loaded() will be called; else as of image_want.ready(). */
int image_load(struct image_load *load);

/* All zero where there is none. */
struct image_file image_file_identify(const char *path);
bool image_file_is(const struct image_file *file, const char *path);
