/*
 * Control groups of slots and execs, below the shard's folder: b<slot> with PID 1 in it, and in
 * that e<leaf> for each exec. Called by the worker's other files. Must hold: cgroup.kill is written
 * only where the group is removed afterwards, since on some kernels every later child of a killed
 * group dies at birth; every wait is bounded.
 */
#include "backends/container/worker.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/container/kernel.h"

#define TRY(step, call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)

enum { WAIT_US_MIN = 20, WAIT_US_MAX = 1000, LIMIT_BYTES = 32 };

static void group_path(const struct worker *w, char path[static WORKER_PATH_BYTES])
{
	(void)snprintf(path, WORKER_PATH_BYTES, "b%u", w->order.request.slot);
}

static void leaf_path(const struct worker *w, uint32_t leaf, char path[static WORKER_PATH_BYTES])
{
	(void)snprintf(path, WORKER_PATH_BYTES, "b%u/e%u", w->order.request.slot, leaf);
}

/* A missing file is a missing controller: the engine knows which there are. */
static long limit_write(struct worker *w, const char *name, const char *text)
{
	char path[WORKER_PATH_BYTES];
	long r, fd;

	(void)snprintf(path, sizeof path, "b%u/%s", w->order.request.slot, name);
	fd = TRY(CGROUP, kernel_openat(LAUNCH_FD_CGROUP, path, O_WRONLY | O_CLOEXEC, 0));
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	r = TRY(CGROUP, kernel_write((int)fd, text, strlen(text)));
	(void)kernel_close((int)fd); /* taken at once */
	return r < 0 ? r : 0;
}

/* 0 is no limit. */
static long limit_number(struct worker *w, const char *name, uint64_t limit)
{
	char text[LIMIT_BYTES];

	(void)snprintf(text, sizeof text, limit ? "%llu" : "max", (unsigned long long)limit);
	return limit_write(w, name, text);
}

/*
 * Swap first: what is over a smaller limit must not go there. What goes over the limit takes along
 * all of the sandbox that may be killed, so that none of it lives on without the rest; PID 1 may
 * not, see oom_spare().
 */
static long memory_limit(struct worker *w, const struct box_limits *limits)
{
	long r;

	if (limits->memory_bytes && !limits->swap_bytes)
		r = limit_write(w, "memory.swap.max", "0");
	else
		r = limit_number(w, "memory.swap.max", limits->swap_bytes);
	if (r >= 0)
		r = limit_write(w, "memory.oom.group", limits->memory_bytes ? "1" : "0");
	return r < 0 ? r : limit_number(w, "memory.max", limits->memory_bytes);
}

/* An idle group has no weight. */
static long cpu_limit(struct worker *w, const struct box_limits *limits)
{
	enum { PERIOD_US = 100000, WEIGHT_DEFAULT = 100 };
	char text[LIMIT_BYTES];
	long r = limit_write(w, "cpu.idle", limits->sched_idle ? "1" : "0");

	(void)snprintf(text, sizeof text, "%u",
		       limits->cpu_weight ? limits->cpu_weight : WEIGHT_DEFAULT);
	if (r >= 0 && !limits->sched_idle)
		r = limit_write(w, "cpu.weight", text);
	if (limits->cpu_max_permille)
		(void)snprintf(text, sizeof text, "%llu %u",
			       limits->cpu_max_permille * (PERIOD_US / 1000ull), PERIOD_US);
	else
		(void)snprintf(text, sizeof text, "max %u", PERIOD_US);
	return r < 0 ? r : limit_write(w, "cpu.max", text);
}

static long io_limit(struct worker *w)
{
	const struct launch_request *q = &w->order.request;
	const unsigned long long bytes = q->limits.io_bytes_per_s;
	char text[4 * LIMIT_BYTES];

	if (!q->io_major)
		return 0; /* no such device: nothing can have been set */
	if (bytes)
		(void)snprintf(text, sizeof text, "%u:%u rbps=%llu wbps=%llu", q->io_major,
			       q->io_minor, bytes, bytes);
	else
		(void)snprintf(text, sizeof text, "%u:%u rbps=max wbps=max", q->io_major,
			       q->io_minor);
	return limit_write(w, "io.max", text);
}

