/*
 * Owns the hogs: who is one, and where its threads may run. Called by the governor. While another
 * sandbox began something in the last REST_MS they are gathered on the CPUs of the crowd, each with
 * the share of one session, else free. A hog is looked at every LOOK_MS: what was born beside is
 * taken along, who has ended is forgotten, and who neither computed for REST_MS nor wants to is
 * let go.
 *
 * Must hold: a leaf that has another program than the one that was told of is left alone, and so is
 * whoever is not in the leaf: a pid is looked at before it is used. A mask is only ever narrowed
 * by it, and only what it narrowed is widened again.
 */
#include "backends/container/hogs.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/container/beats.h"
#include "backends/container/begins.h"
#include "backends/container/bomb.h"
#include "backends/container/group.h"
#include "backends/container/members.h"
#include "engine/base/cleanup.h"
#include "engine/base/io.h"
#include "engine/base/log.h"
#include "engine/base/timer.h"

enum {
	LOOK_MS = 500,
	REST_MS = 1000,
	STATES_MAX = 64, /* threads that are asked whether they want to run */
	AT_ONCE = 64,	 /* changed before others may run */
	PASSES_MAX = 4,	 /* over a leaf, until nobody was born beside */
	WITNESSES = 8,	 /* threads of a hog that are looked for again */
	ESCAPES_MAX = 4, /* looks in a row at which one of them had left */
	CPUS_A_FREE = 16,
	SESSIONS_MAX = 1024, /* of a leaf that are told apart */
	NICE_MAX = 19,
	SHARE = 10, /* a tenth of one session, all of a leaf's together */
	BREATH_NS = 1000000,
	NS_PER_MS = 1000000,
};

struct session {
	pid_t id, pid; /* of one of its processes */
};

struct hog {
	struct timer timer; /* for the next look */
	struct hogs *in;
	struct guard_churn_event who;
	uint64_t told_ns;
	int leaf_fd;
	struct bomb bomb;
	uint32_t threads; /* at the last look */
	uint64_t samples, looked_ns;
	uint32_t busy; /* hundredths of a CPU that it used since */
	uint32_t escapes;
	bool is_gathered;
	int nice;		    /* of its sessions */
	pid_t witnesses[WITNESSES]; /* 0: none */
	char leaf_path[512];
};

struct hogs {
	struct hogs_options options;
	cpu_set_t all, crowd, free; /* of ordinary programs; of hogs; the others */
	bool is_moved;		    /* the engine is on those that are free */
	bool has_sessions;
	uint32_t count, changes, session_count;
	struct begins begins;
	struct beats *beats; /* while it is moved; NULL: the host lets nobody be realtime */
	struct hog *hogs[HOGS_MAX];
	struct members ids; /* scratch, as the next */
	struct session sessions[SESSIONS_MAX];
};

/* A realtime thread must not be all that runs. */
static void breathe(struct hogs *h)
{
	const struct timespec breath = { 0, BREATH_NS };

	if (++h->changes % AT_ONCE == 0)
		(void)nanosleep(&breath, NULL); /* waking early only costs a change */
}

static bool is_ours(const struct hog *hog, pid_t tid)
{
	return members_have(hog->leaf_path, tid);
}

/* ---- masks ---- */

static bool is_within(const cpu_set_t *mask, const cpu_set_t *other)
{
	cpu_set_t both;

	CPU_AND(&both, mask, other);
	return CPU_EQUAL(&both, mask);
}

/* A thread that has gone has none. */
static bool is_crowded(const struct hogs *h, pid_t tid)
{
	cpu_set_t mask;

	return sched_getaffinity(tid, sizeof mask, &mask) < 0 || is_within(&mask, &h->crowd);
}

/* Those of its CPUs on which hogs may be; who wants none of them is sent to all of them. */
static void thread_narrow(struct hog *hog, pid_t tid)
{
	const struct hogs *h = hog->in;
	cpu_set_t mask;

	if (sched_getaffinity(tid, sizeof mask, &mask) < 0)
		return; /* it has ended */
	CPU_AND(&mask, &mask, &h->crowd);
	if (!CPU_COUNT(&mask))
		mask = h->crowd;
	if (is_ours(hog, tid)) /* or it has ended */
		(void)sched_setaffinity(tid, sizeof mask, &mask);
	breathe(hog->in);
}

