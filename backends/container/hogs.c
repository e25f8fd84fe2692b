/*
 * Owns the hogs: who is one, and what was done to its threads. Called by the governor. A hog is
 * looked at every LOOK_MS: what was born beside is taken along, who has ended is forgotten, and who
 * neither computed for REST_MS nor wants to is let go.
 *
 * Must hold: a leaf that has another program than the one that was told of is left alone, and so is
 * whoever is not in the leaf: a pid is looked at before it is used.
 */
#include "backends/container/hogs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "backends/container/group.h"
#include "engine/base/cleanup.h"
#include "engine/base/io.h"
#include "engine/base/log.h"
#include "engine/base/timer.h"

enum {
	IDS_MAX = 8192, /* of a leaf that are taken along; more stay as they are */
	LOOK_MS = 500,
	REST_MS = 1000,
	STATES_MAX = 64,     /* threads that are asked whether they want to run */
	SESSIONS_MAX = 1024, /* of a leaf that are told apart */
	AT_ONCE = 64,	     /* changed before others may run */
	BREATH_NS = 1000000,
	NICE_MAX = 19,
	NS_PER_MS = 1000000,
	HOG_SLICE_NS = 20000000,
};

struct ids {
	uint32_t count;
	pid_t all[IDS_MAX];
};

struct session {
	pid_t id, pid; /* of one of its processes */
};

struct hog {
	struct timer timer; /* for the next look */
	struct hogs *in;
	uint64_t leaf_id;
	uint64_t told_ns;
	int leaf_fd;
	int nice; /* of its sessions */
	char leaf_path[512];
};

struct hogs {
	struct hogs_options options;
	uint64_t slice_ns; /* of everybody else */
	bool has_sessions;
	uint32_t count, changes, session_count;
	struct hog *all[HOGS_MAX];
	struct ids ids; /* scratch, as the next */
	struct session sessions[SESSIONS_MAX];
};

/* ---- lists of ids ---- */

static void digit_take(struct ids *ids, pid_t *number, char c)
{
	if (c >= '0' && c <= '9') {
		*number = *number * 10 + (c - '0');
		return;
	}
	if (*number && ids->count < IDS_MAX)
		ids->all[ids->count++] = *number;
	*number = 0;
}

/* Of a control file; one that cannot be read is empty, and so is its group. */
static void ids_read(struct ids *ids, int group_fd, const char *name)
{
	auto_close int fd = group_file_open(group_fd, name, O_RDONLY);
	char text[4096];
	pid_t number = 0;
	ssize_t n;

	ids->count = 0;
	while (fd >= 0 && ids->count < IDS_MAX && (n = read(fd, text, sizeof text)) > 0)
		for (ssize_t i = 0; i < n; i++)
			digit_take(ids, &number, text[i]);
}

/* A realtime thread must not be all that runs. */
static void breathe(struct hogs *h)
{
	const struct timespec breath = { 0, BREATH_NS };

	if (++h->changes % AT_ONCE == 0)
		(void)nanosleep(&breath, NULL); /* waking early only costs a change */
}

/*
 * A pid that was read may be somebody else's a moment later. Its cgroup reads "0::/GROUP", and the
 * leaf's path ends so; what cannot be read has ended.
 */
