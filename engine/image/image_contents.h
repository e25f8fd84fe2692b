/* Where the contents of images are. On the control thread. */
#pragma once

#include <stdint.h>

#include "backends/store/tree.h"

struct image_contents {
	uint64_t bytes, local_bytes;   /* of its segments; UINT64_MAX: it has none that are known */
	struct tree_segment *segments; /* owned */
	uint32_t segment_count;
};

/* Of an open image file: what its record names, and how much of that is on this node. */
void image_contents_read(int images_fd, int image_fd, struct image_contents *ret);
void image_contents_done(struct image_contents *contents);

struct segment_users;

/* How many images name a segment: counted image by image. NULL: no memory. */
struct segment_users *segment_users_new(void);
void segment_users_free(struct segment_users *users);
/* One more image file. -ENOMEM. */
int segment_users_add(struct segment_users *users, int image_fd);

/*
 * A JSON object of one list, "contents", for who inspects an image: each segment's digest, bytes,
 * where they are ("store", "cache", "part", "elsewhere"), how many of them are here, how many
 * images name it. The caller frees; NULL: no memory.
 */
char *image_contents_text(int images_fd, const struct image_contents *contents,
			  const struct segment_users *users);
