/*
 * Images by name: the node's table, filled on first use. Reading the table needs no lock: entries
 * are only added, by the control thread, and counted after they are complete.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/io.h"
#include "engine/config.h"

struct config;
struct control;
struct node;
struct shard;

enum { IMAGE_FILE_NAME_MAX = 128 };

/* Which file it was: another one of the same name is another image. */
struct image_file {
	uint64_t device, inode, bytes, changed_ns;
};

struct image_table {
	char names[IMAGES_MAX][IMAGE_FILE_NAME_MAX];
	bool is_stale[IMAGES_MAX]; /* its file was replaced or removed: no longer found by name */
	struct image_file files[IMAGES_MAX]; /* the control thread's */
	uint32_t count;			     /* release/acquire */
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
/* On the control thread, now and then: images whose files were replaced are found no more. */
void images_refresh(struct control *control, const struct config *config);
/* A name users may write: letters, digits, . _ - and / inside, no part beginning with a dot. */
int image_name_check(const char *name);
