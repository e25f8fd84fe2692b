/*
 * A signal to every process of a leaf. Called by the worker's loop. Must hold: nobody gets it who
 * was not in the leaf, so a pid is signalled through a descriptor that was opened before the leaf
 * was seen to hold that pid; nobody is missed, so the leaf is frozen for that moment, in which it
 * cannot fork away. A leaf that a lost worker left frozen is thawed by a request without a signal.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/container/kernel.h"
#include "backends/container/spawn.h"
#include "backends/container/worker.h"

#define TRY(step, call) LAUNCH_TRY(&w->attempt, LAUNCH_STEP_##step, call)

enum { PIDS_MAX = 8192, BATCH_MAX = 128, TEXT_BYTES = 4096, FREEZE_NS_MAX = 100000000 };

/* Sorted. */
struct pids {
	uint32_t count;
	int pids[PIDS_MAX];
};

/* In the space for payloads, of which this request has none. */
struct round {
	struct pids told;   /* those that got it and may live */
	struct pids listed; /* as of the latest look */
};

_Static_assert(sizeof(struct round) <= LAUNCH_PAYLOAD_BYTES_MAX, "no room");

static int pid_compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b; /* both are positive */
}

static bool pids_have(const struct pids *pids, int pid)
{
	return bsearch(&pid, pids->pids, pids->count, sizeof pid, pid_compare);
}

/* Numbers of a text that goes on: `ret_part` is what of the last one has been read. */
static long pids_parse(struct pids *pids, const char *text, long bytes, int *ret_part)
{
	for (long at = 0; at < bytes; at++) {
		if (text[at] != '\n') {
			*ret_part = *ret_part * 10 + (text[at] - '0');
			continue;
		}
		if (pids->count == PIDS_MAX)
			return -E2BIG;
		pids->pids[pids->count++] = *ret_part;
		*ret_part = 0;
	}
	return 0;
}

static long leaf_open(struct worker *w, const char *name, int flags)
{
	const struct launch_request *q = &w->order.request;
	char path[WORKER_PATH_BYTES];

	(void)snprintf(path, sizeof path, "b%u/e%u/%s", q->slot, q->leaf, name);
	return TRY(SIGNAL, kernel_openat(LAUNCH_FD_CGROUP, path, flags | O_CLOEXEC, 0));
}

static long leaf_list(struct worker *w, struct pids *ret)
{
	char text[TEXT_BYTES];
	long bytes, r = 0, fd = leaf_open(w, "cgroup.procs", O_RDONLY);
	int part = 0;

	if (fd < 0)
		return fd == -ENOENT ? -ESRCH : fd;
	ret->count = 0;
	while (r >= 0 && (bytes = kernel_read((int)fd, text, sizeof text)) > 0)
		r = pids_parse(ret, text, bytes, &part);
	(void)kernel_close((int)fd); /* only read */
	qsort(ret->pids, ret->count, sizeof *ret->pids, pid_compare);
	return r;
}

struct batch {
	uint32_t count;
	int pids[BATCH_MAX], fds[BATCH_MAX];
};

/* Descriptors for those that were not told yet; false: all were. */
static bool batch_open(const struct round *round, struct batch *batch)
{
	bool found = false;

	batch->count = 0;
	for (uint32_t i = 0; i < round->listed.count && batch->count < BATCH_MAX; i++) {
		int pid = round->listed.pids[i];
		long fd;

		if (pids_have(&round->told, pid))
			continue;
		found = true;
		fd = kernel_pidfd_open(pid);
		if (fd < 0)
			continue; /* gone */
		batch->pids[batch->count] = pid;
		batch->fds[batch->count++] = (int)fd;
	}
	return found;
}

