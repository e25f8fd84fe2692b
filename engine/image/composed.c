/*
 * The cache of compositions: a folder that is kept within limits. Called by composition.c. Must
 * hold: what is kept for somebody stays; of the rest the oldest go first.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/image/composition.h"

enum { KEY_BYTES = 64 };

#define SUFFIX ".erofs"

struct composed {
	char file[KEY_BYTES + sizeof SUFFIX];
	uint64_t bytes, made_ns;
};

struct listing {
	struct composed *all;
	size_t count, size;
	uint64_t bytes;
};

static int listing_add(struct listing *listing, int folder_fd, const char *file)
{
	struct composed *composed;
	struct stat st;

	if (strlen(file) != KEY_BYTES + sizeof SUFFIX - 1 || strcmp(file + KEY_BYTES, SUFFIX) ||
	    fstatat(folder_fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0; /* none of ours, or it has just gone */
	if (listing->count == listing->size) {
		size_t size = listing->size ? 2 * listing->size : 64;
		struct composed *all = reallocarray(listing->all, size, sizeof *all);

		if (!all)
			return -ENOMEM;
		listing->all = all;
		listing->size = size;
	}
	composed = &listing->all[listing->count++];
	memcpy(composed->file, file, KEY_BYTES + sizeof SUFFIX);
	composed->bytes = (uint64_t)st.st_size;
	composed->made_ns =
		(uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
	listing->bytes += composed->bytes;
	return 0;
}

static int by_age(const void *a, const void *b)
{
	const struct composed *x = a, *y = b;

	return x->made_ns < y->made_ns ? -1 : x->made_ns > y->made_ns;
}

static int listing_read(struct listing *listing, int folder_fd)
{
	int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!folder) {
		r = -errno;
		if (fd >= 0)
			(void)close(fd); /* was only looked at */
		return r;
	}
	while (r >= 0 && (entry = readdir(folder)))
		r = listing_add(listing, folder_fd, entry->d_name);
	(void)closedir(folder); /* was only read */
	if (listing->count)
		qsort(listing->all, listing->count, sizeof *listing->all, by_age);
	return r;
}

int composed_trim(int folder_fd, const struct composed_limits *limits,
		  bool (*keep)(const void *owner, const char *key), const void *owner)
{
	struct listing listing = { 0 };
	size_t left;
	int r = listing_read(&listing, folder_fd), gone = 0;

	left = listing.count;
	for (size_t i = 0; r >= 0 && i < listing.count; i++) {
		const struct composed *composed = &listing.all[i];
		char key[KEY_BYTES + 1] = "";

		if (left <= limits->count_max && listing.bytes <= limits->bytes_max)
			break;
		memcpy(key, composed->file, KEY_BYTES);
		if (keep(owner, key) || unlinkat(folder_fd, composed->file, 0) < 0)
			continue; /* in use, or it has just gone */
		listing.bytes -= composed->bytes;
		left--;
		gone++;
	}
	free(listing.all);
	return r < 0 ? r : gone;
}
