/*
 * Children of the engine inside its sandboxes: watched by pid, reaped one by one. Called by the
 * container backend of one shard. Between a child's birth and its reaping its pid cannot be used
 * again, and nobody but this file reaps, so a watched pid always means the child it was given for.
 */
#include "backends/container/children.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/guard.h"
#include "engine/base/cleanup.h"

enum { CHILD_GONE, CHILD_WATCHED, CHILD_DEAD, CHILD_REAPING, CHILD_REAPED, CHILD_EARLY };
enum { EARLY_MAX = 1024, DEATHS_PER_TURN = 256 };
/* A reply names a pid within the launcher's own limits; later, an early death is a stray. */
#define EARLY_KEPT_NS (20 * 1000000000ull)

static struct child **bucket_of(struct children *children, int pid)
{
	return &children->buckets[(uint32_t)pid & (children->bucket_count - 1)];
}

static void child_insert(struct child *child)
{
	struct child **bucket = bucket_of(child->in, child->pid);

	child->next = *bucket;
	*bucket = child;
	child->in->watched++;
}

static void child_remove(struct child *child)
{
	struct child **at = bucket_of(child->in, child->pid);

	while (*at && *at != child)
		at = &(*at)->next;
	if (*at) {
		*at = child->next;
		child->in->watched--;
	}
}

static int status_of(const siginfo_t *info)
{
	if (info->si_code == CLD_EXITED)
		return (info->si_status & 0xff) << 8;
	return (info->si_status & 0x7f) | (info->si_code == CLD_DUMPED ? 0x80 : 0);
}

/* Last: the child may be gone after it. */
static void child_finish(struct child *child)
{
	child_remove(child);
	child->state = CHILD_REAPED;
	if (child->holds)
		return;
	child->state = CHILD_GONE;
	if (child->ended)
		child->ended(child, child->status);
}

static void child_reaped(struct io_op *op, int res)
{
	struct child *child = container_of(op, struct child, op);

	/* ECHILD would mean that somebody else reaped it: it is gone all the same. */
	child->status = res < 0 ? SIGKILL : status_of(&child->info);
	child_finish(child);
}

static void child_reap(struct child *child)
{
	child->state = CHILD_REAPING;
	child->op.done = child_reaped;
	io_wait_pid(child->in->io, &child->op, child->pid, &child->info);
}

static void child_told(struct child *child)
{
	if (child->holds)
		child->state = CHILD_DEAD;
	else
		child_reap(child);
}

static void child_ended_direct(struct io_op *op, int res)
{
	(void)res; /* whatever it is, reaping says it again */
	child_told(container_of(op, struct child, op));
}

static void child_wait(struct child *child)
{
	child->direct = true;
	child->op.done = child_ended_direct;
	io_watch_pid(child->in->io, &child->op, child->pid, &child->info);
}

/* An early death was reaped: it stays in the table with its status until claimed or too old. */
static void early_reaped(struct io_op *op, int res)
{
	struct child *child = container_of(op, struct child, op);
	struct child *claimer = child->claimer;

	child->status = res < 0 ? SIGKILL : status_of(&child->info);
	child->state = CHILD_EARLY;
	if (!claimer)
		return;
	claimer->status = child->status;
	claimer->cpu_us = child->cpu_us;
	claimer->peak_bytes = child->peak_bytes;
	child_remove(child);
	pool_put(&child->in->early, child);
	child_finish(claimer);
}

static void early_expire(struct children *children)
{
	uint64_t now_ns = io_now_ns(children->io);

	for (uint32_t i = 0; pool_taken(&children->early) && i < children->early.count; i++) {
		struct child *child = pool_at(&children->early, i);

		if (!child || child->state != CHILD_EARLY ||
		    now_ns - child->since_ns < EARLY_KEPT_NS)
			continue;
		child_remove(child);
		pool_put(&children->early, child);
		children->strays++;
	}
}

static struct child *early_add(struct children *children, int pid)
{
	struct child *child = pool_take(&children->early);

	if (!child) {
		early_expire(children);
		child = pool_take(&children->early);
	}
	if (!child)
		return NULL; /* more strays than workers lose in 20 s; a zombie until we end */
	child->in = children;
	child->is_early = true;
	child->pid = pid;
	child->sequence = children->sequence;
	child->since_ns = io_now_ns(children->io);
	child->op.done = early_reaped;
	child->state = CHILD_REAPING;
	child_insert(child);
	io_wait_pid(children->io, &child->op, pid, &child->info);
	return child;
}

static void child_died(void *context, const struct guard_death *death)
{
	struct children *children = context;
	struct child *child = *bucket_of(children, death->pid);

	while (child && (child->pid != death->pid || child->state != CHILD_WATCHED))
		child = child->next;
	if (!child)
		child = early_add(children, death->pid);
	else if (!child->direct)
		child_told(child);
	if (!child)
		return;
	child->told = true;
	child->status = death->code;
	child->cpu_us = death->cpu_us;
	child->peak_bytes = death->peak_bytes;
	if (child->died)
		child->died(child);
}

