/*
 * Holds sandboxes still. Called by pack.c and fork.c, and by sandbox.c when one ends. Must hold:
 * whatever was frozen is thawed, and over() comes after that; no program is frozen on its way into
 * the sandbox, since a launcher worker waits for it.
 */
#include "engine/sandbox/still.h"

#include <errno.h>

#include "engine/base/cleanup.h"
#include "engine/exec/exec_state.h"
#include "engine/sandbox/phase.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"

enum { LOOK_NS = 2 * 1000000, LOOKS_MAX = 1500 };

struct status still_refusal(void)
{
	struct status s = status_of_errno(-EAGAIN, "sandbox", "still");

	s.retry_after_ms = 20;
	s.detail = "it is held still while what it wrote is read";
	return s;
}

struct status still_status(const char *table, int error)
{
	struct status s = status_of_errno(error, table, "freeze");

	if (error == -ESRCH)
		return status_absent();
	if (error == -EBUSY) {
		s = status_of_errno(-EAGAIN, table, "freeze");
		s.detail = "programs or operations on files kept starting in it";
	} else if (error == -ETIMEDOUT) {
		s.detail = "something in it does not stop";
	}
	return s;
}

static void still_look_later(struct still *still);

/* ---- from the wish to stillness ---- */

static void still_failed(struct still *still, int error)
{
	struct sandbox *sandbox = still->sandbox;

	sandbox->still = NULL;
	still->ready(still, error);
	sandbox_still_over(sandbox);
}

static void still_frozen(struct box_freeze *freeze, int error)
{
	struct still *still = container_of(freeze, struct still, freeze);

	if (error) {
		still_failed(still, error);
		return;
	}
	still->since_ns = io_now_ns(still->sandbox->shard->io);
	still->is_still = true;
	still->ready(still, 0);
}

/* A program is on its way into it, or an operation on files is under way. */
static bool is_starting(const struct sandbox *sandbox)
{
	if (sandbox->file_count)
		return true;
	for (const struct exec *exec = sandbox->execs; exec; exec = exec->next)
		if (!exec->started)
			return true;
	return false;
}

static void still_look(struct timer *timer)
{
	struct still *still = container_of(timer, struct still, look);
	struct sandbox *sandbox = still->sandbox;
	struct box *box = sandbox->box;
	int r = 0;

	if (sandbox->state != DSEC_STATE_RUNNING)
		r = -ESRCH;
	else if (is_starting(sandbox) && ++still->looks == LOOKS_MAX)
		r = -EBUSY;
	if (r < 0) {
		still_failed(still, r);
		return;
	}
	if (is_starting(sandbox)) {
		still_look_later(still);
		return;
	}
	still->freeze.done = still_frozen;
	r = box->backend->class->box_freeze(box, &still->freeze);
	if (r < 0)
		still_failed(still, r);
}

/* Full: it is looked at as often as the loop turns. */
static void still_look_later(struct still *still)
{
	struct shard *shard = still->sandbox->shard;

	still->look.expired = still_look;
	if (timer_set(&shard->timers, &still->look, io_now_ns(shard->io) + LOOK_NS) < 0)
		still_failed(still, -EAGAIN);
}

struct status still_begin(struct still *still, char ret_detail[80])
{
	struct sandbox *sandbox = still->sandbox;
	struct status s = phase_admits(sandbox, 0, ret_detail);

	if (s.code)
		return s;
	still->freeze.upper_fd = -1;
	sandbox->still = still;
	still_look_later(still);
	return STATUS_OK;
}

/* ---- and back ---- */

static void still_thawed(struct box_freeze *freeze, int error)
{
	struct still *still = container_of(freeze, struct still, freeze);
	struct sandbox *sandbox = still->sandbox;

	(void)error; /* never */
	still->paused_us = (io_now_ns(sandbox->shard->io) - still->since_ns) / 1000;
	sandbox->still = NULL;
	still->over(still);
	sandbox_still_over(sandbox);
}

static void still_thaw(struct timer *timer)
{
	struct still *still = container_of(timer, struct still, look);
	struct sandbox *sandbox = still->sandbox;
	struct box *box = sandbox->box;
	struct shard *shard = sandbox->shard;

	still->freeze.done = still_thawed;
	if (box->backend->class->box_thaw(box, &still->freeze) == 0)
		return;
	still->look.expired = still_thaw;
	if (timer_set(&shard->timers, &still->look, io_now_ns(shard->io) + LOOK_NS) < 0)
		still_thaw(timer);
}

void still_end(struct still *still)
{
	still_thaw(&still->look);
}

void still_hurry(struct still *still)
{
	if (!still->is_still || still->is_ending)
		return; /* not yet: it is seen at the next look */
	still->is_ending = true;
	still->hurry(still);
}