static bool is_ours(const struct hog *hog, pid_t tid)
{
	const size_t bytes = strlen(hog->leaf_path);
	char path[32], text[4096];
	const char *group;
	size_t length;
	ssize_t n;

	(void)snprintf(path, sizeof path, "/proc/%d/cgroup", tid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (n <= 0)
		return false;
	text[n] = 0;
	group = strstr(text, "0::/"); /* the others are "ID:NAMES:" */
	while (group && group > text && group[-1] != '\n')
		group = strstr(group + 1, "0::/");
	if (!group)
		return false;
	group += strlen("0::");
	length = strcspn(group, "\n");
	return length > 1 && length <= bytes &&
	       memcmp(hog->leaf_path + bytes - length, group, length) == 0;
}

/* ---- slices ---- */

static int slice_get(pid_t tid, struct sched_attr *ret)
{
	*ret = (struct sched_attr){ .size = sizeof *ret };
	return syscall(SYS_sched_getattr, tid, ret, sizeof *ret, 0) < 0 ? -errno : 0;
}

static bool is_ordinary(const struct sched_attr *attributes)
{
	return attributes->sched_policy == SCHED_NORMAL ||
	       attributes->sched_policy == SCHED_BATCH || attributes->sched_policy == SCHED_IDLE;
}

/* Of all threads of the leaf; how many had it. Who left the ordinary policies is none of ours. */
static uint32_t slices_set(struct hog *hog, uint64_t slice_ns)
{
	struct ids *threads = &hog->in->ids;
	struct sched_attr attributes;
	uint32_t had = 0;

	ids_read(threads, hog->leaf_fd, "cgroup.threads");
	for (uint32_t i = 0; i < threads->count; i++) {
		pid_t tid = threads->all[i];

		if (slice_get(tid, &attributes) < 0 || !is_ordinary(&attributes))
			continue;
		if (attributes.sched_runtime == slice_ns) {
			had++;
			continue;
		}
		attributes.sched_runtime = slice_ns;
		if (is_ours(hog, tid)) /* or it has ended */
			(void)syscall(SYS_sched_setattr, tid, &attributes, 0);
		breathe(hog->in);
	}
	return had;
}

/* ---- sessions ---- */

/* One process of each session of the leaf, in place of all. */
static void sessions_read(struct hog *hog)
{
	struct ids *found = &hog->in->ids;
	struct session *sessions = hog->in->sessions;
	uint32_t count = 0;

	ids_read(found, hog->leaf_fd, "cgroup.procs");
	for (uint32_t i = 0; i < found->count && count < SESSIONS_MAX; i++) {
		const struct session session = { getsid(found->all[i]), found->all[i] };
		uint32_t at = 0;

		while (at < count && sessions[at].id != session.id)
			at++;
		if (at == count && session.id > 0)
			sessions[count++] = session;
	}
	hog->in->session_count = count;
}

/* The weight that so many of which are as one: each step of nice is a fifth less. */
static int nice_of(uint32_t sessions)
{
	double weight = sessions;
	int nice = 0;

	for (; weight > 1 && nice < NICE_MAX; nice++)
		weight *= 0.8;
	return nice;
}

static void session_nice(struct hog *hog, pid_t pid, int nice)
{
	char path[32];

	(void)snprintf(path, sizeof path, "/proc/%d/autogroup", pid);
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && is_ours(hog, pid)) /* or it has ended; it is set at the next look */
		(void)dprintf(fd, "%d", nice);
	breathe(hog->in);
}

/* As one: a session that is alone stays as it is. */
static void sessions_join(struct hog *hog)
{
	struct hogs *h = hog->in;
	int nice;

	if (!h->has_sessions)
		return;
	sessions_read(hog);
	nice = nice_of(h->session_count);
	for (uint32_t i = 0; (nice || hog->nice) && i < h->session_count; i++)
		session_nice(hog, h->sessions[i].pid, nice);
	hog->nice = nice;
}

static void sessions_part(struct hog *hog)
{
	struct hogs *h = hog->in;

	if (!hog->nice)
		return;
	sessions_read(hog);
	for (uint32_t i = 0; i < h->session_count; i++)
		session_nice(hog, h->sessions[i].pid, 0);
}

/* ---- one hog ---- */

static void look(struct timer *timer);

static void look_later(struct hog *hog, uint64_t now_ns)
{
	hog->timer.expired = look;
	/* There is room for all hogs. */
	(void)timer_set(hog->in->options.timers, &hog->timer,
			now_ns + (uint64_t)LOOK_MS * NS_PER_MS);
}

/* How many threads of the leaf were a part of it before: by their slices. */
static uint32_t hog_gather(struct hog *hog)
{
	sessions_join(hog);
	return slices_set(hog, HOG_SLICE_NS);
}

static void hog_forget(struct hog *hog)
{
	struct hogs *h = hog->in;

	for (uint32_t i = 0; i < h->count; i++) {
		if (h->all[i] != hog)
			continue;
		h->all[i] = h->all[--h->count];
		break;
	}
	timer_clear(h->options.timers, &hog->timer);
	cleanup_close(&hog->leaf_fd);
	free(hog);
}

