/*
 * dsec-store hotset: which segments were asked for most, as many as had HOT_PERCENT of it: what a
 * node that starts empty has first. Read from the cache's maps, which are kept when the last mount
 * of a segment goes. Must hold: what is no sound map is passed over, and memory is bounded.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/store/cache_map.h"
#include "backends/store/roots.h"
#include "backends/store/verb.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

enum { HOT_PERCENT = 70, ROWS_MAX = 300, REPORT_BYTES = 60 << 10 };

#define SUFFIX ".map"

struct hot {
	struct cache_map *maps;
	size_t count, size;
	const struct tree_segment *only; /* of an image; NULL: of all */
	uint32_t only_count;
	uint64_t asked;
};

static bool is_wanted(const struct hot *hot, const struct cache_map *map)
{
	for (uint32_t i = 0; i < hot->only_count; i++)
		if (!memcmp(hot->only[i].digest, map->digest, DIGEST_BYTES))
			return true;
	return !hot->only;
}

static int map_take(struct hot *hot, int cache_fd, const char *name)
{
	struct cache_map map;
	struct stat st;

	auto_close int fd = openat(cache_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || cache_map_read(fd, &map) < 0 ||
	    !map.asked_bytes || !is_wanted(hot, &map))
		return 0;
	if (hot->count == hot->size) {
		size_t size = hot->size ? 2 * hot->size : 64;
		struct cache_map *grown = reallocarray(hot->maps, size, sizeof *grown);

		if (!grown)
			return -ENOMEM;
		hot->maps = grown;
		hot->size = size;
	}
	hot->maps[hot->count++] = map;
	hot->asked += map.asked_bytes;
	return 0;
}

static int maps_read(struct store_job *job, struct hot *hot)
{
	int fd = openat(IMAGE_FD_IMAGES, "cache", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	const struct dirent *entry;
	int r = 0;
	DIR *dir;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno; /* nothing was ever served */
	dir = fdopendir(fd);
	if (!dir) {
		cleanup_close(&fd);
		return -ENOMEM;
	}
	while (r >= 0 && (entry = readdir(dir))) {
		size_t bytes = strlen(entry->d_name), end = sizeof SUFFIX - 1;

		if (bytes <= end || strcmp(entry->d_name + bytes - end, SUFFIX) != 0)
			continue;
		r = map_take(hot, fd, entry->d_name);
		job->report.frame.files++;
		if (r >= 0)
			r = report_progress(&job->report);
	}
	(void)closedir(dir); /* was only read */
	return r;
}

static int by_asked(const void *a, const void *b)
{
	const struct cache_map *x = a, *y = b;

	if (x->asked_bytes != y->asked_bytes)
		return x->asked_bytes < y->asked_bytes ? 1 : -1;
	return memcmp(x->digest, y->digest, DIGEST_BYTES);
}

static void row_write(struct json_writer *w, const struct cache_map *map)
{
	char text[8 + DIGEST_HEX_BYTES] = "sha256:";

	digest_hex(map->digest, text + 7);
	json_object(w, NULL);
	json_string(w, "digest", text);
	json_unsigned(w, "bytes", map->bytes);
	json_unsigned(w, "asked_bytes", map->asked_bytes);
	json_end(w);
}

static int hot_report(const struct hot *hot)
{
	auto_free char *text = malloc(REPORT_BYTES);
	uint64_t covered = 0, bytes = 0,
		 share = hot->asked - hot->asked / 100 * (100 - HOT_PERCENT);
	struct json_writer w;
	size_t rows = 0;
	int r;

	if (!text)
		return -ENOMEM;
	json_open(&w, text, REPORT_BYTES);
	json_object(&w, NULL);
	json_unsigned(&w, "percent", HOT_PERCENT);
	json_unsigned(&w, "segments_asked", hot->count);
	json_unsigned(&w, "asked_bytes", hot->asked);
	json_array(&w, "segments");
	for (; rows < hot->count && rows < ROWS_MAX && covered < share; rows++) {
		row_write(&w, &hot->maps[rows]);
		covered += hot->maps[rows].asked_bytes;
		bytes += hot->maps[rows].bytes;
	}
	json_end(&w);
	json_unsigned(&w, "covered_bytes", covered);
	json_unsigned(&w, "bytes", bytes);
	json_end(&w);
	r = json_close(&w);
	return r < 0 ? r : report_leave(text, w.bytes);
}

int verb_hotset(struct store_job *job)
{
	auto_free struct tree_segment *only = NULL;
	struct hot hot = { 0 };
	int fd, r = 0;

	if (*job->name) {
		job->report.step = "name";
		r = root_open(IMAGE_FD_IMAGES, job->name, &fd);
		if (r < 0)
			return report_fail(&job->report, -r, job->name, "no such image");
		auto_close int image = fd;

		r = image_segments_read(image, &only, &hot.only_count);
		if (r >= 0 && !hot.only_count)
			return report_fail(&job->report, EINVAL, job->name,
					   "it was not made of the store's segments");
		hot.only = only;
	}
	job->report.step = "hotset";
	if (r >= 0)
		r = maps_read(job, &hot);
	if (r >= 0) {
		qsort(hot.maps, hot.count, sizeof *hot.maps, by_asked);
		r = hot_report(&hot);
	}
	free(hot.maps);
	return r;
}
