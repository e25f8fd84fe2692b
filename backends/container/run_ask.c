/*
 * What is asked of a run while it lives: a signal to its leaf, a size for its terminal. Called by
 * the engine through the class. Must hold: while a request about a leaf waits or is under way its
 * main process is held, so that it is not reaped, and PID 1, so that the slot stays: else the leaf
 * could be another exec's by then. A descriptor waits as a copy of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>

#include "backends/container/container.h"
#include "engine/base/cleanup.h"

struct question {
	struct launch_call call;
	struct container_run *run; /* held; NULL: nothing of it is needed */
	struct container *box;
	struct run_ask ask;
	int error; /* the first */
};

int container_run_signal(struct run *run, int signal)
{
	return child_signal(&container_run_of(run)->main, signal);
}

static void question_answered(struct launch_call *call, const struct launch_reply *reply)
{
	struct question *q = container_of(call, struct question, call);
	struct container_run *run = q->run;
	struct container *box = q->box;

	if (!q->error)
		q->error = reply ? -reply->error : -EPIPE;
	if (run && (!reply || (call->request.signal && reply->error))) {
		/* The leaf may be frozen still; and some of it signalled, so not again. */
		call->request.signal = 0;
		team_call(&containers_of(box->box.backend)->team, call);
		return;
	}
	if (!run)
		cleanup_close(&call->fds[0]);
	q->ask.done(q->ask.owner, q->error);
	free(q);
	if (!run)
		return;
	child_release(&run->main);
	child_release(&box->init);
}

static int question_hold(struct question *q, struct container_run *run)
{
	if (!child_is_running(&run->main) || run->kill_wanted)
		return -ESRCH;
	q->run = run;
	q->box = container_of_box(run->run.box);
	child_hold(&q->box->init);
	child_hold(&run->main);
	q->call.request.leaf = run->leaf;
	q->call.request.signal = q->ask.signal;
	return 0;
}

static int question_terminal(struct question *q)
{
	q->call.fds[0] = fcntl(q->ask.tty_fd, F_DUPFD_CLOEXEC, 0);
	if (q->call.fds[0] < 0)
		return -errno;
	q->call.request.descriptor_count = 1;
	if (!q->ask.rows)
		q->call.request.signal = SIGHUP;
	q->call.request.rows = q->ask.rows;
	q->call.request.columns = q->ask.columns;
	return 0;
}

int container_run_ask(struct run *base, const struct run_ask *ask)
{
	struct container_run *run = container_run_of(base);
	struct container *box = container_of_box(base->box);
	struct containers *c = containers_of(base->box->backend);
	auto_free struct question *q = calloc(1, sizeof *q);
	int r;

	if (!q)
		return -ENOMEM;
	q->ask = *ask;
	slot_request(c, box->slot, ask->signal ? LAUNCH_SIGNAL : LAUNCH_RESIZE, &q->call.request);
	r = ask->signal ? question_hold(q, run) : question_terminal(q);
	if (r < 0)
		return r;
	q->call.class = TEAM_END;
	q->call.done = question_answered;
	team_call(&c->team, &q->call);
	(void)take_ptr(q); /* question_answered() frees it */
	return 0;
}