long cgroup_limit(struct worker *w)
{
	const struct launch_request *q = &w->order.request;
	const struct box_limits *limits = &q->limits;
	char text[LIMIT_BYTES];
	long r = 0;

	if (q->limits_changed & BOX_LIMIT_PIDS)
		r = limit_number(w, "pids.max", limits->pids_max);
	if (r >= 0 && q->limits_changed & BOX_LIMIT_MEMORY)
		r = memory_limit(w, limits);
	if (r >= 0 && q->limits_changed & BOX_LIMIT_CPU)
		r = cpu_limit(w, limits);
	if (r >= 0 && q->limits_changed & BOX_LIMIT_IO)
		r = io_limit(w);
	(void)snprintf(text, sizeof text, "default %u",
		       limits->io_weight ? limits->io_weight : 100);
	if (r >= 0 && q->limits_changed & BOX_LIMIT_IO_WEIGHT)
		r = limit_write(w, "io.weight", text);
	return r;
}

static long group_identify(struct worker *w, const char *path)
{
	struct stat found;
	long r = TRY(CGROUP, kernel_fstatat(LAUNCH_FD_CGROUP, path, &found, 0));

	if (r >= 0)
		w->order.reply.cgroup_id = found.st_ino;
	return r;
}

long cgroup_make(struct worker *w)
{
	char group[WORKER_PATH_BYTES], leaf[WORKER_PATH_BYTES];
	long r;

	group_path(w, group);
	leaf_path(w, 0, leaf);
	r = TRY(CGROUP, kernel_mkdirat(LAUNCH_FD_CGROUP, group, 0755));
	if (r >= 0 || r == -EEXIST)
		r = TRY(CGROUP, kernel_mkdirat(LAUNCH_FD_CGROUP, leaf, 0755));
	return r < 0 && r != -EEXIST ? r : group_identify(w, group);
}

static long group_sign(struct worker *w, int fd)
{
	const struct launch_request *q = &w->order.request;
	char id[33];

	(void)snprintf(id, sizeof id, "%016llx%016llx", (unsigned long long)q->sandbox_hi,
		       (unsigned long long)q->sandbox_lo);
	return TRY(CGROUP, KERNEL_CALL(SYS_fsetxattr, fd, (long)LAUNCH_SANDBOX_XATTR, (long)id,
				       sizeof id - 1, 0));
}

