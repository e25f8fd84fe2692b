/*
 * The governor's thread: its loop, the leaves that it froze and the mail to their shards. Called by
 * the node to start and stop it, and by shards where a sandbox gets a slot. Who computes long is
 * left to hogs.c.
 *
 * Must hold: what it froze it thaws in time, whatever else fails, so it keeps a descriptor of the
 * leaf's cgroup.freeze from before it froze it until nothing of it is remembered; it knows cgroups
 * by their ids, which are never used again, so it never touches another's.
 */
#include "backends/container/governor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/container/begins.h"
#include "backends/container/container.h"
#include "backends/container/desk.h"
#include "backends/container/group.h"
#include "backends/container/hogs.h"
#include "backends/container/throttle.h"
#include "bpf/guard_churn.h"
#include "engine/base/cleanup.h"

enum {
	LEAVES_THROTTLED_MAX = 1024,
	PROBE = 64,    /* so many a thawed leaf may make at once before it is frozen again */
	RETRY_MS = 10, /* until a thaw that failed is tried again */
	AT_ONCE = 32,  /* leaves frozen before others may run */
	BREATH_NS = 1000000,
	RING_ENTRIES = 64,
	NS_PER_MS = 1000000,
};

/* A leaf that was frozen: it is, or was a short while ago. */
struct leaf {
	struct timer timer; /* to thaw it, or to forget it */
	struct governor *in;
	struct guard_churn_event who;
	struct throttle throttle;
	uint64_t frozen_ns; /* since when; 0: it runs */
	int freeze_fd;
};

struct governor_mail {
	struct mail mail;
	struct containers *c;
	uint64_t cgroup_id, sandbox;
	uint32_t slot;
	struct box_throttle what;
};

struct governor {
	struct governor_options options;
	int stop_fd, wake_fd;
	struct guard_churn *churn;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t ready;
	bool is_ready, is_prompt;
	int error, hogs_error;
	const char *step;
	_Atomic(uint64_t) begun; /* by whom, since the hogs were last looked at: begins.h */
	atomic_bool is_asleep;	 /* hogs may run everywhere: who begins something wakes it */
	/* The thread's own from here on. */
	struct io *io;
	struct timers timers;
	struct hogs *hogs; /* NULL: nobody is made to yield */
	struct io_op poll, stop_poll, wake_poll;
	bool is_stopping;
	struct leaf *leaves[LEAVES_THROTTLED_MAX];
	uint32_t leaf_count;
	struct desk desks[]; /* by shard */
};

/* ---- freezing ---- */

static int freeze_open(int cgroup_fd, uint64_t id)
{
	auto_close int group = group_open(cgroup_fd, id);

	return group < 0 ? group : group_file_open(group, "cgroup.freeze", O_WRONLY);
}

static int freeze_write(int fd, const char *state)
{
	return pwrite(fd, state, 1, 0) < 0 ? -errno : 0;
}

/* Its cgroup was removed, or is about to be: nobody is in it. */
static bool is_gone(int error)
{
	return error == -ENODEV || error == -ENOENT;
}

/* ---- telling the shard ---- */

/* On the shard's thread: the sandbox may have gone, and the slot be another's. */
static void mail_arrived(struct mail *mail, void *owner)
{
	struct governor_mail *m = container_of(mail, struct governor_mail, mail);
	struct containers *c = m->c;
	const struct slot *slot = slots_find(&c->slots, m->slot);
	struct box *box = slot && slot->holder ? &slot->holder->box : NULL;

	(void)owner;
	if (box && box->throttled && slot->cgroup_id == m->cgroup_id &&
	    slot->sandboxes == m->sandbox)
		box->throttled(box, &m->what);
	free(m);
}

/* What could not be told for want of memory is told too little, no more. */
static void shard_tell(struct governor *g, const struct guard_churn_event *who,
		       const struct box_throttle *what)
{
	struct containers *c = atomic_load(&g->desks[who->shard].c);
	struct governor_mail *m = c ? calloc(1, sizeof *m) : NULL;

	if (!m)
		return;
	m->c = c;
	m->cgroup_id = who->cgroup_id;
	m->sandbox = who->sandbox;
	m->slot = who->slot;
	m->what = *what;
	m->mail.deliver = mail_arrived;
	mail_send(g->io, c->options.host->io, &m->mail);
}

/* ---- leaves ---- */

static void leaf_tell(const struct leaf *leaf, enum box_throttle_kind kind, uint64_t frozen_us)
{
	const struct box_throttle what = { .kind = kind, .frozen_us = frozen_us };

	shard_tell(leaf->in, &leaf->who, &what);
}

