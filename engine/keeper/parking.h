/*
 * Descriptors that must outlive an engine, by name: the ends of pipes and ptys, FUSE connections.
 */
#pragma once

#include <stdint.h>

enum {
	PARKING_MAX = 1024,
	PARKING_NAME_BYTES_MAX = 64, /* its terminating NUL not counted */
};

struct parking_place {
	char name[PARKING_NAME_BYTES_MAX + 1];
	int fd;
};

struct parking {
	struct parking_place *places; /* the first `count` are taken, in the order they came */
	uint32_t count;
};

int parking_init(struct parking *parking); /* -ENOMEM */
/* Closes what is parked. */
void parking_done(struct parking *parking);
/*
 * Keeps `fd`, which belongs to the place from success on. -EINVAL for an empty or overlong name,
 * -EEXIST, -ENOSPC.
 */
int parking_put(struct parking *parking, const char *name, int fd);
/* The descriptor, which stays parked, or -ENOENT. */
int parking_get(const struct parking *parking, const char *name);
/* Closes it and forgets the name, or -ENOENT. */
int parking_drop(struct parking *parking, const char *name);
/* The name in place `at`, oldest first, or NULL behind the last. */
const char *parking_name_at(const struct parking *parking, uint32_t at);