static void hog_release(struct hog *hog)
{
	(void)slices_set(hog, hog->in->slice_ns); /* who had it does not matter */
	sessions_part(hog);
	hog_forget(hog);
}

/* Whether a thread runs or waits for a CPU. */
static bool is_runnable(pid_t tid)
{
	char path[32], text[128] = "";
	const char *end;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", tid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
		return false;
	end = strrchr(text, ')');
	return end && end[1] == ' ' && end[2] == 'R';
}

static bool wants_to_run(struct hog *hog)
{
	struct ids *threads = &hog->in->ids;

	ids_read(threads, hog->leaf_fd, "cgroup.threads");
	for (uint32_t i = 0; i < threads->count && i < STATES_MAX; i++)
		if (is_runnable(threads->all[i]))
			return true;
	return false;
}

/* A hog that others keep from running is not told of, and wants to all the same. */
static void look(struct timer *timer)
{
	struct hog *hog = container_of(timer, struct hog, timer);
	const uint64_t now_ns = io_clock_ns(hog->in->options.io);

	if (hog_gather(hog) == 0) { /* it ended; what is in the leaf now is not what was told of */
		hog_release(hog);
		return;
	}
	if (wants_to_run(hog))
		hog->told_ns = now_ns;
	if (now_ns - hog->told_ns > (uint64_t)REST_MS * NS_PER_MS)
		hog_release(hog);
	else
		look_later(hog, now_ns);
}

static struct hog *hog_new(struct hogs *h, uint64_t leaf_id)
{
	struct hog *hog = h->count < HOGS_MAX ? calloc(1, sizeof *hog) : NULL;
	char link[32];

	if (!hog)
		return NULL; /* it is told of again */
	hog->in = h;
	hog->leaf_id = leaf_id;
	hog->leaf_fd = group_open(h->options.cgroup_fd, leaf_id);
	(void)snprintf(link, sizeof link, "/proc/self/fd/%d", hog->leaf_fd);
	/* Zeroed: what is read ends. A path that is cut, or none, is nobody's. */
	if (hog->leaf_fd < 0 || readlink(link, hog->leaf_path, sizeof hog->leaf_path - 1) < 0) {
		cleanup_close(&hog->leaf_fd);
		free(hog); /* it has gone */
		return NULL;
	}
	h->all[h->count++] = hog;
	return hog;
}

/* ---- from outside ---- */

void hogs_told(struct hogs *h, uint64_t leaf_id)
{
	const uint64_t now_ns = io_clock_ns(h->options.io);
	struct hog *hog;

	for (uint32_t i = 0; i < h->count; i++) {
		if (h->all[i]->leaf_id != leaf_id)
			continue;
		h->all[i]->told_ns = now_ns;
		return;
	}
	hog = hog_new(h, leaf_id);
	if (!hog)
		return;
	log_debug("hog leaf=%llu", (unsigned long long)leaf_id);
	hog->told_ns = now_ns;
	(void)hog_gather(hog); /* the first time: nobody was */
	look_later(hog, now_ns);
}

/* Until Linux 6.12 is the minimum: before, a slice is taken and forgotten. */
static uint64_t slice_probe(void)
{
	struct sched_attr attributes;

	return slice_get(0, &attributes) < 0 ? 0 : attributes.sched_runtime;
}

/* Sessions are groups where the kernel can do that and is not told otherwise. */
static bool sessions_probe(void)
{
	auto_close int fd = open("/proc/sys/kernel/sched_autogroup_enabled", O_RDONLY | O_CLOEXEC);
	char state = 0;

	return fd >= 0 && read(fd, &state, 1) == 1 && state == '1';
}

int hogs_open(const struct hogs_options *options, struct hogs **ret)
{
	const uint64_t slice_ns = slice_probe();
	struct hogs *h;

	if (!slice_ns)
		return -EOPNOTSUPP;
	h = calloc(1, sizeof *h);
	if (!h)
		return -ENOMEM;
	h->options = *options;
	h->slice_ns = slice_ns;
	h->has_sessions = sessions_probe();
	*ret = h;
	return 0;
}

void hogs_close(struct hogs *h)
{
	if (!h)
		return;
	while (h->count)
		hog_release(h->all[0]);
	free(h);
}

bool hogs_have_sessions(const struct hogs *h)
{
	return h->has_sessions;
}