/* How many threads of the leaf were on the hogs' CPUs; the others are now. */
static uint32_t threads_narrow(struct hog *hog)
{
	struct members *threads = &hog->in->ids;
	uint32_t had = 0, strays = 1;

	for (uint32_t pass = 0; strays && pass < PASSES_MAX; pass++) {
		members_read(threads, hog->leaf_fd, "cgroup.threads");
		strays = 0;
		for (uint32_t i = 0; i < threads->count; i++) {
			if (is_crowded(hog->in, threads->all[i])) {
				had += !pass;
				continue;
			}
			thread_narrow(hog, threads->all[i]);
			strays++;
		}
	}
	return had;
}

static void threads_widen(struct hog *hog)
{
	struct hogs *h = hog->in;
	cpu_set_t mask;

	members_read(&h->ids, hog->leaf_fd, "cgroup.threads");
	for (uint32_t i = 0; i < h->ids.count; i++) {
		pid_t tid = h->ids.all[i];

		if (sched_getaffinity(tid, sizeof mask, &mask) < 0 || !CPU_EQUAL(&mask, &h->crowd))
			continue; /* it has gone, or chose its CPUs itself */
		if (is_ours(hog, tid))
			(void)sched_setaffinity(tid, sizeof h->all, &h->all);
		breathe(h);
	}
}

/* ---- sessions ---- */

