/*
 * The driver of step tables. Owns nothing but the walk; called by whoever runs an operation and by
 * the loop when a step's op completes. Always true: steps below `at` took effect and no other did,
 * except the one in flight; done() comes once per build or unwind and last.
 */
#include "engine/base/flow.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "engine/base/cleanup.h"

enum fault_when { FAULT_NONE, FAULT_BEFORE, FAULT_AFTER };

static void flow_op_done(struct io_op *op, int res)
{
	flow_resume(container_of(op, struct flow, op), res);
}

/* Last: the flow may be gone after it. */
static void flow_ask(struct flow *f)
{
	if (f->cancel)
		f->cancel(f);
	else
		io_cancel(f->host->io, &f->op);
}

static void flow_limit_expired(struct timer *t)
{
	struct flow *f = container_of(t, struct flow, limit);

	assert(f->waiting);
	assert(f->direction > 0);
	if (f->error)
		return; /* asked already */
	f->error = -ETIMEDOUT;
	f->failed_step = f->steps[f->at].name;
	flow_ask(f);
}

void flow_init(struct flow *f, struct flow_host *host, const char *table,
	       const struct flow_step *steps, uint8_t count)
{
	f->host = host;
	f->table = table;
	f->steps = steps;
	f->count = count;
	f->op.done = flow_op_done;
	f->limit.expired = flow_limit_expired;
}

static int errno_of(const char *name)
{
	for (int error = 1; error < 256; error++) {
		const char *known = strerrorname_np(error);

		if (known && strcmp(known, name) == 0)
			return error;
	}
	return 0;
}

int flow_fault_check(const char *fault)
{
	const char *dot = strchr(fault, '.'), *colon = strchr(fault, ':');

	if (!dot || !colon || dot == fault || colon < dot + 2 || !errno_of(colon + 1))
		return -EINVAL;
	return colon[-1] == '!' && colon == dot + 2 ? -EINVAL : 0;
}

/* Whether the host's fault is for the step about to run, and its errno. */
static enum fault_when fault_find(const struct flow *f, int *ret_error)
{
	const char *at = f->host ? f->host->fault : NULL;
	enum fault_when when = FAULT_BEFORE;
	size_t bytes;

	if (!at)
		return FAULT_NONE;
	bytes = strlen(f->table);
	if (strncmp(at, f->table, bytes) || at[bytes] != '.')
		return FAULT_NONE;
	at += bytes + 1;
	bytes = strlen(f->steps[f->at].name);
	if (strncmp(at, f->steps[f->at].name, bytes))
		return FAULT_NONE;
	at += bytes;
	if (*at == '!') {
		when = FAULT_AFTER;
		at++;
	}
	if (*at != ':' || !errno_of(at + 1))
		return FAULT_NONE;
	*ret_error = -errno_of(at + 1);
	return when;
}

static void flow_tell(const struct flow *f, int settled)
{
	if (f->host && f->host->journal)
		f->host->journal(f->host, f, settled);
}

static int flow_start(struct flow *f)
{
	const struct flow_step *step = &f->steps[f->at];
	struct flow_host *host = f->host;
	int error, r;

	if (fault_find(f, &error) == FAULT_BEFORE)
		return error;
	if (step->limit_ms && host && host->timers && !timer_is_set(&f->limit)) {
		r = timer_set(host->timers, &f->limit,
			      io_now_ns(host->io) + step->limit_ms * 1000000ull);
		if (r < 0)
			return r;
	}
	r = step->start(f);
	assert(r <= FLOW_WAIT);
	return r;
}

static int flow_undo(struct flow *f)
{
	const struct flow_step *step = &f->steps[f->at];
	int r = step->undo ? step->undo(f) : FLOW_NEXT;

	assert(r == FLOW_NEXT || r == FLOW_WAIT);
	return r;
}

static void flow_count(struct flow *f, int r)
{
	struct flow_host *host = f->host;
	struct flow_step_stats *stats;

	if (!host || !host->stats)
		return;
	stats = flow_stats_of(host->stats, f->table, &f->steps[f->at]);
	if (!stats)
		return;
	if (f->direction < 0)
		stats->undone++;
	else if (r < 0)
		stats->failed++;
	else
		histogram_record(&stats->latency, (io_now_ns(host->io) - f->step_ns) / 1000);
}

static void flow_fail(struct flow *f, int error)
{
	if (f->error)
		return; /* the first reason stands: a cancel, a limit */
	f->error = error;
	f->failed_step = f->steps[f->at].name;
}

/* The step in flight settled with r, which is not FLOW_WAIT. */
static void flow_settle(struct flow *f, int r)
{
	int error;

	if (r == FLOW_AGAIN && !f->error)
		return; /* the same step, under the same limit */
	if (timer_is_set(&f->limit))
		timer_clear(f->host->timers, &f->limit);
	if (r == FLOW_AGAIN)
		r = f->error;
	flow_count(f, r);
	flow_tell(f, r < 0 ? r : 1);
	if (f->direction < 0)
		return;
	if (r < 0)
		flow_fail(f, r);
	else if (fault_find(f, &error) == FAULT_AFTER)
		flow_fail(f, error);
	if (r == FLOW_NEXT)
		f->at++;
	if (f->error)
		f->direction = -1;
}

/* `again`: the step at hand was told and began already. */
static void flow_run(struct flow *f, bool again)
{
	while (again || (f->direction > 0 ? f->at < f->count : f->at > 0)) {
		int r;

		if (f->direction < 0)
			f->at--;
		if (!again) {
			f->step_ns = f->host ? io_now_ns(f->host->io) : 0;
			flow_tell(f, 0);
		}
		again = false;
		r = f->direction > 0 ? flow_start(f) : flow_undo(f);
		if (r == FLOW_WAIT) {
			f->waiting = true;
			/* Cancelled by something that start() called. */
			if (f->direction > 0 && f->error)
				flow_ask(f);
			return;
		}
		flow_settle(f, r);
	}
	f->direction = 0;
	f->done(f, f->error);
}

void flow_resume(struct flow *f, int res)
{
	int r = res < 0 ? res : FLOW_NEXT;

	assert(f->waiting);
	f->waiting = false;
	if (f->direction < 0)
		r = FLOW_NEXT;
	else if (f->steps[f->at].finish)
		r = f->steps[f->at].finish(f, res);
	assert(r != FLOW_WAIT);
	flow_settle(f, r);
	flow_run(f, r == FLOW_AGAIN && f->direction > 0); /* turned round: not again */
}

void flow_build(struct flow *f)
{
	assert(f->direction == 0);
	assert(f->at == 0);
	f->direction = 1;
	f->error = 0;
	f->failed_step = NULL;
	flow_run(f, false);
}

void flow_unwind(struct flow *f)
{
	assert(f->direction == 0);
	assert(f->at == f->count);
	f->direction = -1;
	f->error = 0;
	f->failed_step = NULL;
	flow_run(f, false);
}

void flow_cancel(struct flow *f)
{
	if (f->direction <= 0 || f->error)
		return;
	f->error = -ECANCELED;
	if (f->waiting)
		flow_ask(f);
}

const char *flow_step_name(const struct flow *f)
{
	return f->direction ? f->steps[f->at].name : NULL;
}