long cgroup_open(struct worker *w)
{
	char path[WORKER_PATH_BYTES];
	long fd, r;

	group_path(w, path);
	fd = TRY(CGROUP,
		 kernel_openat(LAUNCH_FD_CGROUP, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
	if (fd < 0)
		return fd;
	r = group_identify(w, path);
	if (r >= 0)
		r = group_sign(w, (int)fd);
	if (r < 0)
		(void)kernel_close((int)fd); /* of no use */
	return r < 0 ? r : fd;
}

/* The file's text, cut at size - 1; its length. */
static long text_read(struct worker *w, const char *path, char *text, size_t size)
{
	long r, fd = TRY(CGROUP, kernel_openat(LAUNCH_FD_CGROUP, path, O_RDONLY | O_CLOEXEC, 0));

	if (fd < 0)
		return fd;
	r = TRY(CGROUP, kernel_read((int)fd, text, size - 1));
	(void)kernel_close((int)fd); /* only read */
	if (r >= 0)
		text[r] = 0;
	return r;
}

struct group_state {
	bool is_populated; /* somebody lives in it or below it */
	bool is_frozen;
};

static long group_look(struct worker *w, const char *group, struct group_state *ret)
{
	char path[WORKER_PATH_BYTES * 2], text[256];
	long r;

	(void)snprintf(path, sizeof path, "%s/cgroup.events", group);
	r = text_read(w, path, text, sizeof text);
	if (r < 0)
		return r;
	ret->is_populated = !strstr(text, "populated 0");
	ret->is_frozen = strstr(text, "frozen 1");
	return 0;
}

/* 1 where somebody lives in the group or below it, 0 where nobody does. */
static long group_populated(struct worker *w, const char *group)
{
	struct group_state state;
	long r = group_look(w, group, &state);

	return r < 0 ? r : state.is_populated;
}

static long group_write(struct worker *w, const char *group, const char *name, const char *state)
{
	char path[WORKER_PATH_BYTES * 2];
	long r, fd;

	(void)snprintf(path, sizeof path, "%s/%s", group, name);
	fd = TRY(CGROUP, kernel_openat(LAUNCH_FD_CGROUP, path, O_WRONLY | O_CLOEXEC, 0));
	if (fd < 0)
		return fd;
	r = TRY(CGROUP, kernel_write((int)fd, state, 1));
	(void)kernel_close((int)fd); /* taken at once */
	return r < 0 ? r : 0;
}

/* Processes in one group. */
static long processes_count(struct worker *w, const char *group)
{
	char path[WORKER_PATH_BYTES * 2], text[4096];
	long r, count = 0, fd;

	(void)snprintf(path, sizeof path, "%s/cgroup.procs", group);
	fd = TRY(CGROUP, kernel_openat(LAUNCH_FD_CGROUP, path, O_RDONLY | O_CLOEXEC, 0));
	if (fd < 0)
		return fd;
	while ((r = kernel_read((int)fd, text, sizeof text)) > 0)
		for (long at = 0; at < r; at++)
			count += text[at] == '\n';
	(void)kernel_close((int)fd); /* only read */
	return r < 0 ? r : count;
}

long cgroup_leaf_open(struct worker *w)
{
	char path[WORKER_PATH_BYTES];
	const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
	struct group_state state = { false, false };
	long r, fd;

	leaf_path(w, w->order.request.leaf, path);
	if (w->order.request.flags & LAUNCH_LEAF_USED) {
		r = group_look(w, path, &state);
		if (r < 0 && r != -ENOENT)
			return r;
		if (state.is_populated) {
			r = processes_count(w, path);
			w->order.reply.leaf_left = r > 0 ? (uint32_t)r : 1;
			return r < 0 ? r : -EBUSY;
		}
		r = state.is_frozen ? group_write(w, path, "cgroup.freeze", "0") : 0;
		if (r < 0)
			return r;
	}
	fd = TRY(CGROUP, kernel_openat(LAUNCH_FD_CGROUP, path, flags, 0));
	if (fd != -ENOENT)
		return fd;
	r = TRY(CGROUP, kernel_mkdirat(LAUNCH_FD_CGROUP, path, 0755));
	return r < 0 ? r : TRY(CGROUP, kernel_openat(LAUNCH_FD_CGROUP, path, flags, 0));
}

static uint64_t now_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000;
}

/* A pause that grows; false once the limit has passed. */
static bool wait_more(uint64_t end_us, uint32_t *pause_us)
{
	const struct timespec pause = { 0, *pause_us * 1000l };

	if (now_us() >= end_us)
		return false;
	(void)nanosleep(&pause, NULL); /* waking early only costs a look */
	if (*pause_us < WAIT_US_MAX)
		*pause_us *= 2;
	return true;
}

static uint64_t limit_end_us(const struct worker *w)
{
	uint32_t limit_ms = w->order.request.limit_ms;

	return now_us() + (limit_ms ? limit_ms : WORKER_LIMIT_MS) * 1000ull;
}

/* Wait until nobody is left: -ETIMEDOUT when somebody still is. */
static long group_wait(struct worker *w, const char *group, uint64_t end_us)
{
	uint32_t pause_us = WAIT_US_MIN;
	long r;

	while ((r = group_populated(w, group)) > 0)
		if (!wait_more(end_us, &pause_us))
			return -ETIMEDOUT;
	return r;
}

/* A zombie that its parent has not reaped can hold the folder for a moment. */
static long group_remove(struct worker *w, const char *group, uint64_t end_us)
{
	uint32_t pause_us = WAIT_US_MIN;
	long r;

	while ((r = TRY(CGROUP, kernel_unlinkat(LAUNCH_FD_CGROUP, group, AT_REMOVEDIR))) == -EBUSY)
		if (!wait_more(end_us, &pause_us))
			return -EBUSY;
	return r == -ENOENT ? 0 : r;
}

long cgroup_leaf_kill(struct worker *w)
{
	const uint64_t end_us = limit_end_us(w);
	char leaf[WORKER_PATH_BYTES];
	long r;

	leaf_path(w, w->order.request.leaf, leaf);
	r = processes_count(w, leaf); /* one that failed keeps nobody alive */
	w->order.reply.processes = r < 0 ? UINT32_MAX : (uint32_t)r;
	r = TRY(KILL, group_write(w, leaf, "cgroup.kill", "1"));
	if (r == -ENOENT)
		return 0;
	if (r >= 0)
		r = group_wait(w, leaf, end_us);
	if (r >= 0)
		r = group_remove(w, leaf, end_us);
	w->attempt.step = LAUNCH_STEP_KILL;
	return r;
}

long cgroup_leaf_finish(struct worker *w)
{
	char leaf[WORKER_PATH_BYTES];
	long r;

	leaf_path(w, w->order.request.leaf, leaf);
	r = group_populated(w, leaf);
	if (r == 0 && !(w->order.request.flags & LAUNCH_LEAF_GONE))
		return 0;
	w->order.reply.flags |= LAUNCH_LEAF_GONE;
	return r < 0 && r != -ENOENT ? r : cgroup_leaf_kill(w);
}

long cgroup_kill(struct worker *w)
{
	char group[WORKER_PATH_BYTES];
	long r;

	group_path(w, group);
	r = TRY(KILL, group_write(w, group, "cgroup.kill", "1")); /* and everything below it */
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : group_wait(w, group, limit_end_us(w));
}

long cgroup_thaw(struct worker *w)
{
	char group[WORKER_PATH_BYTES];
	long r;

	group_path(w, group);
	r = TRY(FREEZE, group_write(w, group, "cgroup.freeze", "0"));
	return r == -ENOENT ? 0 : r;
}

static long group_freeze(struct worker *w, const char *group)
{
	const uint64_t end_us = limit_end_us(w);
	struct group_state state = { false, false };
	uint32_t pause_us = WAIT_US_MIN;
	long r = TRY(FREEZE, group_write(w, group, "cgroup.freeze", "1"));

	while (r >= 0 && (r = group_look(w, group, &state)) >= 0 && !state.is_frozen)
		if (!wait_more(end_us, &pause_us))
			return -ETIMEDOUT;
	return r;
}

long cgroup_freeze(struct worker *w)
{
	char group[WORKER_PATH_BYTES];
	long r;

	group_path(w, group);
	r = group_freeze(w, group);
	if (r < 0)
		(void)cgroup_thaw(w); /* what failed is told; the engine thaws again */
	w->attempt.step = LAUNCH_STEP_FREEZE;
	return r;
}

/* Call visit for each leaf of the slot until it fails. */
static long leaves_visit(struct worker *w, long (*visit)(struct worker *w, const char *leaf))
{
	char path[WORKER_PATH_BYTES];
	const struct dirent *entry;
	long r = 0, fd;
	DIR *dir;

	group_path(w, path);
	fd = TRY(CGROUP,
		 kernel_openat(LAUNCH_FD_CGROUP, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
	if (fd < 0)
		return fd;
	dir = fdopendir((int)fd);
	if (!dir) {
		r = -errno;
		(void)kernel_close((int)fd); /* of no use */
		return r;
	}
	while (r >= 0 && (entry = readdir(dir))) {
		if (entry->d_name[0] != 'e' || !isdigit((unsigned char)entry->d_name[1]))
			continue;
		leaf_path(w, (uint32_t)strtoul(entry->d_name + 1, NULL, 10), path);
		r = visit(w, path);
	}
	(void)closedir(dir); /* only read */
	return r;
}

static long leaf_remove(struct worker *w, const char *leaf)
{
	return group_remove(w, leaf, limit_end_us(w));
}

long cgroup_drop(struct worker *w)
{
	char group[WORKER_PATH_BYTES];
	long r;

	group_path(w, group);
	r = group_populated(w, group);
	if (r == -ENOENT)
		return 0;
	if (r > 0)
		return -EBUSY;
	if (r >= 0)
		r = leaves_visit(w, leaf_remove);
	return r < 0 ? r : group_remove(w, group, limit_end_us(w));
}

static uint64_t number_after(const char *text, const char *key)
{
	const char *found = strstr(text, key);

	return found ? strtoull(found + strlen(key), NULL, 10) : UINT64_MAX;
}

/* The number in a file of the slot's group; UINT64_MAX where the kernel does not keep it here. */
static long number_read(struct worker *w, const char *name, const char *key, uint64_t *ret)
{
	char path[WORKER_PATH_BYTES], text[4096];
	long r;

	(void)snprintf(path, sizeof path, "b%u/%s", w->order.request.slot, name);
	r = text_read(w, path, text, sizeof text);
	if (r < 0 && r != -ENOENT)
		return r;
	*ret = r < 0 ? UINT64_MAX : number_after(text, key);
	return 0;
}

static long leaf_count(struct worker *w, const char *leaf)
{
	long r = processes_count(w, leaf);

	if (r > 0)
		w->order.reply.processes += (uint32_t)r;
	return r == -ENOENT ? 0 : r; /* it went meanwhile */
}

static long group_count(struct worker *w)
{
	char group[WORKER_PATH_BYTES];
	uint64_t pids;
	long r = number_read(w, "pids.current", "", &pids);

	if (r < 0)
		return r;
	if (pids != UINT64_MAX) {
		w->order.reply.processes = (uint32_t)pids;
		return 0;
	}
	group_path(w, group);
	r = leaf_count(w, group);
	return r < 0 ? r : leaves_visit(w, leaf_count);
}

/* What sandboxes before this one used: a slot's cgroup counts on from one to the next. */
long cgroup_cpu(struct worker *w)
{
	return number_read(w, "cpu.stat", "usage_usec ", &w->order.reply.cpu_us);
}

long cgroup_oom_count(struct worker *w)
{
	return number_read(w, "memory.events", "oom_kill ", &w->order.reply.oom_kills);
}

/* Half is enough: a bomb's processes come and go between the clone and this look. */
void cgroup_crowd_tell(struct worker *w)
{
	const struct attempt failed = w->attempt;
	uint64_t now, most;

	if (number_read(w, "pids.current", "", &now) >= 0 && now != UINT64_MAX &&
	    number_read(w, "pids.max", "", &most) >= 0 && most != UINT64_MAX && most &&
	    now >= most / 2)
		w->order.reply.flags |= LAUNCH_CROWDED;
	w->attempt = failed; /* that is what the reply tells */
}

/* Of all disks, which have a line each. */
static uint64_t io_sum(const char *text, const char *key)
{
	uint64_t sum = 0;

	for (const char *at = strstr(text, key); at; at = strstr(at, key)) {
		at += strlen(key);
		sum += strtoull(at, NULL, 10);
	}
	return sum;
}

static long io_count(struct worker *w)
{
	struct launch_reply *reply = &w->order.reply;
	char path[WORKER_PATH_BYTES], text[4096];
	long r;

	(void)snprintf(path, sizeof path, "b%u/io.stat", w->order.request.slot);
	r = text_read(w, path, text, sizeof text);
	if (r < 0 && r != -ENOENT)
		return r;
	reply->io_read_bytes = r < 0 ? UINT64_MAX : io_sum(text, "rbytes=");
	reply->io_written_bytes = r < 0 ? UINT64_MAX : io_sum(text, "wbytes=");
	return 0;
}

long cgroup_stat(struct worker *w)
{
	struct launch_reply *reply = &w->order.reply;
	long r = cgroup_cpu(w);

	if (r >= 0)
		r = number_read(w, "memory.current", "", &reply->memory_bytes);
	if (r >= 0)
		r = number_read(w, "memory.peak", "", &reply->memory_peak_bytes);
	if (r >= 0)
		r = cgroup_oom_count(w);
	if (r >= 0)
		r = io_count(w);
	return r < 0 ? r : group_count(w);
}
