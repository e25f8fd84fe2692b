/*
 * A file that nobody sees before it is whole. Called by write, append and tar in. Must hold: it has
 * no name until it is put in its place, so a helper that dies leaves nothing; only where an old
 * file is replaced does it have another name, for the moment between two calls.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "backends/guest/files/files.h"

enum { TRIES_MAX = 100, MODE_HIDDEN = 0600 };

int temporary_open(const struct place *place)
{
	int fd = openat(place->fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, MODE_HIDDEN);

	return fd < 0 ? -errno : fd;
}

void temporary_name(char ret[static 32])
{
	uint64_t number = 0;

	/* So few bytes always come; a name that is taken is only tried in vain. */
	if (getrandom(&number, sizeof number, 0) < 0)
		number = (uint64_t)getpid();
	(void)snprintf(ret, 32, ".dsec-%016llx", (unsigned long long)number);
}

static int temporary_link(int fd, const struct place *place, const char *name)
{
	return linkat(fd, "", place->fd, name, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

int temporary_put(int fd, const struct place *place, bool exclusive)
{
	char name[32];
	int r = temporary_link(fd, place, place->name);

	if (r != -EEXIST || exclusive)
		return r;
	for (int i = 0; i < TRIES_MAX && r == -EEXIST; i++) {
		temporary_name(name);
		r = temporary_link(fd, place, name);
	}
	if (r < 0)
		return r;
	if (renameat(place->fd, name, place->fd, place->name) < 0) {
		r = -errno;
		(void)unlinkat(place->fd, name, 0); /* its name is what failed */
	}
	return r;
}
