/*
 * Owns the keeper's parked descriptors. Used by the keeper only. A name is there once; a place owns
 * its descriptor from put to drop.
 */
#include "engine/keeper/parking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int place_find(const struct parking *parking, const char *name);

int parking_init(struct parking *parking)
{
	parking->places = calloc(PARKING_MAX, sizeof(*parking->places));
	parking->count = 0;
	return parking->places ? 0 : -ENOMEM;
}

void parking_done(struct parking *parking)
{
	for (uint32_t i = 0; i < parking->count; i++)
		(void)close(parking->places[i].fd); /* the keeper ends */
	free(parking->places);
	parking->places = NULL;
	parking->count = 0;
}

int parking_put(struct parking *parking, const char *name, int fd)
{
	size_t bytes = strlen(name);
	struct parking_place *place;

	if (bytes < 1 || bytes > PARKING_NAME_BYTES_MAX)
		return -EINVAL;
	if (place_find(parking, name) >= 0)
		return -EEXIST;
	if (parking->count == PARKING_MAX)
		return -ENOSPC;
	place = &parking->places[parking->count++];
	memcpy(place->name, name, bytes + 1);
	place->fd = fd;
	return 0;
}

int parking_get(const struct parking *parking, const char *name)
{
	int at = place_find(parking, name);

	return at < 0 ? at : parking->places[at].fd;
}

int parking_drop(struct parking *parking, const char *name)
{
	int at = place_find(parking, name);

	if (at < 0)
		return at;
	(void)close(parking->places[at].fd); /* other holders decide what that means */
	parking->count--;
	memmove(&parking->places[at], &parking->places[at + 1],
		(parking->count - (uint32_t)at) * sizeof(*parking->places));
	return 0;
}

const char *parking_name_at(const struct parking *parking, uint32_t at)
{
	return at < parking->count ? parking->places[at].name : NULL;
}

static int place_find(const struct parking *parking, const char *name)
{
	for (uint32_t i = 0; i < parking->count; i++) {
		if (!strcmp(parking->places[i].name, name))
			return (int)i;
	}
	return -ENOENT;
}