static struct leaf *leaf_find(const struct governor *g, const struct guard_churn_event *event)
{
	for (uint32_t i = 0; i < g->leaf_count; i++) {
		const struct guard_churn_event *who = &g->leaves[i]->who;

		if (who->leaf_id == event->leaf_id && who->sandbox == event->sandbox)
			return g->leaves[i];
	}
	return NULL;
}

static void leaf_forget(struct leaf *leaf)
{
	struct governor *g = leaf->in;

	for (uint32_t i = 0; i < g->leaf_count; i++) {
		if (g->leaves[i] != leaf)
			continue;
		g->leaves[i] = g->leaves[--g->leaf_count];
		break;
	}
	leaf_tell(leaf, BOX_THROTTLE_ENDS, 0);
	timer_clear(&g->timers, &leaf->timer);
	cleanup_close(&leaf->freeze_fd);
	free(leaf);
}

static void leaf_is_over(struct timer *timer)
{
	leaf_forget(container_of(timer, struct leaf, timer));
}

static void leaf_timer(struct leaf *leaf, uint64_t at_ns, void (*expired)(struct timer *timer))
{
	leaf->timer.expired = expired;
	(void)timer_set(&leaf->in->timers, &leaf->timer, at_ns); /* there is room for all leaves */
}

static void leaf_thaw(struct timer *timer)
{
	struct leaf *leaf = container_of(timer, struct leaf, timer);
	struct governor *g = leaf->in;
	uint64_t now_ns;
	int r;

	/* It may have gone, or have lost its limit. */
	(void)guard_churn_leave(g->churn, leaf->who.cgroup_id, leaf->who.sandbox, PROBE);
	r = freeze_write(leaf->freeze_fd, "0");
	now_ns = io_clock_ns(g->io);
	if (r < 0 && !is_gone(r)) {
		leaf_timer(leaf, now_ns + RETRY_MS * NS_PER_MS, leaf_thaw);
		return;
	}
	leaf_tell(leaf, BOX_THROTTLE_THAWED, (now_ns - leaf->frozen_ns) / 1000);
	leaf->frozen_ns = 0;
	leaf->throttle.thawed_ns = now_ns;
	leaf_timer(leaf, throttle_over_ns(&leaf->throttle), leaf_is_over);
}

static struct leaf *leaf_new(struct governor *g, const struct guard_churn_event *event)
{
	struct leaf *leaf = g->leaf_count < LEAVES_THROTTLED_MAX ? calloc(1, sizeof *leaf) : NULL;

	if (!leaf)
		return NULL; /* it is told of again */
	leaf->in = g;
	leaf->who = *event;
	leaf->freeze_fd = freeze_open(g->options.cgroup_fd, event->leaf_id);
	if (leaf->freeze_fd < 0) {
		free(leaf); /* it has gone */
		return NULL;
	}
	g->leaves[g->leaf_count++] = leaf;
	return leaf;
}

/* Whether it cost a freeze. */
static bool event_take(struct governor *g, const struct guard_churn_event *event)
{
	struct leaf *leaf = leaf_find(g, event);
	const bool is_known = leaf;
	uint64_t now_ns = io_clock_ns(g->io);

	if (event->shard >= g->options.shards || (leaf && leaf->frozen_ns))
		return false; /* told before it was frozen */
	if (!leaf)
		leaf = leaf_new(g, event);
	if (!leaf)
		return false;
	if (freeze_write(leaf->freeze_fd, "1") < 0) {
		leaf_forget(leaf);
		return false;
	}
	leaf->frozen_ns = now_ns;
	leaf_timer(leaf, now_ns + throttle_again_ms(&leaf->throttle, now_ns) * NS_PER_MS,
		   leaf_thaw);
	if (!is_known)
		leaf_tell(leaf, BOX_THROTTLE_BEGINS, 0);
	return true;
}

/* A realtime thread must not be all that runs, however many storm. */
static void events_take(struct governor *g)
{
	const struct timespec breath = { 0, BREATH_NS };
	struct guard_churn_event event;
	uint32_t frozen = 0;

	while (guard_churn_next(g->churn, &event) > 0) {
		if (event.what == GUARD_CHURN_TIME) {
			hogs_told(g->hogs, &event); /* there are such events only then */
			continue;
		}
		frozen += event_take(g, &event);
		if (frozen == AT_ONCE) {
			frozen = 0;
			(void)nanosleep(&breath, NULL);
		}
	}
}

/* ---- the loop ---- */