/* Who is listed now is who the descriptor means, or that one is dead and cannot be signalled. */
static void batch_signal(struct worker *w, struct round *round, const struct batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		if (!pids_have(&round->listed, batch->pids[i]) ||
		    kernel_pidfd_kill(batch->fds[i], w->order.request.signal) < 0)
			continue; /* gone */
		w->order.reply.processes++;
		round->told.pids[round->told.count++] = batch->pids[i];
	}
	qsort(round->told.pids, round->told.count, sizeof *round->told.pids, pid_compare);
}

/* Those that went make room. */
static long told_forget(struct round *round)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < round->told.count; i++)
		if (pids_have(&round->listed, round->told.pids[i]))
			round->told.pids[kept++] = round->told.pids[i];
	round->told.count = kept;
	return kept > PIDS_MAX - BATCH_MAX ? -E2BIG : 0;
}

/* 1: somebody new got it; 0: all have it. The look that decides comes after the last signal. */
static long leaf_round(struct worker *w, struct round *round)
{
	struct batch batch;
	long r = told_forget(round);

	if (r < 0)
		return r;
	if (!batch_open(round, &batch))
		return 0;
	r = leaf_list(w, &round->listed);
	if (r >= 0)
		batch_signal(w, round, &batch);
	for (uint32_t i = 0; i < batch.count; i++)
		(void)kernel_close(batch.fds[i]); /* was only for the signal */
	if (r >= 0)
		r = leaf_list(w, &round->listed);
	return r < 0 ? r : 1;
}

/* What is born in a frozen group is born frozen. */
static long leaf_freeze(struct worker *w, const char *state)
{
	long r, fd = leaf_open(w, "cgroup.freeze", O_WRONLY);

	if (fd < 0)
		return fd == -ENOENT ? -ESRCH : fd; /* nobody is in it */
	r = TRY(SIGNAL, kernel_write((int)fd, state, 1));
	(void)kernel_close((int)fd); /* taken at once */
	return r < 0 ? r : 0;
}

/*
 * Until nobody is on the way through fork(2): a child that is not there yet cannot be seen. Who
 * sleeps in the kernel for long does not fork either, so the wait is short.
 */
static long leaf_await_frozen(struct worker *w)
{
	const uint64_t end_ns = kernel_now_ns() + FREEZE_NS_MAX;
	const struct timespec pause = { 0, 50000 };
	char text[256];
	long r, fd = leaf_open(w, "cgroup.events", O_RDONLY);

	if (fd < 0)
		return fd;
	do {
		r = TRY(SIGNAL, KERNEL_CALL(SYS_pread64, fd, (long)text, sizeof text - 1, 0));
		text[r > 0 ? r : 0] = 0;
		if (r <= 0 || strstr(text, "frozen 1"))
			break;
		(void)nanosleep(&pause, NULL); /* waking early only costs a look */
	} while (kernel_now_ns() < end_ns);
	(void)kernel_close((int)fd); /* only read */
	return r < 0 ? r : 0;
}

static long leaf_signal(struct worker *w, struct round *round)
{
	const uint64_t end_ns = kernel_now_ns() + w->order.request.limit_ms * 1000000ull;
	long r = leaf_await_frozen(w);

	round->told.count = 0;
	if (r >= 0)
		r = leaf_list(w, &round->listed);
	while (r >= 0 && (r = leaf_round(w, round)) > 0)
		if (kernel_now_ns() >= end_ns)
			return TRY(SIGNAL, -EAGAIN);
	if (r >= 0 && w->order.reply.processes == 0)
		return TRY(SIGNAL, -ESRCH);
	return r;
}

long cgroup_leaf_signal(struct worker *w)
{
	uint32_t step;
	long thawed, r = 0;

	if (w->order.request.signal) {
		r = leaf_freeze(w, "1");
		if (r < 0)
			return r;
		r = leaf_signal(w, (struct round *)(void *)w->payload);
	}
	step = w->attempt.step;
	thawed = leaf_freeze(w, "0");
	if (r < 0)
		w->attempt.step = step;
	return r < 0 ? r : thawed == -ESRCH ? 0 : thawed;
}