/* One process of each session of the leaf, in place of all. */
static void sessions_read(struct hog *hog)
{
	struct members *found = &hog->in->ids;
	struct session *sessions = hog->in->sessions;
	uint32_t count = 0;

	members_read(found, hog->leaf_fd, "cgroup.procs");
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

/*
 * The weight that so many of which have together a tenth of one: each step of nice is a fifth less.
 * So who is woken beside them, with a slice as short as theirs, is due before them.
 */
static int nice_of(uint32_t sessions)
{
	double weight = sessions * SHARE;
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

/* As a tenth of one. */
static void sessions_join(struct hog *hog)
{
	struct hogs *h = hog->in;
	int nice;

	if (!h->has_sessions)
		return;
	sessions_read(hog);
	nice = nice_of(h->session_count);
	for (uint32_t i = 0; i < h->session_count; i++)
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
	hog->nice = 0;
}

/* ---- who goes back ---- */

/* Spread over the threads that were read last, so that a few that stay hide nobody. */
static void witnesses_take(struct hog *hog)
{
	const struct members *threads = &hog->in->ids;
	const uint32_t step = threads->count / WITNESSES + 1;

	memset(hog->witnesses, 0, sizeof hog->witnesses);
	for (uint32_t i = 0; i < WITNESSES && i * step < threads->count; i++)
		hog->witnesses[i] = threads->all[i * step];
}

/* Whether it takes its CPU back each time, which no honest program does. */
static bool escapes(struct hog *hog)
{
	bool left = false;

	for (uint32_t i = 0; i < WITNESSES && !left; i++) {
		pid_t tid = hog->witnesses[i];

		left = tid && !is_crowded(hog->in, tid) && is_ours(hog, tid);
	}
	hog->escapes = left ? hog->escapes + 1 : 0;
	return hog->escapes >= ESCAPES_MAX;
}

/* ---- who is in whose way ---- */

static void begins_ask(struct hogs *h, uint64_t now_ns)
{
	begins_note(&h->begins, h->options.who_began(h->options.owner), now_ns);
}

static bool is_in_the_way(const struct hog *hog, uint64_t now_ns)
{
	return begins_beside(&hog->in->begins, begins_name(hog->who.shard, hog->who.slot), now_ns,
			     (uint64_t)REST_MS * NS_PER_MS);
}

/* ---- the engine ---- */

/*
 * Whoever of the engine wakes up on a CPU of hogs waits behind all their sessions, and with the
 * kernel in a long call of one of them. Where half of those CPUs are taken it leaves them. Who is
 * no task of the engine's is helped by the beats there.
 */
static void engine_move(struct hogs *h, uint64_t now_ns)
{
	const uint32_t all = (uint32_t)CPU_COUNT(&h->crowd) * 100;
	uint32_t busy = 0;

	for (uint32_t i = 0; i < h->count; i++)
		busy += is_in_the_way(h->hogs[i], now_ns) ? h->hogs[i]->busy : 0;
	if (h->is_moved ? busy >= all / 4 : busy < all / 2)
		return;
	h->is_moved = !h->is_moved;
	h->options.move(h->options.owner, h->is_moved ? &h->free : &h->all, h->is_moved);
	beats_set(h->beats, h->is_moved);
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

static void hog_forget(struct hog *hog)
{
	struct hogs *h = hog->in;

	for (uint32_t i = 0; i < h->count; i++) {
		if (h->hogs[i] != hog)
			continue;
		h->hogs[i] = h->hogs[--h->count];
		break;
	}
	timer_clear(h->options.timers, &hog->timer);
	cleanup_close(&hog->leaf_fd);
	free(hog);
}

static void hog_free(struct hog *hog)
{
	if (hog->is_gathered) {
		threads_widen(hog);
		sessions_part(hog);
	}
	hog->is_gathered = false;
	hog->escapes = 0;
}

static void hog_release(struct hog *hog)
{
	hog_free(hog);
	hog_forget(hog);
}

/* False: all that was gathered has ended, and what is there now is not what was told of. */
static bool hog_gather(struct hog *hog)
{
	const bool was_gathered = hog->is_gathered;
	const bool is_escaping = was_gathered && escapes(hog);

	hog->is_gathered = true;
	sessions_join(hog);
	if (threads_narrow(hog) == 0 && was_gathered && !hog->escapes)
		return false;
	if (is_escaping)
		hog->in->options.escapes(hog->in->options.owner, &hog->who);
	witnesses_take(hog);
	return true;
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
	struct members *threads = &hog->in->ids;

	members_read(threads, hog->leaf_fd, "cgroup.threads");
	hog->threads = threads->count;
	for (uint32_t i = 0; i < threads->count && i < STATES_MAX; i++)
		if (is_runnable(threads->all[i]))
			return true;
	return false;
}

/* Without a controller only what hogs have is counted, and that is what a bomb has. */
static void bomb_look_for(struct hog *hog, struct guard_churn_forks seen, uint64_t now_ns)
{
	const struct hogs_options *options = &hog->in->options;
	const char *leaf = strrchr(hog->leaf_path, '/');
	struct bomb_look look = { 0 };
	uint64_t processes = 0;

	if (!options->fork_bomb_s || !leaf || leaf[1] != 'e')
		return;
	for (uint32_t i = 0; i < hog->in->count; i++)
		if (hog->in->hogs[i]->who.cgroup_id == hog->who.cgroup_id)
			processes += hog->in->hogs[i]->threads;
	look.samples = seen.samples;
	look.forks = seen.forks;
	look.is_full = bomb_fills(hog->leaf_fd, processes, hog->who.processes_max);
	switch (bomb_judge(&hog->bomb, &look, options->fork_bomb_s, now_ns)) {
	case BOMB_NOT:
		break;
	case BOMB_TELL:
		options->is_bomb(options->owner, &hog->who, (uint32_t)strtoul(leaf + 2, NULL, 10),
				 hog->bomb.since_ns);
		break;
	case BOMB_KILL:
		bomb_kill(hog->leaf_fd, hog->leaf_path, &hog->in->ids);
		break;
	}
}

static void usage_look(struct hog *hog, uint64_t now_ns)
{
	const struct guard_churn_forks seen =
		hog->in->options.forks(hog->in->options.owner, &hog->who);
	const uint64_t samples = seen.samples - (seen.samples < hog->samples ? 0 : hog->samples);
	const uint64_t passed_ns = now_ns - hog->looked_ns;

	if (passed_ns)
		hog->busy = (uint32_t)(samples * GUARD_CHURN_SAMPLE_NS * 100 / passed_ns);
	hog->samples = seen.samples;
	hog->looked_ns = now_ns;
	bomb_look_for(hog, seen, now_ns);
	engine_move(hog->in, now_ns);
}

/* A hog that others keep from running is not told of, and wants to all the same. */
static void look(struct timer *timer)
{
	struct hog *hog = container_of(timer, struct hog, timer);
	struct hogs *h = hog->in;
	const uint64_t now_ns = io_clock_ns(h->options.io);

	begins_ask(h, now_ns);
	if (!is_in_the_way(hog, now_ns)) {
		hog_free(hog);
	} else if (!hog_gather(hog)) {
		hog_release(hog);
		return;
	}
	if (wants_to_run(hog))
		hog->told_ns = now_ns;
	usage_look(hog, now_ns);
	if (now_ns - hog->told_ns > (uint64_t)REST_MS * NS_PER_MS)
		hog_release(hog);
	else
		look_later(hog, now_ns);
}

static struct hog *hog_new(struct hogs *h, const struct guard_churn_event *who)
{
	struct hog *hog = h->count < HOGS_MAX ? calloc(1, sizeof *hog) : NULL;
	char link[32];

	if (!hog)
		return NULL; /* it is told of again */
	hog->in = h;
	hog->who = *who;
	hog->leaf_fd = group_open(h->options.cgroup_fd, who->leaf_id);
	(void)snprintf(link, sizeof link, "/proc/self/fd/%d", hog->leaf_fd);
	/* Zeroed: what is read ends. A path that is cut, or none, is nobody's. */
	if (hog->leaf_fd < 0 || readlink(link, hog->leaf_path, sizeof hog->leaf_path - 1) < 0) {
		cleanup_close(&hog->leaf_fd);
		free(hog); /* it has gone */
		return NULL;
	}
	hog->busy = 100; /* at least: else it would be none */
	hog->looked_ns = io_clock_ns(h->options.io);
	h->hogs[h->count++] = hog;
	return hog;
}

/* ---- from outside ---- */

void hogs_told(struct hogs *h, const struct guard_churn_event *who)
{
	const uint64_t now_ns = io_clock_ns(h->options.io);
	struct hog *hog;

	for (uint32_t i = 0; i < h->count; i++) {
		if (h->hogs[i]->who.leaf_id != who->leaf_id)
			continue;
		h->hogs[i]->told_ns = now_ns;
		return;
	}
	hog = hog_new(h, who);
	if (!hog)
		return;
	log_debug("hog leaf=%llu", (unsigned long long)who->leaf_id);
	hog->told_ns = now_ns;
	begins_ask(h, now_ns);
	engine_move(h, now_ns);
	if (is_in_the_way(hog, now_ns))
		(void)hog_gather(hog); /* the first time: nobody was */
	look_later(hog, now_ns);
}

void hogs_gather(struct hogs *h)
{
	const uint64_t now_ns = io_clock_ns(h->options.io);

	begins_ask(h, now_ns);
	engine_move(h, now_ns);
	for (uint32_t i = 0; i < h->count; i++)
		if (!h->hogs[i]->is_gathered && is_in_the_way(h->hogs[i], now_ns))
			(void)hog_gather(h->hogs[i]); /* as above */
}

bool hogs_are_free(const struct hogs *h)
{
	for (uint32_t i = 0; i < h->count; i++)
		if (!h->hogs[i]->is_gathered)
			return true;
	return false;
}

/* The first of the CPUs, one of each sixteen, are kept free of hogs. */
static int masks_make(struct hogs *h)
{
	int count, kept = 0;

	if (sched_getaffinity(0, sizeof h->all, &h->all) < 0)
		return -errno; /* EINVAL: more CPUs than a mask has */
	count = CPU_COUNT(&h->all);
	if (count < 2)
		return -EOPNOTSUPP;
	h->crowd = h->all;
	for (int cpu = 0; cpu < CPU_SETSIZE && kept <= (count - 1) / CPUS_A_FREE; cpu++) {
		if (CPU_ISSET(cpu, &h->all)) {
			CPU_CLR(cpu, &h->crowd);
			CPU_SET(cpu, &h->free);
			kept++;
		}
	}
	return 0;
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
	struct hogs *h = calloc(1, sizeof *h);
	int r;

	if (!h)
		return -ENOMEM;
	h->options = *options;
	h->has_sessions = sessions_probe();
	r = masks_make(h);
	if (r >= 0)
		r = beats_open(&h->crowd, &h->beats);
	if (r == -EPERM)
		r = 0; /* the governor is none then either, and says so */
	if (r < 0) {
		free(h);
		return r;
	}
	*ret = h;
	return 0;
}

void hogs_close(struct hogs *h)
{
	if (!h)
		return;
	while (h->count)
		hog_release(h->hogs[0]);
	engine_move(h, io_clock_ns(h->options.io)); /* back: there is no hog */
	beats_close(h->beats);
	free(h);
}