static void events_come(struct io_op *op, int res)
{
	struct governor *g = container_of(op, struct governor, poll);

	if (res != -ECANCELED)
		io_poll_once(g->io, op, guard_churn_fd(g->churn), POLLIN);
}

static void wake_comes(struct io_op *op, int res)
{
	struct governor *g = container_of(op, struct governor, wake_poll);
	eventfd_t count;

	if (res == -ECANCELED)
		return;
	(void)eventfd_read(g->wake_fd, &count); /* it was readable */
	hogs_gather(g->hogs);
	io_poll_once(g->io, op, g->wake_fd, POLLIN);
}

static void stop_comes(struct io_op *op, int res)
{
	(void)res;
	container_of(op, struct governor, stop_poll)->is_stopping = true;
}

static void governor_run(struct governor *g)
{
	while (!g->is_stopping) {
		if (io_turn(g->io, timers_next(&g->timers)) < 0)
			break; /* nothing is left frozen below */
		events_take(g);
		(void)timers_run(&g->timers, io_clock_ns(g->io), UINT32_MAX);
		atomic_store(&g->is_asleep, g->hogs && hogs_are_free(g->hogs));
	}
	while (g->leaf_count) {
		struct leaf *leaf = g->leaves[0];

		if (leaf->frozen_ns)
			(void)freeze_write(leaf->freeze_fd, "0"); /* or it has gone */
		leaf_forget(leaf);
	}
	hogs_close(g->hogs);
	(void)io_turn(g->io, 0); /* sends the mail */
}

/* First in line: a storm keeps whoever is not from running at all. */
static bool promptness_get(void)
{
	const struct sched_param first = { .sched_priority = 1 };

	return sched_setscheduler(0, SCHED_FIFO, &first) == 0;
}

static uint64_t who_began(void *owner)
{
	return atomic_exchange(&((struct governor *)owner)->begun, BEGINS_NOBODY);
}

static void hog_escapes(void *owner, const struct guard_churn_event *who)
{
	(void)event_take(owner, who);
}

/* This thread first: it moves the others. */
static void engine_move(void *owner, const cpu_set_t *cpus, bool is_away)
{
	struct governor *g = owner;

	(void)sched_setaffinity(0, sizeof *cpus, cpus); /* it is only later on the others */
	for (uint32_t i = 0; i < g->options.shards; i++)
		desk_move(&g->desks[i], g->io, cpus, is_away);
}

static struct guard_churn_forks hog_forks(void *owner, const struct guard_churn_event *who)
{
	return guard_churn_forks(((struct governor *)owner)->churn, who->leaf_id);
}

static void hog_is_bomb(void *owner, const struct guard_churn_event *who, uint32_t leaf,
			uint64_t since_ns)
{
	struct governor *g = owner;
	const struct box_throttle what = { .kind = BOX_THROTTLE_BOMB,
					   .leaf = leaf,
					   .since_ns = since_ns };

	if (who->shard < g->options.shards)
		shard_tell(g, who, &what);
}

/* Without them storms are held back all the same, and neighbours of who computes wait longer. */
static void hogs_watch(struct governor *g)
{
	const struct hogs_options options = {
		.io = g->io,
		.timers = &g->timers,
		.cgroup_fd = g->options.cgroup_fd,
		.owner = g,
		.who_began = who_began,
		.escapes = hog_escapes,
		.fork_bomb_s = g->options.fork_bomb_s,
		.forks = hog_forks,
		.is_bomb = hog_is_bomb,
		.move = engine_move,
	};
	int r = hogs_open(&options, &g->hogs);

	if (r >= 0)
		r = guard_churn_sample(g->churn);
	if (r < 0) {
		hogs_close(g->hogs);
		g->hogs = NULL;
	}
	g->hogs_error = r;
}

static int governor_open(struct governor *g)
{
	const struct io_options options = { .entries = RING_ENTRIES, .owner = g };
	int r = timers_init(&g->timers, LEAVES_THROTTLED_MAX + HOGS_MAX);

	g->step = "memory";
	if (r < 0)
		return r;
	g->step = "io_uring";
	r = io_open(&options, &g->io);
	if (r < 0)
		return r;
	g->poll.done = events_come;
	io_poll_once(g->io, &g->poll, guard_churn_fd(g->churn), POLLIN);
	g->stop_poll.done = stop_comes;
	io_poll_once(g->io, &g->stop_poll, g->stop_fd, POLLIN);
	if (g->options.cpu_burst_ms)
		hogs_watch(g);
	g->wake_poll.done = wake_comes;
	if (g->hogs)
		io_poll_once(g->io, &g->wake_poll, g->wake_fd, POLLIN);
	g->is_prompt = promptness_get();
	return 0;
}