/* Some deaths are lost: from now on those alive are waited for one by one, which cannot miss. */
static void children_wait_for_all(struct children *children)
{
	for (uint32_t i = 0; i < children->bucket_count; i++) {
		for (struct child *c = children->buckets[i]; c; c = c->next) {
			if (c->state == CHILD_WATCHED && !c->direct)
				child_wait(c);
		}
	}
}

static void children_poll(struct io_op *op, int res)
{
	struct children *children = container_of(op, struct children, poll);
	int r;

	if (children->closing)
		return;
	do {
		r = guard_exits_consume(children->exits, DEATHS_PER_TURN, child_died, children);
		if (r == -ENOBUFS)
			children_wait_for_all(children);
	} while (r == DEATHS_PER_TURN || r == -ENOBUFS);
	if (!(op->flags & IO_MORE) && res != -ECANCELED)
		io_poll(children->io, op, guard_exits_fd(children->exits), POLLIN);
}

int children_init(struct children *children, struct io *io, struct guard_exits *exits,
		  uint32_t count_max)
{
	uint32_t buckets = 64;
	int r;

	while (buckets < count_max)
		buckets *= 2;
	*children = (struct children){ .io = io, .exits = exits, .bucket_count = buckets };
	children->buckets = calloc(buckets, sizeof *children->buckets);
	if (!children->buckets)
		return -ENOMEM;
	r = pool_init(&children->early, sizeof(struct child), EARLY_MAX);
	if (r < 0) {
		free(children->buckets);
		return r;
	}
	if (exits) {
		children->poll.done = children_poll;
		io_poll(io, &children->poll, guard_exits_fd(exits), POLLIN);
	}
	return 0;
}

void children_done(struct children *children)
{
	children->closing = true;
	pool_done(&children->early);
	free(children->buckets);
	children->buckets = NULL;
}

enum claim { CLAIM_NONE, CLAIM_ENDED, CLAIM_ENDING };

/* The death came first: an early entry told after the request was sent may be its child. */
static enum claim early_claim(struct children *children, struct child *child, uint64_t sequence)
{
	struct child *early = *bucket_of(children, child->pid);

	while (early && (!early->is_early || early->claimer || early->pid != child->pid ||
			 early->sequence < sequence))
		early = early->next;
	if (!early)
		return CLAIM_NONE;
	if (early->state == CHILD_EARLY) {
		child->status = early->status;
		child->cpu_us = early->cpu_us;
		child->peak_bytes = early->peak_bytes;
		child_remove(early);
		pool_put(&children->early, early);
		child->ended(child, child->status);
		return CLAIM_ENDED;
	}
	child->told = true;
	child->status = early->status;
	early->claimer = child;
	child->state = CHILD_REAPING;
	child_insert(child);
	return CLAIM_ENDING;
}

bool child_watch(struct children *children, struct child *child, int pid, uint64_t sequence)
{
	child->in = children;
	child->pid = pid;
	child->holds = 0;
	child->state = CHILD_GONE;
	child->cpu_us = child->peak_bytes = UINT64_MAX;
	child->direct = false;
	if (children->exits) {
		switch (early_claim(children, child, sequence)) {
		case CLAIM_ENDED:
			return false;
		case CLAIM_ENDING:
			return true;
		case CLAIM_NONE:
			break;
		}
	}
	child->state = CHILD_WATCHED;
	child_insert(child);
	if (!children->exits)
		child_wait(child);
	return true;
}

void child_hold(struct child *child)
{
	child->holds++;
}

void child_release(struct child *child)
{
	if (--child->holds)
		return;
	if (child->state == CHILD_DEAD)
		child_reap(child);
	else if (child->state == CHILD_REAPED)
		child_finish(child);
}

bool child_has_died(const struct child *child, int *ret_status)
{
	if (child_is_alive(child) && child->told)
		*ret_status = child->status;
	return child_is_alive(child) && child->told;
}

bool child_is_running(const struct child *child)
{
	return child->state == CHILD_WATCHED;
}

bool child_is_ending(const struct child *child)
{
	enum { EXITING = 0x4 }; /* of the flags, which are the 7th number after the name */
	char path[32], text[512] = "";
	const char *at;
	unsigned flags;

	if (!child_is_running(child) || !child->direct)
		return !child_is_running(child);
	(void)snprintf(path, sizeof path, "/proc/%d/stat", child->pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
		return true;
	at = strrchr(text, ')');
	return !at || sscanf(at, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 || flags & EXITING;
}

int child_signal(struct child *child, int signal)
{
	/* Not reaped, so the pid is its own. */
	if (!child_is_running(child) || kill(child->pid, signal) < 0)
		return -ESRCH;
	return 0;
}

void child_kill(struct child *child)
{
	(void)child_signal(child, SIGKILL); /* it may have died just now: a zombie, no error */
}
