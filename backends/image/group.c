/*
 * The control group of an import, below the instance's: every process of it is born there, so that
 * all of them are limited together and end together. Called by the engine's control thread. Where a
 * controller is not on cgroup v2 its limit is left out, and the limits of each process hold (see
 * confine.c). Must hold: cgroup.kill is written only where the group is removed afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/image.h"
#include "engine/base/cleanup.h"

enum { EMPTY_TRIES = 500, EMPTY_PAUSE_NS = 2 * 1000000, NAME_BYTES = 32 };

/* What one may have of the machine, all of its processes together. */
static const struct {
	const char *file, *text;
} limits[] = {
	{ "memory.max", "2097152000" }, /* of one process too: MEMORY_BYTES_MAX in confine.c */
	{ "memory.swap.max", "0" },
	{ "memory.oom.group", "1" },
	{ "pids.max", "8" },	/* the supervisor and one more */
	{ "cpu.weight", "20" }, /* sandboxes first */
	{ "io.weight", "20" },
};

static void group_name(uint64_t number, char ret_name[static NAME_BYTES])
{
	(void)snprintf(ret_name, NAME_BYTES, "import%llu", (unsigned long long)number);
}

/* -ENOENT: no such controller here. */
static int group_write(int group_fd, const char *file, const char *text)
{
	auto_close int fd = openat(group_fd, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

int import_group_make(int root_fd, uint64_t number, int *ret_fd)
{
	char name[NAME_BYTES];
	int r = 0;

	group_name(number, name);
	if (mkdirat(root_fd, name, 0755) < 0)
		return -errno;
	auto_close int fd = openat(root_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		r = -errno;
	for (size_t i = 0; r >= 0 && i < sizeof limits / sizeof *limits; i++) {
		r = group_write(fd, limits[i].file, limits[i].text);
		if (r == -ENOENT)
			r = 0;
	}
	if (r < 0) {
		(void)unlinkat(root_fd, name, AT_REMOVEDIR); /* nobody was in it */
		return r;
	}
	*ret_fd = take_fd(&fd);
	return 0;
}

void import_group_kill(int group_fd)
{
	(void)group_write(group_fd, "cgroup.kill", "1"); /* it is removed, and that says so */
}

int import_group_remove(int root_fd, uint64_t number, int group_fd)
{
	const struct timespec pause = { .tv_nsec = EMPTY_PAUSE_NS };
	char name[NAME_BYTES];

	group_name(number, name);
	import_group_kill(group_fd);
	for (int i = 0; i < EMPTY_TRIES; i++) {
		if (unlinkat(root_fd, name, AT_REMOVEDIR) == 0)
			return 0;
		if (errno != EBUSY)
			return -errno;
		(void)nanosleep(&pause, NULL); /* the supervisor was reaped: it is a moment */
	}
	return -EBUSY;
}
