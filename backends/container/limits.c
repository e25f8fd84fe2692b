/*
 * Limits of boxes as the shard sees them: what this host can enforce, and what of it a slot's
 * control group has already. Called by the node when it opens and by the flows of boxes. Must hold:
 * a limit that is not in `unenforced` is written by a worker or bounded by the slot's range of ids.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backends/container/container.h"
#include "engine/base/cleanup.h"

static bool number_pair_read(const char *path, uint32_t *ret_major, uint32_t *ret_minor)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[32] = "";

	return fd >= 0 && read(fd, text, sizeof text - 1) > 0 &&
	       sscanf(text, "%u:%u", ret_major, ret_minor) == 2;
}

/* Limits hold for whole disks: of a partition it is the one it lies on. */
static void device_find(const char *images_path, struct limits_host *host)
{
	char path[64];
	struct stat st;

	if (stat(images_path, &st) < 0 || !major(st.st_dev))
		return;
	host->io_major = major(st.st_dev);
	host->io_minor = minor(st.st_dev);
	(void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/partition", host->io_major,
		       host->io_minor);
	if (access(path, F_OK) < 0)
		return;
	(void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/../dev", host->io_major,
		       host->io_minor);
	if (!number_pair_read(path, &host->io_major, &host->io_minor))
		host->io_major = host->io_minor = 0;
}

/* The files of a slot are those of its shard: controllers go down to both. */
static bool group_has(int fd, const char *name)
{
	return faccessat(fd, name, F_OK, 0) == 0;
}

static bool controllers_have(const char *controllers, const char *name)
{
	const char *at = strstr(controllers, name);
	char after = at ? at[strlen(name)] : 'x';

	return at && (at == controllers || at[-1] == ' ') &&
	       (after == ' ' || after == '\n' || !after);
}

struct limits_host limits_probe(int shard_cgroup_fd, const char *images_path)
{
	auto_close int fd = openat(shard_cgroup_fd, "cgroup.subtree_control", O_RDONLY | O_CLOEXEC);
	struct limits_host host = { .unenforced = BOX_LIMIT_ALL };
	char text[256] = "";

	if (fd < 0 || read(fd, text, sizeof text - 1) < 0)
		text[0] = 0;
	/* Without the controller the range of ids has a limit of its own: RLIMIT_NPROC. */
	host.unenforced &= ~(uint32_t)BOX_LIMIT_PIDS;
	host.has_pids = controllers_have(text, "pids");
	if (controllers_have(text, "memory"))
		host.unenforced &= ~(uint32_t)BOX_LIMIT_MEMORY;
	if (controllers_have(text, "memory") && group_has(shard_cgroup_fd, "memory.swap.max"))
		host.unenforced &= ~(uint32_t)BOX_LIMIT_SWAP;
	/* Bandwidth may be left out of a kernel. */
	if (controllers_have(text, "cpu") && group_has(shard_cgroup_fd, "cpu.max"))
		host.unenforced &= ~(uint32_t)BOX_LIMIT_CPU;
	if (!controllers_have(text, "io"))
		return host;
	if (group_has(shard_cgroup_fd, "io.weight"))
		host.unenforced &= ~(uint32_t)BOX_LIMIT_IO_WEIGHT;
	device_find(images_path, &host);
	if (host.io_major && group_has(shard_cgroup_fd, "io.max"))
		host.unenforced &= ~(uint32_t)BOX_LIMIT_IO;
	return host;
}

uint32_t limits_changed(const struct box_limits *from, const struct box_limits *to)
{
	uint32_t changed = 0;

	if (from->memory_bytes != to->memory_bytes || from->swap_bytes != to->swap_bytes)
		changed |= BOX_LIMIT_MEMORY;
	if (from->pids_max != to->pids_max)
		changed |= BOX_LIMIT_PIDS;
	if (from->cpu_weight != to->cpu_weight || from->cpu_max_permille != to->cpu_max_permille ||
	    from->sched_idle != to->sched_idle)
		changed |= BOX_LIMIT_CPU;
	if (from->io_bytes_per_s != to->io_bytes_per_s)
		changed |= BOX_LIMIT_IO;
	if (from->io_weight != to->io_weight)
		changed |= BOX_LIMIT_IO_WEIGHT;
	return changed;
}

/*
 * With a controller for it, the range's own limit only has to leave room; without, it is the limit,
 * and a slot whose range has another one is made anew.
 */
uint32_t limits_processes_max(const struct containers *c, const struct box_limits *limits)
{
	uint32_t least = c->options.processes_max;

	if (!limits->pids_max)
		return least;
	if (!node_limits(c->options.node)->has_pids)
		return limits->pids_max;
	return limits->pids_max > least ? limits->pids_max : least;
}
