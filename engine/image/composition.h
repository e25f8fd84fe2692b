/*
 * Images of several, "base+workspace+tools": made on first use by dsec-store, kept in composed/ by
 * the digest of their parts' manifests, mounted and shared as any other version. The control
 * thread's.
 *
 *	want ── no file of that key ──► a run, one per key: all who want it wait
 *	as many runs as may be ──► it waits, in turn with those of other tenants
 *	run ended ── composed/KEY.erofs ──► they are wants again, and find it
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/image/image.h"

struct config;
struct control;

/* At most so many are kept, and so much; the oldest that nobody uses go. */
struct composed_limits {
	uint32_t count_max;
	uint64_t bytes_max;
};

/* Which files its parts were when it was looked at. */
struct image_parts {
	uint32_t count;
	struct image_file files[];
};

static inline bool image_is_composed(const char *name)
{
	for (; *name; name++)
		if (*name == '+')
			return true;
	return false;
}

/*
 * The file of want->image, whose key and parts are set. -EINPROGRESS: it is being made, and
 * images_wanted_again() has the want when it is, or is not: the want is the composition's until
 * then. -ENOENT: no such part; -ENODATA: a part that is not of the store; -E2BIG: too many parts.
 */
int composition_open(struct control *control, struct image_want *want, char *ret_path,
		     size_t bytes);
/* Its file. -ENAMETOOLONG. */
int composition_path(const struct config *config, const char *key, char *ret, size_t bytes);
/* Whether its name still means what it was made of; what of it is the same is looked at once. */
bool composition_is_current(const struct config *config, struct image *image);

/* `keep` says of a key that it stays whatever the limits are. Returns how many went; -errno. */
int composed_trim(int folder_fd, const struct composed_limits *limits,
		  bool (*keep)(const void *owner, const char *key), const void *owner);
