/*
 * The sweep at the start of an engine. Called by control.c. cgroup.kill is never written to the
 * root: it stays in use, and on some kernels a cgroup that was killed once kills whatever enters
 * it later.
 */
#include "engine/keeper/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bpf/guard.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"

enum { SWEEP_ROUNDS = 1000, SWEEP_PAUSE_NS = 10 * 1000000, SWEEP_DEPTH_MAX = 8 };

static int file_write(int dir_fd, const char *name, const char *text)
{
	auto_close int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return -errno;
	return 0;
}

static bool is_populated(int dir_fd)
{
	char text[128] = "";
	auto_close int fd = openat(dir_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);

	return fd >= 0 && read(fd, text, sizeof text - 1) > 0 && strstr(text, "populated 1");
}

/* Directories below, deepest first; `visit` gets each by its parent. */
static int directories_each(int dir_fd, int depth, int (*visit)(int parent_fd, const char *name))
{
	int own = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3), result = 0;
	DIR *dir = own < 0 ? NULL : fdopendir(own);
	struct dirent *entry;

	if (!dir) {
		cleanup_close(&own);
		return -errno;
	}
	rewinddir(dir);
	while ((entry = readdir(dir))) {
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		auto_close int child =
			openat(dir_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		int r = 0;

		if (child >= 0 && depth < SWEEP_DEPTH_MAX)
			r = directories_each(child, depth + 1, visit);
		if (visit(dir_fd, entry->d_name) < 0 || r < 0)
			result = -EBUSY;
	}
	(void)closedir(dir);
	return result;
}

static int kill_child(int parent_fd, const char *name)
{
	auto_close int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || !is_populated(fd))
		return 0;
	log_info("sweep: ending processes cgroup=\"%s\"", name);
	return file_write(fd, "cgroup.kill", "1");
}

static int remove_child(int parent_fd, const char *name)
{
	return unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

static int pins_sweep(const char *instance, int cgroup_fd)
{
	int r = guard_sweep(instance, cgroup_fd);

	if (r < 0 && r != -EOPNOTSUPP)
		log_warning("sweep: pins are left err=%s, continuing", strerror(-r));
	return 0;
}

void sweep_kill(int cgroup_fd)
{
	/* The topmost are enough; what cannot be killed now is tried again by the sweep. */
	(void)directories_each(cgroup_fd, SWEEP_DEPTH_MAX, kill_child);
}

int sweep_instance(const char *instance, int cgroup_fd)
{
	const struct timespec pause = { .tv_nsec = SWEEP_PAUSE_NS };
	int r;

	/* Until it has ended, what is left is held to what it was held to. */
	r = directories_each(cgroup_fd, SWEEP_DEPTH_MAX, kill_child); /* the topmost are enough */
	for (int i = 0; i < SWEEP_ROUNDS; i++) {
		r = directories_each(cgroup_fd, 0, remove_child);
		if (r >= 0)
			return pins_sweep(instance, cgroup_fd);
		(void)nanosleep(&pause, NULL);
	}
	log_error("sweep: cgroups of a dead engine cannot be removed instance=\"%s\"", instance);
	return r;
}

static int count_child(int parent_fd, const char *name)
{
	(void)parent_fd;
	log_error("left behind cgroup=\"%s\"", name);
	return -EBUSY;
}

int sweep_check(int cgroup_fd)
{
	return directories_each(cgroup_fd, SWEEP_DEPTH_MAX, count_child);
}
