/*
 * Where contents of images are: whole in the store, in the cache, in a part of it, or elsewhere.
 * Called by image_files.c. Must hold: nothing is made, and nothing of a segment is read; what is
 * told is what files are there and how large they are.
 */
#include "engine/image/image_contents.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/image.h"
#include "backends/store/digest_set.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

enum { BLOCK_BYTES = 512, ROW_BYTES = 256 };

struct segment_users {
	struct digest_set seen;
	uint32_t *counts, size;
};

/* How many of its bytes are here, and where. */
static uint64_t segment_find(int images_fd, const struct tree_segment *segment,
			     const char **ret_where)
{
	char hex[DIGEST_HEX_BYTES], path[DIGEST_HEX_BYTES + 24];
	struct stat st;
	uint64_t here;

	digest_hex(segment->digest, hex);
	*ret_where = "store";
	(void)snprintf(path, sizeof path, "blobs/sha256/%s", hex);
	if (fstatat(images_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	    (uint64_t)st.st_size == segment->bytes)
		return segment->bytes;
	*ret_where = "elsewhere";
	(void)snprintf(path, sizeof path, "cache/%s.data", hex);
	if (fstatat(images_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
	    !st.st_blocks)
		return 0;
	here = (uint64_t)st.st_blocks * BLOCK_BYTES; /* it is sparse */
	*ret_where = here < segment->bytes ? "part" : "cache";
	return here < segment->bytes ? here : segment->bytes;
}

void image_contents_read(int images_fd, int image_fd, struct image_contents *ret)
{
	const char *where;

	*ret = (struct image_contents){ .bytes = UINT64_MAX, .local_bytes = UINT64_MAX };
	if (image_segments_read(image_fd, &ret->segments, &ret->segment_count) < 0)
		return; /* not of the store */
	ret->bytes = ret->local_bytes = 0;
	for (uint32_t i = 0; i < ret->segment_count; i++) {
		ret->bytes += ret->segments[i].bytes;
		ret->local_bytes += segment_find(images_fd, &ret->segments[i], &where);
	}
}

void image_contents_done(struct image_contents *contents)
{
	free(contents->segments);
	contents->segments = NULL;
	contents->segment_count = 0;
}

/* ---- shared ---- */

struct segment_users *segment_users_new(void)
{
	return calloc(1, sizeof(struct segment_users));
}

void segment_users_free(struct segment_users *users)
{
	if (!users)
		return;
	digest_set_done(&users->seen);
	free(users->counts);
	free(users);
}

static int user_count(struct segment_users *users, const uint8_t digest[DIGEST_BYTES])
{
	uint32_t at, size = users->size ? 2 * users->size : 64;
	int r = digest_set_add(&users->seen, digest, &at);

	if (r < 0)
		return r;
	if (at >= users->size) {
		uint32_t *grown = reallocarray(users->counts, size, sizeof *grown);

		if (!grown)
			return -ENOMEM;
		memset(grown + users->size, 0, (size - users->size) * sizeof *grown);
		users->counts = grown;
		users->size = size;
	}
	users->counts[at]++;
	return 0;
}

int segment_users_add(struct segment_users *users, int image_fd)
{
	struct tree_segment *segments;
	uint32_t count;
	int r = 0;

	if (image_segments_read(image_fd, &segments, &count) < 0)
		return 0; /* it names none */
	for (uint32_t i = 0; r >= 0 && i < count; i++)
		r = user_count(users, segments[i].digest);
	free(segments);
	return r;
}

/* ---- told ---- */

static void segment_write(struct json_writer *w, int images_fd, const struct tree_segment *segment,
			  const struct segment_users *users)
{
	const uint32_t at = digest_set_find(&users->seen, segment->digest);
	char digest[DIGEST_TEXT_BYTES];
	const char *where;
	uint64_t here = segment_find(images_fd, segment, &where);

	digest_text(segment->digest, digest);
	json_object(w, NULL);
	json_string(w, "digest", digest);
	json_unsigned(w, "bytes", segment->bytes);
	json_string(w, "where", where);
	json_unsigned(w, "local_bytes", here);
	json_unsigned(w, "images", at < users->size ? users->counts[at] : 0);
	json_end(w);
}

char *image_contents_text(int images_fd, const struct image_contents *contents,
			  const struct segment_users *users)
{
	const size_t bytes = 64 + (size_t)contents->segment_count * ROW_BYTES;
	auto_free char *text = malloc(bytes);
	struct json_writer w;

	if (!text)
		return NULL;
	json_open(&w, text, bytes);
	json_object(&w, NULL);
	json_array(&w, "contents");
	for (uint32_t i = 0; i < contents->segment_count; i++)
		segment_write(&w, images_fd, &contents->segments[i], users);
	json_end(&w);
	json_end(&w);
	return json_close(&w) < 0 ? NULL : take_ptr(text);
}
