/*
 * Images by name: the node's table, filled on first use. Reading the table needs no lock: entries
 * are only added, by the control thread, and counted after they are complete.
 */
#pragma once

#include <stdint.h>

#include "engine/base/io.h"
#include "engine/config.h"

struct node;
struct shard;

enum { IMAGE_FILE_NAME_MAX = 128 };

struct image_table {
	char names[IMAGES_MAX][IMAGE_FILE_NAME_MAX];
	uint32_t count; /* release/acquire */
};

/* Somebody who waits for an image. Embedded; lives until ready(). */
struct image_want {
	struct mail mail;
	struct shard *shard;
	struct node *node;
	char name[IMAGE_FILE_NAME_MAX];
	int result, mount_fd;
	uint32_t index;
	/* index of the image, or -ENOENT, -EINVAL (name), -ENOSPC (IMAGES_MAX), … */
	void (*ready)(struct image_want *want, int result);
};

/* The index, or -EAGAIN: ready() will be called. */
int image_get(struct image_want *want);
/* A name users may write: letters, digits, . _ - and / inside, no part beginning with a dot. */
int image_name_check(const char *name);
