/*
 * The files of images, on the control thread: what list, inspect, remove and publish do.
 */
#pragma once

#include <stdint.h>

#include "backends/image.h"
#include "engine/base/io.h"
#include "engine/image/image.h"
#include "engine/image/image_news.h"

struct config;
struct part;

/* One image as it was found. */
struct image_found {
	char name[IMAGE_NAME_MAX];
	uint64_t file_bytes, age_ms;
	uint32_t users;
	struct image_record *record; /* NULL: it has none. A list's ends before its strings */
	uint64_t segment_bytes, local_bytes; /* UINT64_MAX: not known */
	char *contents; /* inspect: JSON, where its segments are; NULL: not known. Owned */
	struct image_found *next; /* in order of names */
};

/* A question of a part, to the control thread and home. */
struct image_query {
	struct mail mail;
	struct part *part;
	uint32_t verb; /* enum dsec_image_verb */
	char name[IMAGE_NAME_MAX];
	void (*answered)(struct mail *mail, void *owner); /* at the shard */
	/* the answer */
	int result;
	struct image_news news;
	uint32_t users;
	struct image_found *found; /* owned */
};

/* Delivered on the control thread. -ENOENT; remove: -EBUSY, and `users` says how many. */
void image_query_run(struct mail *mail, void *owner);
void image_found_free(struct image_found *found);

/*
 * The file `from` in `from_fd` becomes image `name`; 1: in the place of another. -EEXIST: something
 * that is no image is in the way.
 */
int image_publish(const struct config *config, int from_fd, const char *from, const char *name);