static void *governor_main(void *argument)
{
	struct governor *g = argument;
	int error = governor_open(g);

	pthread_mutex_lock(&g->lock);
	g->error = error;
	g->is_ready = true;
	pthread_cond_signal(&g->ready);
	pthread_mutex_unlock(&g->lock);
	if (!error)
		governor_run(g);
	io_close(g->io);
	timers_done(&g->timers);
	return NULL;
}

/* ---- from outside ---- */

static void governor_free(struct governor *g)
{
	guard_churn_close(g->churn);
	cleanup_close(&g->stop_fd);
	cleanup_close(&g->wake_fd);
	free(g);
}

/* What it needs and a host may not have: looked for by doing it. */
static int governor_probe(struct governor *g)
{
	struct stat st;
	int r, fd;

	g->step = "cgroups by their ids";
	if (fstat(g->options.cgroup_fd, &st) < 0)
		return -errno;
	fd = group_open(g->options.cgroup_fd, st.st_ino);
	if (fd < 0)
		return fd;
	(void)close(fd);
	g->step = "events of churn";
	r = guard_churn_open(g->options.cpu_burst_ms, &g->churn);
	if (r < 0)
		return r;
	g->step = "eventfd";
	g->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (g->stop_fd < 0)
		return -errno;
	g->wake_fd = eventfd(0, EFD_CLOEXEC);
	return g->wake_fd < 0 ? -errno : 0;
}

int governor_start(const struct governor_options *options, const char **ret_step,
		   struct governor **ret)
{
	struct governor *g = calloc(1, sizeof *g + options->shards * sizeof g->desks[0]);
	int r;

	*ret_step = "memory";
	if (!g)
		return -ENOMEM;
	g->options = *options;
	g->stop_fd = g->wake_fd = -1;
	g->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	g->ready = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	r = governor_probe(g);
	if (r >= 0) {
		g->step = "thread";
		r = -pthread_create(&g->thread, NULL, governor_main, g);
	}
	if (r >= 0) {
		(void)pthread_setname_np(g->thread, "governor"); /* for people only */
		pthread_mutex_lock(&g->lock);
		while (!g->is_ready)
			pthread_cond_wait(&g->ready, &g->lock);
		pthread_mutex_unlock(&g->lock);
		r = g->error;
		if (r < 0)
			(void)pthread_join(g->thread, NULL);
	}
	*ret_step = g->step;
	if (r < 0) {
		governor_free(g);
		return r;
	}
	*ret = g;
	return 0;
}

bool governor_is_prompt(const struct governor *g)
{
	return g->is_prompt;
}

int governor_yields(const struct governor *g)
{
	return g->hogs_error;
}

void governor_stop(struct governor *g)
{
	if (!g)
		return;
	(void)eventfd_write(g->stop_fd, 1); /* its count is far from full */
	(void)pthread_join(g->thread, NULL);
	governor_free(g);
}

void governor_meet(struct governor *g, uint32_t shard, struct containers *c)
{
	if (!g)
		return;
	desk_meet(&g->desks[shard], c);
}

int governor_limit(struct governor *g, uint32_t shard, struct slot *slot, uint32_t per_s)
{
	const struct guard_churn_limit limit = {
		.per_s = per_s,
		.shard = shard,
		.slot = slot->number,
		.sandbox = slot->sandboxes,
		.processes_max = slot->processes_max,
	};
	int r;

	if (!g || !slot->cgroup_id)
		return 0;
	r = guard_churn_set(g->churn, slot->cgroup_id, &limit);
	slot->has_churn = r == 0;
	return r;
}

void governor_begins(struct governor *g, uint32_t shard, const struct slot *slot)
{
	const uint64_t name = begins_name(shard, slot->number);
	uint64_t seen = BEGINS_NOBODY;

	if (!g)
		return;
	if (!atomic_compare_exchange_strong(&g->begun, &seen, name) && seen != name &&
	    seen != BEGINS_SEVERAL)
		atomic_store(&g->begun, BEGINS_SEVERAL);
	if (atomic_load_explicit(&g->is_asleep, memory_order_relaxed) &&
	    atomic_exchange(&g->is_asleep, false))
		(void)eventfd_write(g->wake_fd, 1); /* its count is far from full */
}

void governor_leave(struct governor *g, struct slot *slot)
{
	if (g && slot->has_churn)
		(void)guard_churn_set(g->churn, slot->cgroup_id, NULL); /* it can only be gone */
	slot->has_churn = false;
}
